"""Look into live sessions of another process over a Unix socket: one JSON line asked, one JSON line answered.

The process that holds sessions (the hook daemon) calls `answer`; `pmem memory` and `pmem handoff` call `ask`.
Requests: `{"op":"inspect"}` · `{"op":"seed","session_id":…,"path":…}`. A session is the newest one when not named.
"""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmem.errors import UserError
from pmem.settings import Settings

if TYPE_CHECKING:
    from pmem.session import MemorySession

TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 8_000_000


def ask(settings: Settings, request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of the process that holds live sessions, or None when no such process answers."""
    if not settings.enabled or not settings.socket_file.exists() or not hasattr(socket, "AF_UNIX"):
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(settings.socket_file))
            connection.sendall(json.dumps(request).encode() + b"\n")
            return _mapping(_read_line(connection))
    except OSError:
        return None


def answer(request: Mapping[str, Any], sessions: Mapping[str, "MemorySession"]) -> dict[str, Any]:
    """Answer one request about `sessions`, newest last. Total: what is wrong with a request is said in `error`."""
    from pmem.handoff import read_handoff, seed

    op = request.get("op")
    if op == "inspect":
        return {"sessions": [session.inspect() for session in sessions.values()]}
    if op != "seed":
        return {"error": f"unknown op {op!r}; known are inspect and seed"}
    name = request.get("session_id") or next(reversed(list(sessions)), None)
    session = sessions.get(str(name))
    if session is None:
        return {"error": f"no live session {name!r}"}
    try:
        path = Path(str(request.get("path")))
        seeded = seed(session, read_handoff(path), source=str(path))
    except UserError as error:
        return {"error": str(error)}
    if seeded is None:
        return {"error": "memory is disabled in that session"}
    return {"session_id": name, "seeded": seeded.num_seeded, "skipped": seeded.num_skipped}


def _read_line(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < MAX_ANSWER_BYTES:
        part = connection.recv(65_536)
        parts.append(part)
        size += len(part)
        if not part or part.endswith(b"\n"):
            break
    return b"".join(parts)


def _mapping(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
