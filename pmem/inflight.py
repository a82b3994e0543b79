"""The one step a session may have under way: for what, since when, and the daemon thread it runs on."""

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from pmem.abort import Abort
from pmem.citing import Settled
from pmem.outcomes import Reason
from pmem.plane import Moment, Plane
from pmem.snapshot import Snapshot
from pmem.step import StepResult

if TYPE_CHECKING:
    from pmem.policy import MemoryPolicy

GRACE_MS = 1_000
"""How long past its deadline a step may still answer before the session stops waiting for it."""


@dataclass(eq=False, slots=True)
class InFlight:
    """A launched step of one plane. It must land under the session's lock."""

    plane: Plane
    snapshot: Snapshot
    taken: Moment
    started: float = field(default_factory=time.monotonic)
    cancelled: Reason | None = None
    """Why its content will be discarded."""
    abort: Abort = field(default_factory=Abort)
    given_up: bool = False
    """Past its deadline: the row is written, what it still answers is only billed."""

    def cancel(self, reason: Reason) -> None:
        """Its content will be discarded; a request under way is cut, and what it cost is still booked."""
        self.cancelled = reason
        self.abort.set()

    def age_ms(self) -> float:
        return (time.monotonic() - self.started) * 1000

    def give_up_when_overdue(self, timeout_ms: int) -> bool:
        """Whether the deadline has passed; then the row is written and the slot may be taken by the next step."""
        if self.age_ms() <= timeout_ms + GRACE_MS:
            return False
        self.given_up = True
        self.plane.account.failed(self.snapshot.triggers, "timeout", "deadline", self.age_ms())
        return True

    def land(self, result: StepResult | None) -> None:
        """The step ended; `result` is None when it raised. Late content is discarded, what it cost is still booked."""
        plane, triggers = self.plane, self.snapshot.triggers
        if self.given_up:
            if result is not None:
                plane.account.bill(result, "timeout/deadline")
        elif self.cancelled is not None and result is not None:
            plane.account.step(triggers, plane.tier, result, Settled("cancelled", self.cancelled))
        elif self.cancelled is not None:
            plane.account.failed(triggers, "cancelled", self.cancelled, self.age_ms())
        elif result is None:
            plane.account.failed(triggers, "error", "client_error", self.age_ms())
        else:
            plane.settle(self.snapshot, result, self.taken)


class Abortable(Protocol):
    """A policy that can be told to stop in the middle of a step (`takes_abort`)."""

    def step(self, snapshot: Snapshot, *, abort: Abort) -> StepResult: ...


Land = Callable[[InFlight, StepResult | None, Exception | None], None]


def run_detached(policy: "MemoryPolicy", step: InFlight, land: Land) -> None:
    """Run the step on a daemon thread; `land` is called there with its result or its error. Never keeps a process alive.

    A policy with `takes_abort` is told when the step is given up, as `step(snapshot, abort=…)`.
    """
    ask: Callable[[Snapshot], StepResult] = policy.step
    if getattr(policy, "takes_abort", False):
        ask = functools.partial(cast(Abortable, policy).step, abort=step.abort)

    def run() -> None:
        try:
            result = ask(step.snapshot)
        except Exception as error:
            land(step, None, error)
        else:
            land(step, result, None)

    threading.Thread(target=run, name="pmem-step", daemon=True).start()
