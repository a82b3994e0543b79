"""What every adapter shares: one live session a conversation, and a guard so that nothing of ours reaches the agent.

An adapter is a thin layer between one agent framework and `MemorySession`. It declares

    transient        a reminder is seen by the next model call only and leaves no trace in the agent's history
    sees_errors      a failing tool call is told apart from a successful one by the framework itself
    sees_compaction  the framework tells when it shortened the agent's context
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from pmem.connect import open_session
from pmem.session import MemorySession
from pmem.settings import Settings, load_settings

MAX_CONVERSATIONS = 256

OpenSession = Callable[[], MemorySession]


class HoldsSession(Protocol):
    """What an adapter keeps of one conversation."""

    @property
    def session(self) -> MemorySession: ...


C = TypeVar("C", bound=HoldsSession)


class Conversations(Generic[C]):
    """One `C` a key, made when first asked for; over `limit` the least recently used is closed. Thread-safe."""

    def __init__(self, *, limit: int = MAX_CONVERSATIONS) -> None:
        self._limit = limit
        self._held: OrderedDict[str, C] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, begin: Callable[[], C]) -> C:
        """The conversation of this key, begun when there is none."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                found = self._held[key] = begin()
            self._held.move_to_end(key)
            surplus = [self._held.popitem(last=False)[1] for _ in range(len(self._held) - self._limit)]
        for conversation in surplus:
            conversation.session.close()
        return found

    def held(self) -> dict[str, C]:
        """A copy by key, most recently used last."""
        with self._lock:
            return dict(self._held)

    def close(self) -> None:
        """Close all sessions and forget them."""
        with self._lock:
            held, self._held = self._held, OrderedDict()
        for conversation in held.values():
            conversation.session.close()


class Guard:
    """`with guard:` around adapter code: what it raises is counted here and never reaches the agent.

    The sessions guard themselves the same way; `MemorySession.num_faults` counts theirs.
    """

    def __init__(self) -> None:
        self.num_faults = 0
        self.faults: deque[Exception] = deque(maxlen=8)

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.num_faults += 1
        self.faults.append(error)
        return True


def session_opener(settings: Settings | None) -> OpenSession:
    """Opens sessions with the settings in force now. Raises UserError at once for settings that cannot work."""
    settings = settings or load_settings()
    return lambda: open_session(settings)
