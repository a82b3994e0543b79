"""A host that drives a session as an agent would, with a clock that tests move."""

import time
from collections.abc import Callable
from typing import Any

from pmem.delivery import Delivered, Reminder
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.telemetry import Ledger

FAIL = "make: *** No rule to make target 'all'.  Stop."


class Host:
    """One agent session and its books."""

    def __init__(self, policy: Any = None, *, ledger: Any = None, **settings: Any) -> None:
        self.now = 1_000.0
        self.ledger = ledger or Ledger()
        self.delivered: list[Delivered] = []
        self.num_calls = 0
        self.session = MemorySession(
            Settings(**{"cadence_tool_calls": 1, **settings}),
            policy=policy,
            clock=lambda: self.now,
            telemetry=self.ledger,
            on_delivered=self.delivered.append,
        )

    def ask(self, text: str = "Build the report as JSON.") -> None:
        self.session.on_user_message(text)
        self.session.on_turn_start()

    def run(self, command: str = "ls", text: str = "a b", *, error: bool = False, **more: Any) -> str | None:
        self.num_calls += 1
        self.now += 1
        return self.session.on_tool_result(tool="bash", args={"command": command}, text=text, is_error=error, **more)

    def fail(self, command: str = "make all") -> str | None:
        return self.run(command, FAIL, error=True)

    def boundary(self) -> bool:
        self.session.on_batch_end()
        return self.session.evaluate()

    def step(self) -> None:
        """One tool and a whole memory step."""
        self.run(f"echo {self.num_calls}")
        assert self.boundary()
        self.settled()

    def settled(self) -> None:
        wait_for(lambda: not self.session.inspect()["in_flight"])

    def call_model(self, *, fails: bool = False) -> Reminder | None:
        """One model call of the host: peek, and commit when it returned."""
        reminder = self.session.peek()
        if reminder is not None and not fails:
            self.session.commit(reminder)
        return reminder

    @property
    def outcomes(self) -> list[str]:
        return [f"{row.decision}/{row.reason}" for row in self.ledger.steps]

    @property
    def last(self) -> str:
        last = self.session.inspect()["last_decision"]
        return f"{last['decision']}/{last['reason']}" if last else "none"


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.002)
