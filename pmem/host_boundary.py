"""The boundary to the host agent: the one place that catches everything, because memory must never break the agent.

A method of a session wrapped by `host_call(default)` does nothing when memory is disabled, runs under the session's lock, and
gives `default` for whatever is raised; what was caught is counted by the session.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from pmem.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


class Guarded(Protocol):
    """What the wrapper needs of a session."""

    settings: Settings
    lock: threading.RLock

    def fault(self, error: Exception) -> None: ...


def host_call(default: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a method that hosts call."""

    def wrap(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            session = cast(Guarded, args[0])
            if not session.settings.enabled:
                return cast(R, default)
            try:
                with session.lock:
                    return method(*args, **kwargs)
            except Exception as error:
                session.fault(error)
                return cast(R, default)

        return call

    return wrap
