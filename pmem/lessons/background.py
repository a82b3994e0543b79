"""Write to the store from one background thread: the host's thread only puts a job in a queue.

Best effort: a full disk, a read-only folder or a damaged file loses jobs, counted in `lost`, and is said to the person once.
The thread and its connection go when nothing came for a while, and come back with the next job.
"""

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable

from pmem.errors import UserError
from pmem.lessons.store import LessonStore, open_store
from pmem.settings import Settings

MAX_WAITING = 1_000
IDLE_S = 10.0
Job = Callable[[LessonStore], object]


class BackgroundWriter:
    """One queue and one thread; the store is opened on that thread, when the first job comes."""

    def __init__(self, settings: Settings, notice: Callable[[str], None] | None = None) -> None:
        self.lost = 0
        self._settings = settings
        self._notice = notice
        self._said: set[str] = set()
        self._queue: queue.Queue[Job | threading.Event] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        _alive.add(self)

    def put(self, job: Job) -> None:
        """Queue a job. Returns at once and never raises; what does not fit is lost and counted."""
        if not self._settings.enabled:
            return
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            self.lost += 1
            return
        self._start()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything queued so far was tried; False when time ran out."""
        if self._process != os.getpid() or self._thread is None:
            return self._queue.empty()
        done = threading.Event()
        try:
            self._queue.put(done, timeout=timeout_s)
        except queue.Full:
            return False
        self._start()
        return done.wait(timeout_s)

    def _start(self) -> None:
        """Have a thread at work. The lock: a thread that leaves and a job that comes see each other."""
        with self._lock:
            if self._thread is None or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="pmem-lessons", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        store: LessonStore | None = None
        while (job := self._next()) is not None:
            if isinstance(job, threading.Event):
                job.set()
                continue
            try:
                store = store or open_store(self._settings)
                job(store)
            except UserError as error:
                self._failed(str(error))
            except Exception as error:  # the boundary to the host: memory never breaks the agent
                self._failed(f"a lesson could not be kept: {type(error).__name__}: {error}")
        if store is not None:
            store.close()

    def _next(self) -> Job | threading.Event | None:
        """The next job; None when it is time to leave."""
        while True:
            try:
                return self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return None

    def _failed(self, sentence: str) -> None:
        self.lost += 1
        if self._notice is None or sentence in self._said or len(self._said) >= 8:
            return
        self._said.add(sentence)
        try:
            self._notice(sentence)
        except Exception:
            self.lost += 0  # a notice that fails is the host's affair


_alive: "weakref.WeakSet[BackgroundWriter]" = weakref.WeakSet()


def flush_all(timeout_s: float = 2.0) -> bool:
    """Wait until everything that any writer of this process was given was tried; False when time ran out."""
    flushed = [writer.flush(timeout_s) for writer in list(_alive)]
    return all(flushed)


atexit.register(flush_all)
