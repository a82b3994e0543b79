"""How a session tells a step under way that nobody waits for its answer any more: the request is cut and its place set free.

abort = Abort()
abort.then(lambda: backend.abort_step(step_id))   # on whoever runs the step
abort.set()                                       # on the host's thread: returns at once, the cutting is done on another
"""

import threading
from collections.abc import Callable


class Abort:
    """Set once, never unset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] | None = []

    @property
    def is_set(self) -> bool:
        """Whether the step was given up."""
        return self._calls is None

    def then(self, call: Callable[[], None]) -> None:
        """Run `call` when it is set: later, or now when it already is."""
        with self._lock:
            if self._calls is not None:
                self._calls.append(call)
                return
        call()

    def set(self) -> None:
        """Give the step up."""
        with self._lock:
            calls, self._calls = self._calls, None
        if calls:
            threading.Thread(target=_run, args=(calls,), name="pmem-abort", daemon=True).start()


def _run(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
