"""A deterministic model: speaks where the newest plan names another path than the bank, cites the entry, never fails."""

import re
from collections.abc import Sequence

from pmem.backend import Completion, DecisionRead, Request
from pmem.envelope import OPERATIONS_CLOSE, OPERATIONS_OPEN, SPEAK_CLOSE

ENTRY = re.compile(r"- \[(tm-k-\d+)\] knowledge: (.*)")


class ScriptedBackend:
    """Implements `pmem.backend.Backend`. `calls` counts batches, so a test can tell a cached run from an asked one."""

    route = "scripted"
    model = "scripted"

    def __init__(self, model_hash: str = "cd" * 32, prob_plan: float = 0.9, label_mass: float = 0.99) -> None:
        self.model_hash: str | None = model_hash
        self.prob_plan = prob_plan
        self.label_mass = label_mass
        self.calls = 0

    def complete(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[Completion]:
        self.calls += 1
        return [self._answer(request) for request in requests]

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        self.calls += 1
        return [
            DecisionRead(prob_speak=self.prob_plan if wants(request) else 0.02, label_mass=self.label_mass, tokens_in=100)
            for request in requests
        ]

    def _answer(self, request: Request) -> Completion:
        if not request.prefix:
            return Completion(text=f"{OPERATIONS_OPEN}[]{OPERATIONS_CLOSE}", finish_reason="stop", tokens_in=100, tokens_out=5)
        found = ENTRY.search(request.messages[-1]["content"])
        text = f"{found.group(2)} [{found.group(1)}]" if found else "nothing"
        return Completion(text=text + SPEAK_CLOSE, finish_reason="stop", tokens_in=110, tokens_out=12)


def wants(request: Request) -> bool:
    """The newest plan differs from what the bank says."""
    text = request.messages[-1]["content"]
    found = ENTRY.search(text)
    return bool(found) and "plan-off" in text.splitlines()[-1]
