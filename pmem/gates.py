"""What may be said: gates in a fixed order, the first that refuses names the reason (docs/design/runtime.md section 3).

Bank writes of the same step stay, whatever a gate says. Gates belong to the arm: `RUNTIME` is the product's profile, an ablation
arm states with `dataclasses.replace` or `GateProfile(citation=False)` which ones it lifts.
"""

from dataclasses import dataclass

from pmem.envelope import citations
from pmem.hygiene import slip_of
from pmem.outcomes import DECISION_OF, Decision, Reason
from pmem.snapshot import DETERMINISTIC_TRIGGERS, BankState, Entry, Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class GateProfile:
    """Which gates stand; all of them in the product."""

    hygiene: bool = True
    budget: bool = True
    suppression: bool = True
    duplicate: bool = True
    threshold: bool = True
    citation: bool = True
    resolved_failure: bool = True
    noted: bool = True
    """A policy with plan notes says nothing but an entry that its note names."""
    reminder_max_chars: int = 500
    """A longer reminder is dropped whole; a cut would lose its citation."""


RUNTIME = GateProfile()


def apply_gates(
    reminder: str | None,
    *,
    snapshot: Snapshot,
    bank_after: BankState,
    prompt: str = "",
    speaks: bool | None = None,
    silent_reason: Reason | None = None,
    reminder_raw: str | None = None,
    profile: GateProfile = RUNTIME,
) -> tuple[Decision, Reason]:
    """Decide about one reminder.

    `bank_after`: the bank with this step's writes. `prompt`: text the model was shown (its user part). `speaks`: verdict of the
    calibrated threshold, None where no probability was read. `silent_reason`: why there is no reminder, when the parser knows.
    `reminder_raw`: the reminder as the model wrote it; hygiene looks there, for cleaning hides stop tokens.
    """
    if not reminder:
        return _outcome(silent_reason or "model_silent")
    if profile.hygiene and slip_of(reminder_raw or reminder, prompt):
        return _outcome("invalid_reminder")
    if profile.budget and len(reminder) > profile.reminder_max_chars:
        return _outcome("over_budget")
    if profile.suppression and rules_spoke(snapshot):
        return _outcome("suppressed")
    if profile.duplicate and snapshot.last_reminder and said(reminder) == said(snapshot.last_reminder):
        return _outcome("duplicate_reminder")
    if profile.threshold and speaks is False:
        return _outcome("below_threshold")
    cited = set(citations(reminder))
    if profile.citation and not is_deterministic(snapshot) and not cited & set(authorities(snapshot, bank_after)):
        return _outcome("uncited")
    if profile.resolved_failure and _only_resolved_failures(cited, snapshot, bank_after):
        return _outcome("resolved_failure")
    return _outcome("intervened")


def is_deterministic(snapshot: Snapshot) -> bool:
    """Whether a reminder may stand uncited here: any trigger besides the interval."""
    return any(trigger in DETERMINISTIC_TRIGGERS for trigger in snapshot.triggers)


def rules_spoke(snapshot: Snapshot) -> bool:
    """The rules tier annotated a result since the last boundary: its trigger stands in the snapshot, nothing more is said."""
    return "repeated_failure" in snapshot.triggers


def authorities(snapshot: Snapshot, bank_after: BankState) -> tuple[str, ...]:
    """Ids whose citation gives the right to speak at this boundary.

    Under a deterministic trigger every knowledge or procedural entry that now exists. On an interval only one that existed
    before with the same content: a model must not buy authority by writing itself a note, nor by overwriting an old one.
    """
    citable = [entry for entry in bank_after.entries if entry.kind in {"knowledge", "procedural"}]
    if is_deterministic(snapshot):
        return tuple(entry.id for entry in citable)
    before = {entry.id: entry.content.casefold() for entry in snapshot.bank.entries}
    return tuple(entry.id for entry in citable if before.get(entry.id) == entry.content.casefold())


def valid_citations(reminder: str, bank: BankState) -> tuple[str, ...]:
    """Cited ids that name a current knowledge or procedural entry, in order of appearance."""
    citable = {entry.id for entry in bank.entries if entry.kind in {"knowledge", "procedural"}}
    return tuple(entry_id for entry_id in citations(reminder) if entry_id in citable)


def said(reminder: str) -> str:
    """A reminder as the duplicate gate compares it: whitespace collapsed, without the `Memory:` label."""
    return " ".join(reminder.split()).removeprefix("Memory:").strip()


def _only_resolved_failures(cited: set[str], snapshot: Snapshot, bank: BankState) -> bool:
    """Whether procedural entries are cited and each is a failure whose call has succeeded since, as far as the window shows."""
    failures = [entry for entry in bank.entries if entry.id in cited and entry.kind == "procedural"]
    return bool(failures) and all(_is_resolved(entry, snapshot) for entry in failures)


def _is_resolved(entry: Entry, snapshot: Snapshot) -> bool:
    content = entry.content.casefold()
    for step in reversed(snapshot.window):
        call = " ".join(step.call.split()).casefold()
        if call and (content == call or content.startswith((call + " ", call + ":"))):
            return step.outcome == "ok"
    return False


def _outcome(reason: Reason) -> tuple[Decision, Reason]:
    return DECISION_OF[reason], reason
