"""Who may use the engine now: at most `limit` slots, no queue, one slot a memory step, a fair share a client.

Pure and synchronous: asking and taking are one call, so two requests can never both see the last free slot. A step (client and
step id) keeps its slot between its at most three requests; the slot falls free when the client says done, after the third
request, or when nothing came for a while: most steps end silent after the decision, so that while is shorter there.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MAX_REQUESTS = 3
"""List, decision, reminder (docs/design/files.md, Wire)."""

Reason = Literal["full", "client_share", "step_busy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotLimits:
    """`client_share`: part of the slots one client may hold while another was seen within `share_window_s`.

    `hold_idle_s` and `hold_after_decision_s`: how long a step keeps its slot between two requests; above the round trip.
    """

    limit: int = 2
    client_share: float = 0.5
    share_window_s: float = 10.0
    hold_idle_s: float = 0.25
    hold_after_decision_s: float = 0.05

    def __post_init__(self) -> None:
        if self.limit < 1 or not 0 < self.client_share <= 1:
            raise ValueError(f"limit must be at least 1 and client_share in (0, 1], not {self.limit} and {self.client_share}")

    @property
    def per_client(self) -> int:
        return max(1, math.floor(self.limit * self.client_share))


@dataclass(slots=True, eq=False)
class Hold:
    """One or more slots held by one client; `step` None: for a single request."""

    client: str
    step: str | None
    weight: int
    num_requests: int = 1
    running: bool = True
    idle_until: float = 0.0


class Slots:
    """The slots of one engine. `clock` gives seconds; not safe for several threads (an ASGI app has one loop)."""

    def __init__(self, limits: SlotLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.peak = 0
        self._clock = clock
        self._holds: set[Hold] = set()
        self._steps: dict[tuple[str, str], Hold] = {}
        self._seen: dict[str, float] = {}

    @property
    def in_flight(self) -> int:
        """Slots held now, the idle holds of steps under way included."""
        self._expire()
        return sum(hold.weight for hold in self._holds)

    def would_refuse(self, client: str, step: str | None, weight: int = 1) -> Reason | None:
        """Why a request would be refused now, or None. Also notes that `client` was here, which turns shares on for others."""
        self._expire()
        now = self._clock()
        self._seen[client] = now
        hold = self._steps.get((client, step)) if step else None
        if hold is not None:
            return "step_busy" if hold.running else None
        if self.in_flight + weight > self.limits.limit:
            return "full"
        held = sum(hold.weight for hold in self._holds if hold.client == client)
        if held + weight > self.limits.per_client and self._others_seen(client, now):
            return "client_share"
        return None

    def take(self, client: str, step: str | None = None, weight: int = 1) -> Hold | Reason:
        """Take `weight` slots, or go on with those of the step; a reason when refused."""
        reason = self.would_refuse(client, step, weight)
        if reason is not None:
            return reason
        hold = self._steps.get((client, step)) if step else None
        if hold is not None:
            hold.running, hold.num_requests = True, hold.num_requests + 1
            return hold
        hold = Hold(client, step, weight)
        self._holds.add(hold)
        if step:
            self._steps[client, step] = hold
        self.peak = max(self.peak, self.in_flight)
        return hold

    def release(self, hold: Hold, *, last: bool = False, after_decision: bool = False) -> None:
        """A request of `hold` has really ended. Its slot stays with its step for a while unless it was the last one."""
        wait_s = self.limits.hold_after_decision_s if after_decision else self.limits.hold_idle_s
        hold.running, hold.idle_until = False, self._clock() + wait_s
        if last or hold.step is None or hold.num_requests >= MAX_REQUESTS:
            self._free(hold)

    def done(self, client: str, step: str) -> bool:
        """The client says that the step needs no more requests; False when it held nothing."""
        hold = self._steps.get((client, step))
        if hold is None or hold.running:
            return False
        self._free(hold)
        return True

    def _others_seen(self, client: str, now: float) -> bool:
        horizon = now - self.limits.share_window_s
        self._seen = {name: at for name, at in self._seen.items() if at >= horizon}
        return any(name != client for name in self._seen)

    def _expire(self) -> None:
        now = self._clock()
        for hold in [hold for hold in self._holds if not hold.running and hold.idle_until <= now]:
            self._free(hold)

    def _free(self, hold: Hold) -> None:
        self._holds.discard(hold)
        if hold.step and self._steps.get((hold.client, hold.step)) is hold:
            del self._steps[hold.client, hold.step]
