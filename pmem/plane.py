"""The memory of one agent session: bank, observations, triggers, reminder buffer, books; and what a finished step does to them.

Not locked: `pmem.session` calls it under its lock. A session change makes a new plane, so nothing of the old one can be seen.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pmem.account import Account
from pmem.bank import Bank, BankDelta
from pmem.citing import Present, Settled, settle
from pmem.delivery import MAX_UNDELIVERED_TURNS, Delivered, Fate, Reminder, ReminderBuffer, Tier, still_stands
from pmem.envelope import Operation
from pmem.gates import RUNTIME, GateProfile
from pmem.observer import Observer
from pmem.outcomes import KEEPS_TRIGGERS
from pmem.redaction import redact
from pmem.rules import Advisory, restored_state
from pmem.settings import Settings
from pmem.snapshot import Snapshot
from pmem.step import StepResult
from pmem.telemetry import Telemetry
from pmem.triggers import Triggers


@dataclass(frozen=True, slots=True)
class Moment:
    """When a snapshot was taken, counted in user turns and compactions."""

    turn: int
    compactions: int


class Plane:
    """State of one session. `tier` names who answers at its boundaries; `profile` and `threshold_id` belong to that policy."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], telemetry: Telemetry | None, *, session_id: str, tier: Tier,
        profile: GateProfile = RUNTIME, threshold_id: str | None = None,
    ) -> None:  # fmt: skip
        self.tier: Tier = tier
        self.account = Account(telemetry, clock)
        self.bank = Bank(clock=clock, max_knowledge=settings.max_knowledge, max_procedural=settings.max_procedural)
        self.triggers = Triggers(settings.cadence_tool_calls)
        self.observer = Observer(self.bank, self.triggers, settings.trajectory_steps)
        self.buffer = ReminderBuffer()
        self.turn = 0
        self._compactions = 0
        self._restore_due = False
        self._restore_max_chars = settings.max_output_tokens * 4
        self._last_reminder: str | None = None
        self._session_id = session_id
        self._num_ids = 0
        self._profile = profile
        self._threshold_id = threshold_id

    def moment(self) -> Moment:
        return Moment(self.turn, self._compactions)

    def take_snapshot(self) -> Snapshot:
        """What a step at this boundary sees; the trigger counters start anew."""
        waiting = self.buffer.waiting()
        return Snapshot(
            task_messages=self.observer.task_messages(),
            window=self.observer.window.steps(),
            bank=self.bank.state(),
            triggers=self.triggers.take(),
            last_reminder=waiting.text if waiting else self._last_reminder,
        )

    def write(self, operations: Iterable[Operation]) -> BankDelta:
        """Apply a batch; no secret reaches the bank, whoever wrote the text."""
        return self.bank.apply([replace(op, content=redact(op.content)[0]) if op.content else op for op in operations])

    def settle(self, snapshot: Snapshot, result: StepResult, taken: Moment) -> None:
        """A step answered: bank edited, row and bill written, a reminder buffered. `taken`: when the snapshot was."""
        if self.tier == "rules" and "repeated_failure" in snapshot.triggers:
            return  # the annotation said it and has its row
        before = self.bank.state()
        delta = self.write(result.operations) if result.operations else None
        if result.reason in KEEPS_TRIGGERS:
            self.triggers.give_back(snapshot.triggers)
        present = Present(before, self.bank.state(), self.observer.window.steps())
        outcome = settle(snapshot, result, present, self._profile)
        self.account.step(snapshot.triggers, self.tier, result, outcome, delta=delta, threshold_id=self._threshold_id)
        if outcome.decision == "injected":
            self._buffer_reminder(snapshot, outcome, taken)

    def advise(self, advisory: Advisory) -> Delivered:
        """The rules tier spoke through the annotation of a failing result; the boundary is taken."""
        self.triggers.add("repeated_failure")
        self.bank.record_injection([advisory.entry_id])
        self.account.rules("repeated_failure", "injected", "intervened", num_cited=1, num_updated=1)
        cited = (advisory.entry_id,)
        return Delivered(step_id=self._next_id(), tier="rules", entry_ids=cited, text=advisory.text, channel="annotation")

    def start_turn(self) -> None:
        """The next user prompt was accepted: old reminders go stale, a pending restore is offered."""
        self.turn += 1
        self.observer.rules.on_turn_start()
        self.book(self.buffer.on_turn_start(self.turn))
        self.offer_restore()

    def abort_turn(self) -> None:
        """The turn's reminder is dropped; a restore that nobody confirmed is pending again."""
        self.book(self.buffer.on_turn_aborted(self.turn))
        if self.buffer.withdraw_restore():
            self._restore_due = True

    def compact(self) -> None:
        """The host committed a compaction: a restore is due, a waiting reminder must still stand."""
        self._compactions += 1
        self._restore_due = True
        self.book(self.buffer.on_compaction(self._living()))

    def offer_restore(self) -> None:
        """Once a compaction, at the first boundary that can carry it; an empty bank has nothing to restore and says so."""
        if not self._restore_due:
            return
        self._restore_due = False
        text, shown = restored_state(self.bank.state(), self._restore_max_chars)
        if not text:
            self.account.rules("post_compaction", "silent", "bank_empty")
            return
        self.buffer.put(
            Reminder(
                step_id=self._next_id(), tier="rules", text=text, cited=shown, triggers=("post_compaction",), turn=self.turn,
                restores=True,
            )
        )  # fmt: skip

    def commit(self, reminder: Reminder) -> Delivered | None:
        """The reminder really reached the agent; None when that was booked before."""
        if not self.buffer.commit(reminder):
            return None
        self.bank.record_injection(reminder.cited)
        if reminder.restores:
            self.account.rules("post_compaction", "injected", "intervened", num_cited=len(reminder.cited))
        else:
            self._last_reminder = reminder.text
        return Delivered(
            step_id=reminder.step_id, tier=reminder.tier, entry_ids=reminder.cited, text=reminder.text, channel="reminder"
        )

    def book(self, fates: Iterable[Fate]) -> None:
        for fate in fates:
            self.account.fate(fate)

    def _buffer_reminder(self, snapshot: Snapshot, outcome: Settled, taken: Moment) -> None:
        reminder = Reminder(
            step_id=self._next_id(), tier=self.tier, text=redact(outcome.text)[0], cited=outcome.cited,
            triggers=snapshot.triggers, turn=taken.turn,
        )  # fmt: skip
        if taken.compactions != self._compactions and not still_stands(reminder, self._living()):
            self.account.fate(Fate(reminder, "expired", "compacted"))
        elif self.turn - taken.turn > MAX_UNDELIVERED_TURNS:
            self.account.fate(Fate(reminder, "expired", "stale"))
        elif older := self.buffer.put(reminder):
            self.account.fate(older)

    def _living(self) -> set[str]:
        return {entry.id for entry in self.bank.state().entries}

    def _next_id(self) -> str:
        self._num_ids += 1
        return f"{self._session_id}-{self._num_ids}"
