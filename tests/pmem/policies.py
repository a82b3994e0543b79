"""Policies that play back what a test wrote: real objects with the one method, no imitation of ours."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from pmem.envelope import Operation, citations
from pmem.outcomes import DECISION_OF, Reason
from pmem.snapshot import Snapshot
from pmem.step import StepResult


def says(text: str, *, operations: Iterable[Operation] = (), tokens: int = 100) -> Callable[[Snapshot], StepResult]:
    """An answer that speaks."""

    def answer(snapshot: Snapshot) -> StepResult:
        return replace(
            ends("intervened", tokens=tokens)(snapshot), reminder=text, cited=citations(text), operations=tuple(operations)
        )

    return answer


def ends(reason: Reason, *, tokens: int = 100, operations: Iterable[Operation] = ()) -> Callable[[Snapshot], StepResult]:
    """An answer that ends for `reason`."""

    def answer(snapshot: Snapshot) -> StepResult:
        return StepResult(
            decision=DECISION_OF[reason], reason=reason, bank_after=snapshot.bank, operations=tuple(operations), tokens_in=tokens,
            tokens_out=10, latency_ms=5.0, route="test", model="double", prob_raw=0.5, label_mass=1.0,
        )  # fmt: skip

    return answer


class PlayedPolicy:
    """Answers in order, then silence. `gate`: steps wait for it, so that a test decides when a step lands."""

    name = "played"

    def __init__(self, *answers: Callable[[Snapshot], StepResult] | Exception, gate: threading.Event | None = None) -> None:
        self._answers = list(answers)
        self._gate = gate
        self.seen: list[Snapshot] = []
        self.started = threading.Event()

    def step(self, snapshot: Snapshot) -> StepResult:
        self.seen.append(snapshot)
        answer = self._answers.pop(0) if self._answers else ends("model_silent")
        self.started.set()
        if self._gate is not None:
            assert self._gate.wait(10)
        if isinstance(answer, Exception):
            raise answer
        return answer(snapshot)
