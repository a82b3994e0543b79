"""From a step's result to what may be said now: the session may have moved on while the model was thinking.

Entries the answer saved got their ids on a copy of the bank; on the live bank they may have others, so the text is rewritten to
the ids that really stand there. Then the two gates that look at the present, citation and resolved failure, are asked once more.
"""

import re
from dataclasses import dataclass, replace

from pmem.gates import RUNTIME, GateProfile, apply_gates, valid_citations
from pmem.outcomes import Decision, Reason
from pmem.snapshot import BankState, Snapshot, Step
from pmem.step import StepResult

_ID = re.compile(r"tm-[kp]-\d+")


@dataclass(frozen=True, slots=True)
class Settled:
    """Final outcome of a step, with the reminder as it will be shown."""

    decision: Decision
    reason: Reason
    text: str = ""
    cited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Present:
    """The session when the answer arrived: bank before and after the step's own writes, and the window."""

    before: BankState
    after: BankState
    window: tuple[Step, ...]


def settle(snapshot: Snapshot, result: StepResult, present: Present, profile: GateProfile = RUNTIME) -> Settled:
    """What becomes of `result` in the `present`. `profile`: the gates of the policy that made it."""
    if result.decision != "injected" or not result.reminder:
        return Settled(result.decision, result.reason, cited=result.cited)
    if present.before == snapshot.bank and present.window == snapshot.window:
        return Settled("injected", "intervened", result.reminder, result.cited)
    renamed = _renamed(snapshot, result, present)
    text = _ID.sub(lambda match: renamed.get(match.group(), match.group()), result.reminder)
    late = replace(profile, hygiene=False, budget=False, suppression=False, duplicate=False, threshold=False)
    now = snapshot.model_copy(update={"window": present.window})
    decision, reason = apply_gates(text, snapshot=now, bank_after=present.after, profile=late)
    return Settled(decision, reason, text, valid_citations(text, present.after))


def _renamed(snapshot: Snapshot, result: StepResult, present: Present) -> dict[str, str]:
    """Ids that the step's copy of the bank gave to new entries -> ids of the same entries in the live bank."""
    known = {entry.id for entry in snapshot.bank.entries}
    by_content = {(entry.kind, entry.content.casefold()): entry.id for entry in present.after.entries}
    new = [entry for entry in result.bank_after.entries if entry.id not in known]
    return {entry.id: by_content.get((entry.kind, entry.content.casefold()), "gone") for entry in new}
