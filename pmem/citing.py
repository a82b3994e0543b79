"""From a step's result to what may be said now: the bank may have moved on while the model was thinking.

Entries the answer saved got their ids on a copy of the bank; on the live bank they may have others, so the text is rewritten to
the ids that really stand there. Citations of entries that are gone lose their authority.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pmem.outcomes import Decision, Reason
from pmem.snapshot import DETERMINISTIC_TRIGGERS, BankState, Snapshot

if TYPE_CHECKING:
    from pmem.policy import StepResult

_ID = re.compile(r"tm-[kp]-\d+")


@dataclass(frozen=True, slots=True)
class Settled:
    """Final outcome of a step, with the reminder as it will be shown."""

    decision: Decision
    reason: Reason
    text: str = ""
    cited: tuple[str, ...] = ()


def settle(snapshot: Snapshot, result: "StepResult", before: BankState, after: BankState) -> Settled:
    """Settle the ids of `result` against the live bank. `before` and `after`: live bank around the writes of this step."""
    if result.decision != "injected" or not result.reminder:
        return Settled(result.decision, result.reason, cited=tuple(result.cited))
    living = {entry.id: entry for entry in after.entries}
    renamed = _renamed(snapshot, result, before, after)
    text = _ID.sub(lambda match: renamed.get(match.group(), match.group()), result.reminder)
    cited = tuple(dict.fromkeys(new for old in result.cited if (new := renamed.get(old, old)) in living))
    if not cited and result.cited and not set(snapshot.triggers) & DETERMINISTIC_TRIGGERS:
        return Settled("gated", "uncited")
    return Settled("injected", "intervened", text, cited)


def _renamed(snapshot: Snapshot, result: "StepResult", before: BankState, after: BankState) -> dict[str, str]:
    """Ids the step's copy of the bank gave to new entries -> ids of the same entries in the live bank."""
    if before.next_number == snapshot.bank.next_number:
        return {}
    known = {entry.id for entry in snapshot.bank.entries}
    by_content = {(entry.kind, entry.content.casefold()): entry.id for entry in after.entries}
    new = [entry for entry in result.bank_after.entries if entry.id not in known]
    return {entry.id: by_content.get((entry.kind, entry.content.casefold()), "tm-gone") for entry in new}
