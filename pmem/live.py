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
    """The answer of the processes that hold live sessions (one a project), or None when none answers.

    Sessions of all of them are joined; any other request is answered by the first that can, the newest process first.
    """
    if not settings.enabled or not hasattr(socket, "AF_UNIX"):
        return None
    refusal: dict[str, Any] | None = None
    sessions: list[Any] | None = None
    for place in live_sockets(settings):
        found = ask_at(place, request)
        if found is None:
            continue
        if request.get("op") == "inspect":
            sessions = [*found.get("sessions", []), *(sessions or [])]
        elif "error" not in found:
            return found
        else:
            refusal = found
    return refusal if sessions is None else {"sessions": sessions}


def live_sockets(settings: Settings) -> list[Path]:
    """Sockets in the state folder, newest first."""
    return sorted(settings.state_dir.glob("live*.sock"), key=_made_at, reverse=True)


def ask_at(place: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of the process behind one socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(place))
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


def _made_at(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


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
