"""One memory step: what it gives (`StepResult`), and the same step while it is being made (`Draft`).

The order inside a step is fixed: list of writes -> bank edited -> decision on the edited bank -> reminder -> gates.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from pmem.backend import Completion, DecisionRead
from pmem.bank import Bank, BankDelta
from pmem.envelope import (
    MAX_OPERATIONS,
    OPERATIONS_CLOSE,
    OPERATIONS_OPEN,
    SPEAK,
    Envelope,
    Malformed,
    Operation,
    parse_envelope,
    render_operations,
    resolve,
)
from pmem.gates import GateProfile, apply_gates, valid_citations
from pmem.outcomes import DECISION_OF, Decision, Reason
from pmem.redaction import redact
from pmem.snapshot import BankState, Snapshot

MIN_LABEL_MASS = 0.95
STATUS_OPEN = '{"op":"update_status"'
"""Where a model stops that need not write its status: the plan note stands there."""


def no_change() -> BankDelta:
    """The delta of a step that wrote nothing."""
    return {kind: {"added": 0, "updated": 0, "deleted": 0} for kind in ("status", "knowledge", "procedural")}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one policy made of one snapshot. `reminder` is what the policy wrote; it is said only when `decision` is `injected`.

    `operations`, `delta` and `bank_after` stay whatever a gate refused. `prob_raw` and `label_mass` are None where no probability
    was read. `earlier`: attempts on another route that came before this one; each is booked for itself.
    """

    decision: Decision
    reason: Reason
    bank_after: BankState
    operations: tuple[Operation, ...] = ()
    dropped: int = 0
    delta: BankDelta = field(default_factory=no_change)
    reminder: str | None = None
    cited: tuple[str, ...] = ()
    list_text: str = ""
    prob_raw: float | None = None
    prob_calibrated: float | None = None
    label_mass: float | None = None
    threshold: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    latency_ms: float = 0.0
    route: str | None = None
    model: str | None = None
    earlier: tuple["StepResult", ...] = ()

    @property
    def speaks(self) -> bool:
        """Whether the agent gets to read something."""
        return self.decision == "injected"


@dataclass(slots=True)
class Draft:
    """A step in the making. `outcome` is None until something has settled how it ends."""

    snapshot: Snapshot
    messages: tuple[dict[str, str], ...]
    step_id: str
    result: StepResult
    read: DecisionRead | None = None
    speaks: bool | None = None
    silent_reason: Reason | None = None
    reminder_raw: str | None = None
    settled: bool = False
    asked_reminder: bool = False
    temperature: float = 0.0
    seed: int | None = None

    @property
    def bank_after(self) -> BankState:
        """The bank with this step's writes, as far as they are known."""
        return self.result.bank_after

    @property
    def decision_prefix(self) -> str:
        """The assistant's text up to the place where it decides."""
        return self.result.list_text + "\n"

    def book(self, answer: Completion | DecisionRead) -> None:
        """Count the cost of one request on this step."""
        cached = answer.cached_tokens if isinstance(answer, Completion) else 0
        written = answer.tokens_out if isinstance(answer, Completion) else 0
        self._update(
            tokens_in=self.result.tokens_in + answer.tokens_in,
            tokens_out=self.result.tokens_out + written,
            tokens_cached=self.result.tokens_cached + cached,
            latency_ms=self.result.latency_ms + answer.latency_ms,
            model=answer.model or self.result.model,
        )

    def book_cut(self, tokens_in: int) -> None:
        """Count what a request that we cut has probably cost; 0 for every other fault."""
        self._update(tokens_in=self.result.tokens_in + tokens_in)

    def take_answer(self, completion: Completion, note: Operation | None = None) -> None:
        """The first text of the step: the list alone, or the whole two lines. Writes are applied to a copy of the bank.

        `note` takes the place of the status that the model has written, or had begun to.
        """
        self.book(completion)
        text = completion.text if note is None else closed_before_status(completion.text)
        envelope = parse_envelope(text, finish_reason=completion.finish_reason)
        if isinstance(envelope, Malformed):
            self.settle(cast(Reason, envelope.reason))
            return
        if note is not None:
            envelope = _ended_by(note, envelope)
        resolved = resolve(envelope, self.snapshot.bank)
        operations = tuple(map(_redacted, resolved.operations))
        bank = Bank.from_state(self.snapshot.bank, clock=_one_later(self.snapshot.bank))
        delta = bank.apply(operations)
        self._take_silence(resolved.reason)
        self._update(
            operations=operations,
            dropped=resolved.dropped,
            delta=delta,
            bank_after=bank.state(),
            list_text=_list_text(text, envelope),
            reminder=_clean(resolved.reminder),
        )
        self.reminder_raw = resolved.reminder_raw

    def list_ended_by(self, note: Operation) -> str:
        """The list of this step with another note at its end."""
        return render_operations((*(operation for operation in self.result.operations if operation.op != note.op), note))

    def take_read(self, read: DecisionRead, min_label_mass: float = MIN_LABEL_MASS) -> None:
        """The probability of speaking. Too little mass on the two answers is a malformed step; its writes stay."""
        self.book(read)
        self.read = read
        self._update(prob_raw=read.prob_speak, label_mass=min(read.label_mass, 1.0))
        if read.label_mass < min_label_mass:
            self.settle("low_label_mass")

    def take_reminder(self, completion: Completion) -> None:
        """The text after the opening tag, read by the one parser."""
        self.book(completion)
        text = f"{self.decision_prefix}{SPEAK}{completion.text}"
        envelope = parse_envelope(text, finish_reason=completion.finish_reason)
        if isinstance(envelope, Malformed):
            self.silent_reason = "reminder_cut_off"
            return
        resolved = resolve(envelope, self.snapshot.bank)
        self._take_silence(resolved.reason)
        self.reminder_raw = resolved.reminder_raw
        self._update(reminder=_clean(resolved.reminder))

    def pass_gates(self, profile: GateProfile) -> None:
        """The last word, for a step nothing has settled yet."""
        _, reason = apply_gates(
            self.result.reminder,
            snapshot=self.snapshot,
            bank_after=self.bank_after,
            prompt=self.messages[-1]["content"],
            speaks=self.speaks,
            silent_reason=self.silent_reason,
            reminder_raw=self.reminder_raw,
            profile=profile,
        )
        if self.result.reminder:
            self._update(cited=valid_citations(self.result.reminder, self.bank_after))
        self.settle(reason)

    def settle(self, reason: Reason) -> None:
        """End the step for `reason`."""
        self._update(decision=DECISION_OF[reason], reason=reason)
        self.settled = True

    def discard(self, reason: Reason) -> None:
        """End the step without its content, costs kept: a late or broken step writes nothing."""
        self._update(
            operations=(), dropped=0, delta=no_change(), bank_after=self.snapshot.bank, list_text="", reminder=None,
            prob_raw=None, prob_calibrated=None, label_mass=None,
        )  # fmt: skip
        self.settle(reason)

    def copy(self, step_id: str) -> "Draft":
        """An independent draft that goes on from here as a step of its own."""
        return replace(self, step_id=step_id)

    def set_verdict(self, *, speaks: bool | None, prob_calibrated: float | None = None, threshold: float | None = None) -> None:
        """What the calibrated threshold (or the draw of a sample) says about this step."""
        self.speaks = speaks
        self._update(prob_calibrated=prob_calibrated, threshold=threshold)

    def _take_silence(self, reason: str | None) -> None:
        self.silent_reason = cast(Reason, reason) if reason else None

    def _update(self, **changes: object) -> None:
        self.result = replace(self.result, **changes)  # type: ignore[arg-type]


def _list_text(text: str, envelope: Envelope) -> str:
    """The list as the prefix of the decision: the model's own text when that is the bare list, else the canonical one."""
    end = text.find(OPERATIONS_CLOSE)
    bare = text[: end + len(OPERATIONS_CLOSE)].strip() if end >= 0 else ""
    if bare.startswith(OPERATIONS_OPEN):
        alone = parse_envelope(bare)
        if isinstance(alone, Envelope) and alone.operations == envelope.operations:
            return bare
    return render_operations(envelope.operations)


def closed_before_status(text: str) -> str:
    """A list that stopped where a status begins, closed there; any other text as it is."""
    if not text.endswith(STATUS_OPEN):
        return text
    return f"{text.removesuffix(STATUS_OPEN).rstrip().removesuffix(',')}]{OPERATIONS_CLOSE}"


def _ended_by(note: Operation, envelope: Envelope) -> Envelope:
    others = [operation for operation in envelope.operations if operation.op != note.op]
    return replace(envelope, operations=(*others[: MAX_OPERATIONS - 1], note))


def _redacted(operation: Operation) -> Operation:
    return replace(operation, content=redact(operation.content)[0]) if operation.content else operation


def _clean(reminder: str | None) -> str | None:
    return redact(reminder)[0] if reminder else None


def _one_later(bank: BankState) -> Callable[[], float]:
    """A clock one tick after everything in the bank, so that the copy orders new writes last whatever the unit."""
    now = max((entry.touched for entry in bank.entries), default=0.0) + 1.0
    return lambda: now
