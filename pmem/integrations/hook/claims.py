"""The same event told twice (a hook registered in two places) is taken once: exactly one of the processes gets the answer.

Keyed by the ids of the tool uses, never by content: two calls may return the same text. An event without ids (a prompt, a start)
counts as told twice when the very same bytes come again within two seconds.
"""

import hashlib
import threading
import time
from collections import OrderedDict

from pmem.integrations.hook.dialects import HookEvent

MAX_CLAIMS = 4_096
WINDOW_S = 2.0


class Claims:
    """Thread-safe."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._lock = threading.Lock()

    def first(self, event: HookEvent, payload: bytes) -> bool:
        """Whether this event was not told before."""
        key: tuple[str, ...] = (event.conversation, event.name, *event.ids)
        lasts = bool(event.ids)
        if not lasts:
            if event.outcomes:
                return True  # a tool result without an id: nothing tells a second call from a second telling
            key = (*key, hashlib.sha256(payload).hexdigest())
        now = time.monotonic()
        with self._lock:
            told = self._seen.get(key)
            if told is not None and (lasts or now - told < WINDOW_S):
                return False
            self._seen[key] = now
            self._seen.move_to_end(key)
            while len(self._seen) > MAX_CLAIMS:
                self._seen.popitem(last=False)
        return True
