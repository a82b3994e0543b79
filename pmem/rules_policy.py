"""The rules tier as an arm: what it said at a recorded boundary, for evaluation beside the model arms."""

from collections.abc import Iterable
from dataclasses import replace

from pmem.gates import rules_spoke
from pmem.snapshot import Snapshot
from pmem.step import StepResult


class RulesPolicy:
    """The rules tier seen from a snapshot: it spoke where the repeated failure stands among the triggers (docs/design/runtime.md 6).

    The runtime annotates the failing result itself (`pmem.rules`); this arm says the same thing about a recorded boundary.
    """

    name = "rules"

    def step(self, snapshot: Snapshot) -> StepResult:
        """Cite the entry of the newest failing step."""
        quiet = StepResult(decision="silent", reason="model_silent", bank_after=snapshot.bank)
        failing = next((step for step in reversed(snapshot.window) if step.outcome == "error"), None)
        if not rules_spoke(snapshot) or failing is None:
            return quiet
        kept = (entry for entry in snapshot.bank.entries if entry.kind == "procedural" and entry.content.startswith(failing.call))
        entry = max(kept, key=lambda entry: entry.touched, default=None)
        if entry is None:
            return quiet
        text = f"{entry.content} [{entry.id}]"
        return replace(quiet, decision="injected", reason="intervened", reminder=text, cited=(entry.id,))

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """One result a snapshot."""
        return [self.step(snapshot) for snapshot in snapshots]
