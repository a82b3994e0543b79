"""The one step a session may have under way: who started it, for what, how old it is, and the daemon thread it runs on."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pmem.account import Account
from pmem.outcomes import Reason
from pmem.snapshot import Snapshot
from pmem.step import StepResult

if TYPE_CHECKING:
    from pmem.policy import MemoryPolicy

GRACE_MS = 1_000
"""How long past its deadline a step may still answer before the session stops waiting for it."""


@dataclass(eq=False, slots=True)
class InFlight:
    """A launched step. `account`: the books of the session that started it. `cancelled`: why its content will be discarded."""

    account: Account
    snapshot: Snapshot
    turn: int
    compactions: int
    started: float = field(default_factory=time.monotonic)
    cancelled: Reason | None = None

    def age_ms(self) -> float:
        return (time.monotonic() - self.started) * 1000

    def is_overdue(self, timeout_ms: int) -> bool:
        return self.age_ms() > timeout_ms + GRACE_MS


Land = Callable[[InFlight, StepResult | None, BaseException | None], None]


def run_detached(policy: "MemoryPolicy", step: InFlight, land: Land) -> threading.Thread:
    """Run the step on a daemon thread; `land` is called there with its result or its error. Never keeps a process alive."""

    def run() -> None:
        try:
            result = policy.step(step.snapshot)
        except Exception as error:
            land(step, None, error)
        else:
            land(step, result, None)

    thread = threading.Thread(target=run, name="pmem-step", daemon=True)
    thread.start()
    return thread
