"""The process that holds the sessions of one user and project: hook events in, answers out, over a Unix socket.

Started on demand by the first hook call (client.py), which hands it the listening socket; leaves after `idle_s` without an event.

    {"op":"hook","client":"claude","live":false,"bytes":N}\\n + N bytes of event  ->  one JSON line, or the end of the connection
    {"op":"inspect"} · {"op":"seed",…}                                            ->  as pmem.live says (`pmem memory`)
    {"op":"status"}                                                               ->  counts for `pmem hook doctor`

A client that has printed its answer sends one byte back; only then is a reminder delivered. What does not come back waits on.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pmem import __version__
from pmem.connect import open_session
from pmem.errors import UserError
from pmem.integrations.adapter import Conversations
from pmem.integrations.hook.claims import Claims
from pmem.integrations.hook.conversation import Conversation, Said
from pmem.integrations.hook.dialects import DIALECTS, Dialect, HookEvent, answer, read_event
from pmem.integrations.hook.shadow import Shadow, shadow_settings
from pmem.live import answer as answer_live
from pmem.session import MemorySession
from pmem.settings import SETTINGS_VARIABLE, Settings, default_settings_file, load_settings

PRINTED = b"\x06"
PRINTED_WITHIN_S = 1.0
READ_WITHIN_S = 5.0
MAX_EVENT_BYTES = 32 << 20
MAX_HEAD_BYTES = 65_536
MAX_CONVERSATIONS = 64
LOOK_S = 5.0
"""How often an idle daemon looks whether its time is over."""

OpenFor = Callable[[str, bool, str], MemorySession]
"""(session id, live, the agent's folder) -> session."""


class Daemon:
    """`open_for` makes the session of a conversation; `shadow` takes what is not said while a conversation is not live."""

    def __init__(self, open_for: OpenFor, *, shadow: Shadow | None = None) -> None:
        self._open_for = open_for
        self._shadow = shadow
        self._claims = Claims()
        self._lock = threading.Lock()
        self._started = time.time()
        self.last_event = time.monotonic()
        self.counts: Counter[str] = Counter()
        self._attending: set[threading.Thread] = set()
        self.conversations: Conversations[Conversation] = Conversations(limit=MAX_CONVERSATIONS)

    def serve(self, listener: socket.socket, *, idle_s: float, reachable: Callable[[], bool] = lambda: True) -> None:
        """Take connections, each on its own thread, until nothing came for `idle_s` or nobody can reach the socket any more."""
        listener.setblocking(False)
        while time.monotonic() - self.last_event < idle_s and reachable():
            if select.select([listener], [], [], min(LOOK_S, idle_s))[0]:
                self.accept(listener)

    def accept(self, listener: socket.socket) -> bool:
        """Take one waiting connection; False when none waits."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return False
        self.last_event = time.monotonic()
        thread = threading.Thread(target=self.attend, args=(connection,), name="pmem-hook", daemon=True)
        thread.start()
        self._attending = {other for other in self._attending if other.is_alive()} | {thread}
        return True

    def attend(self, connection: socket.socket) -> None:
        """Serve one connection. Nothing that goes wrong in it reaches another."""
        try:
            with connection:
                connection.setblocking(True)
                connection.settimeout(READ_WITHIN_S)
                self._serve_request(connection)
        except Exception as error:
            self._count("faults" if not isinstance(error, OSError) else "lost_connections")

    def status(self) -> dict[str, Any]:
        """Counts and outcomes only."""
        with self._lock:
            counts = dict(self.counts)
        return {
            "version": __version__, "pid": os.getpid(), "uptime_s": round(time.time() - self._started, 1), "counts": counts,
            "conversations": [
                {"client": held.dialect.name, "session_id": held.session.session_id, "live": held.live,
                 "tool_events": held.num_tool_events, "observed": held.num_observed, "faults": held.session.num_faults}
                for held in self.conversations.held().values()
            ],
        }  # fmt: skip

    def close(self) -> None:
        """Let the connections that were taken come to their end, then close the sessions."""
        for thread in self._attending:
            thread.join(READ_WITHIN_S)
        self.conversations.close()

    # Within

    def _serve_request(self, connection: socket.socket) -> None:
        head, rest = _read_head(connection)
        request = json.loads(head)
        if request.get("op") == "hook":
            self._serve_event(connection, request, rest)
        elif request.get("op") == "status":
            _send(connection, self.status())
        else:
            _send(connection, answer_live(request, self._sessions()))

    def _serve_event(self, connection: socket.socket, request: dict[str, Any], rest: bytes) -> None:
        dialect = DIALECTS[request["client"]]
        data = _read_exactly(connection, rest, int(request["bytes"]))
        self._count("events")
        try:
            payload = json.loads(data)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            self._count("malformed")
            return
        event = read_event(dialect, payload)
        self._count(f"event_{event.kind}")
        if event.kind == "other":
            return
        if not self._claims.first(event, data):
            self._count("told_twice")
            return
        conversation = self._conversation(dialect, event, live=bool(request.get("live")))
        with conversation.lock:
            said = conversation.handle(event).within(dialect.max_context_chars)
            self._deliver(connection, conversation, dialect, event, said)

    def _deliver(
        self, connection: socket.socket, conversation: Conversation, dialect: Dialect, event: HookEvent, said: Said
    ) -> None:
        text = said.text(bare=dialect.wraps_context)
        spoken = answer(dialect, event.name, text)
        if spoken is None:
            return
        if not conversation.live:
            self._count("shadowed")
            if self._shadow is not None:
                self._shadow.record(dialect.name, conversation.session.session_id, event.name, text)
        elif not _printed(connection, spoken):
            self._count("not_printed")
            return
        else:
            self._count("said")
        conversation.delivered(said)

    def _conversation(self, dialect: Dialect, event: HookEvent, *, live: bool) -> Conversation:
        return self.conversations.get(
            f"{dialect.name}/{event.conversation}",
            lambda: Conversation(self._open_for(event.conversation, live, event.folder), dialect, live),
        )

    def _sessions(self) -> dict[str, MemorySession]:
        return {held.session.session_id: held.session for held in self.conversations.held().values()}

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1


def open_by_settings(settings: Settings, path: Path | None) -> OpenFor:
    """Sessions as the settings say, read anew for each; while they cannot be read, as they were last."""
    latest = [settings]

    def open_for(session_id: str, live: bool, folder: str) -> MemorySession:
        try:
            latest[0] = load_settings(path)
        except UserError:
            pass
        found = latest[0] if live else shadow_settings(latest[0])
        return open_session(found, session_id=session_id or None, folder=Path(folder or "/"))

    return open_for


def settings_file(configured: str) -> Path | None:
    """The file that `pmem hook install` was given; None: as `load_settings` finds it."""
    if os.environ.get(SETTINGS_VARIABLE) or not configured:
        return None
    path = Path(configured)
    return None if path == default_settings_file() and not path.exists() else path


def main(arguments: list[str]) -> None:
    """Run on an inherited listening socket: file descriptor, its path, seconds of idleness, settings file."""
    descriptor, place, idle_s, configured = arguments
    os.umask(0o077)
    os.chdir("/")
    listener = socket.socket(fileno=int(descriptor))
    run(listener, Path(place), idle_s=float(idle_s), path=settings_file(configured))


def run(listener: socket.socket, place: Path, *, idle_s: float, path: Path | None) -> None:
    """Serve until idle or told to stop; then the socket goes first, and what already waits in it is still served."""
    made = _inode(place)
    try:
        settings = load_settings(path)
        if not settings.enabled:
            return
        daemon = Daemon(open_by_settings(settings, path), shadow=Shadow(settings))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        daemon.serve(listener, idle_s=idle_s, reachable=lambda: _inode(place) == made)
    except KeyboardInterrupt:
        pass
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return
    finally:
        if made is not None and _inode(place) == made:
            place.unlink(missing_ok=True)
    while daemon.accept(listener):
        pass
    daemon.close()


def _inode(place: Path) -> int | None:
    try:
        return place.stat().st_ino
    except OSError:
        return None


def _printed(connection: socket.socket, spoken: dict[str, Any]) -> bool:
    """Send an answer; whether the client says that it printed it."""
    try:
        _send(connection, spoken)
        connection.settimeout(PRINTED_WITHIN_S)
        return connection.recv(1) == PRINTED
    except OSError:
        return False


def _send(connection: socket.socket, value: dict[str, Any]) -> None:
    connection.sendall(json.dumps(value).encode() + b"\n")


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """The first line, and what came after it. Raises OSError when the client stops before."""
    data = b""
    while b"\n" not in data and len(data) < MAX_HEAD_BYTES:
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("ended within its first line")
        data += part
    head, _, rest = data.partition(b"\n")
    return head, rest


def _read_exactly(connection: socket.socket, start: bytes, size: int) -> bytes:
    if not 0 <= size <= MAX_EVENT_BYTES:
        raise ValueError(f"an event of {size} bytes is over the limit of {MAX_EVENT_BYTES}")
    parts, have = [start], len(start)
    while have < size:
        part = connection.recv(1 << 20)
        if not part:
            raise ConnectionError("ended within its event")
        parts.append(part)
        have += len(part)
    return b"".join(parts)
