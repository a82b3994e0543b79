"""Append lines to a file from one background thread: the host's thread only puts a string in a queue.

Best effort: a full disk, a read-only folder or a stuck lock loses lines, counted in `lost`, and nothing else. Writers of several
processes append whole lines under a file lock; the holder rotates `name` to `name.1`. A line that was cut off is closed first.
"""

import atexit
import os
import queue
import threading
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # no file locks on this platform; whole-line appends must do
    fcntl = None  # type: ignore[assignment]

MAX_BYTES = 1 << 20
MAX_WAITING = 10_000
LOCK_PATIENCE_S = 2.0


class Journal:
    """One JSONL file. `max_bytes`: size at which it is rotated, None for never."""

    def __init__(self, path: Path, *, max_bytes: int | None = MAX_BYTES) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.lost = 0

    def append(self, line: str) -> None:
        """Queue one line (without its newline). Returns at once; touches no file on this thread."""
        if not _writer.put(self, line):
            self.lost += 1

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything queued so far was tried; False when time ran out."""
        return _writer.flush(timeout_s)

    def write(self, lines: list[str]) -> None:
        """Append lines now, on this thread. Errors are counted, never raised."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as held:
                if held and self.max_bytes is not None:
                    _rotate(self.path, self.max_bytes)
                _append(self.path, "".join(line + "\n" for line in lines).encode("utf-8", "replace"))
        except OSError:
            self.lost += len(lines)


class _Writer:
    """The one thread of this process that writes journals; started with the first line."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Journal, str] | threading.Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def put(self, journal: Journal, line: str) -> bool:
        if self._queue.qsize() >= MAX_WAITING:
            return False
        self._queue.put((journal, line))
        if self._thread is None:
            self._start()
        return True

    def flush(self, timeout_s: float) -> bool:
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout_s)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pmem-journal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            items = [self._queue.get()]
            while not self._queue.empty() and len(items) < 256:
                items.append(self._queue.get())
            batches: dict[Journal, list[str]] = {}
            waiting = []
            for item in items:
                if isinstance(item, threading.Event):
                    waiting.append(item)
                else:
                    batches.setdefault(item[0], []).append(item[1])
            for journal, lines in batches.items():
                journal.write(lines)
            for done in waiting:
                done.set()


class _locked:
    """Hold `<path>.lock`; gives False when another holder did not let go in time (then only whole lines are appended)."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._handle = -1

    def __enter__(self) -> bool:
        if fcntl is None:
            return True
        self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        until = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)


def _rotate(path: Path, max_bytes: int) -> None:
    try:
        if path.stat().st_size > max_bytes:
            path.replace(path.with_name(path.name + ".1"))
    except FileNotFoundError:
        pass


def _append(path: Path, data: bytes) -> None:
    """Append in one write. A line cut off by a crash is closed first; a write cut off by a full disk is taken back."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data
        written = os.write(handle, data)
        if written < len(data):
            os.ftruncate(handle, size)
            raise OSError(28, "no space left on device")
    finally:
        os.close(handle)


_writer = _Writer()


def _forget_thread() -> None:
    """A forked child has the queue's copy and no thread."""
    global _writer
    _writer = _Writer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)
atexit.register(lambda: _writer.flush(1.0))
