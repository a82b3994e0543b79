"""The face a host talks to: tool results in, annotations and reminders out, nothing else (design/runtime.md).

    session = MemorySession(settings, policy=policy, telemetry=FileTelemetry(settings))
    session.on_user_message(task); session.on_turn_start()
    note = session.on_tool_result(tool="bash", args={"command": "make"}, text=output, is_error=True)   # append it to the result
    session.on_batch_end(); session.evaluate()                         # starts a step, returns at once
    if reminder := session.peek(): ...                                 # deliver reminder.block with the next model call
    session.commit(reminder)                                           # when that call has returned

No method for hosts raises, waits for a model or touches a file; what was caught is counted in `inspect()["faults"]`. Thread-safe.
Rules only when `policy` is None. `prepare` and `complete` are the two halves of `evaluate`, for replay and evaluation.
"""

import functools
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from pmem.account import Account
from pmem.bank import Bank, BankDelta
from pmem.citing import Present, Settled, settle
from pmem.delivery import (
    MAX_UNDELIVERED_TURNS,
    Delivered,
    Fate,
    Reminder,
    ReminderBuffer,
    Tier,
    as_block,
    still_stands,
    without_own_text,
)
from pmem.envelope import Operation
from pmem.gates import RUNTIME
from pmem.inflight import InFlight, run_detached
from pmem.observer import Observer, PendingCall
from pmem.outcomes import KEEPS_TRIGGERS, Reason
from pmem.redaction import redact
from pmem.rules import restored_state
from pmem.settings import Settings
from pmem.snapshot import Snapshot
from pmem.step import StepResult
from pmem.telemetry import Telemetry
from pmem.triggers import Triggers

if TYPE_CHECKING:
    from pmem.policy import MemoryPolicy

P = ParamSpec("P")
R = TypeVar("R")


def _guarded(default: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For the methods hosts call: nothing when disabled; under the lock; memory must never break the agent, so whatever is
    raised is counted and `default` returned."""

    def wrap(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            session = cast("MemorySession", args[0])
            if not session.settings.enabled:
                return cast(R, default)
            try:
                with session._lock:
                    return method(*args, **kwargs)
            except Exception as error:
                session._fault(error)
                return cast(R, default)

        return call

    return wrap


class MemorySession:
    """Memory of one agent session. Without `telemetry` rows are kept in `inspect()` only and no file is touched."""

    def __init__(
        self,
        settings: Settings,
        *,
        policy: "MemoryPolicy | None" = None,
        clock: Callable[[], float] = time.time,
        telemetry: Telemetry | None = None,
        on_delivered: Callable[[Delivered], None] | None = None,
        session_id: str | None = None,
    ) -> None:
        self.settings = settings
        self.session_id = session_id or secrets.token_hex(4)
        self.faults: deque[BaseException] = deque(maxlen=8)
        self.num_faults = 0
        self._lock = threading.RLock()
        self._policy = None if getattr(policy, "name", None) == "rules" else policy
        self._clock = clock
        self._on_delivered = on_delivered
        self._telemetry = telemetry
        self._num_steps = 0
        self._in_flight: InFlight | None = None
        self._start_over()

    def _start_over(self) -> None:
        settings = self.settings
        self._account = Account(self._telemetry, self._clock)
        self._bank = Bank(clock=self._clock, max_knowledge=settings.max_knowledge, max_procedural=settings.max_procedural)
        self._triggers = Triggers(settings.cadence_tool_calls)
        self._observer = Observer(self._bank, self._triggers, settings.trajectory_steps)
        self._buffer = ReminderBuffer()
        self._turn = 0
        self._restore_due = False
        self._last_reminder: str | None = None
        self._compactions = 0

    # What happened, from the host

    @_guarded(None)
    def on_user_message(self, text: str, own: bool = False) -> None:
        """A message of the user. `own`: it is (or carries) text of ours and must not be observed."""
        if not own:
            self._observer.on_user_message(without_own_text(text))

    @_guarded(None)
    def on_agent_text(self, text: str) -> None:
        """What the agent said or thought; it becomes the `thought` of the next completed step."""
        self._observer.on_agent_text(without_own_text(text))

    @_guarded(None)
    def on_tool_call(self, *, tool: str, args: Any, call_id: str | None = None, batch_id: str | None = None) -> None:
        """Optional: a call that is about to run. Gives parallel results their order and `replay.feed` a result's arguments."""
        if not self._observer.answered(call_id)[0]:
            self._observer.on_tool_call(tool=tool, args=args, call_id=call_id, batch_id=batch_id)

    def pending_call(self, call_id: str | None) -> PendingCall | None:
        """A declared call without its result: the one of that id, else the oldest without an id."""
        with self._lock:
            return self._observer.pending_call(call_id)

    def batch_open(self, batch_id: str | None) -> bool:
        """Whether a declared call of this batch has no result yet."""
        with self._lock:
            return self._observer.batch_open(batch_id)

    @_guarded(None)
    def on_tool_result(
        self,
        *,
        tool: str,
        args: Any,
        text: str,
        is_error: bool = False,
        call_id: str | None = None,
        batch_id: str | None = None,
        changes_workspace: bool | None = None,
        is_probe: bool = False,
    ) -> str | None:
        """One completed call. Returns a block to append to this very result, or None. A repeated `call_id` is observed once.

        `changes_workspace` None: guessed from tool and arguments.
        """
        seen, note = self._observer.answered(call_id)
        if seen:
            return note
        advisory = self._observer.on_tool_result(
            tool=tool,
            args=args,
            text=without_own_text(text),
            is_error=is_error,
            call_id=call_id,
            changes_workspace=changes_workspace,
            is_probe=is_probe,
        )
        if advisory is None:
            return None
        note = as_block(advisory.text)
        self._observer.remember_answer(call_id, note)
        self._triggers.add("repeated_failure")
        self._bank.record_injection([advisory.entry_id])
        self._account.rules("repeated_failure", "injected", "intervened", num_cited=1, wrote=1)
        self._announce(
            Delivered(
                step_id=self._next_id(), tier="rules", entry_ids=(advisory.entry_id,), text=advisory.text, channel="annotation"
            )
        )
        return note

    @_guarded(None)
    def on_batch_end(self) -> None:
        """All results of one native batch are in and the model will be called next: a boundary that can carry a reminder."""
        self._offer_restore()

    @_guarded(None)
    def on_turn_start(self) -> None:
        """The next user prompt was accepted."""
        self._turn += 1
        self._observer.rules.on_turn_start()
        self._book(self._buffer.on_turn_start(self._turn))
        self._offer_restore()

    @_guarded(None)
    def on_turn_end(self, aborted: bool = False) -> None:
        """The agent's turn is over. An aborted one drops its reminder, cancels its step, and keeps a restore pending."""
        if not aborted:
            return
        self._book(self._buffer.on_turn_aborted(self._turn))
        self._cancel("turn_aborted")
        restore = self._buffer.peek()
        if restore is not None and restore.restores:
            self._buffer.withdraw_restore()
            self._restore_due = True

    @_guarded(None)
    def on_compaction(self, committed: bool = True) -> None:
        """The host shortened the agent's context. Only a committed compaction counts."""
        if not committed:
            return
        self._compactions += 1
        self._restore_due = True
        self._book(self._buffer.on_compaction(self._living()))

    @_guarded(None)
    def on_loop_signal(self) -> None:
        """The host's own loop guard fired."""
        self._triggers.add("loop_signal")

    @_guarded(None)
    def on_manual(self) -> None:
        """A person asked for a memory step at the next boundary."""
        self._triggers.add("manual")

    @_guarded(None)
    def on_session_change(self) -> None:
        """New session, branch or resume: nothing of the old one may be seen by the new. A late answer is only billed."""
        self._cancel("scope_changed")
        self._book(self._buffer.clear("cancelled", "scope_changed"))
        self._start_over()

    # A boundary

    @_guarded(False)
    def evaluate(self) -> bool:
        """A boundary. Starts a detached step when one is due and returns at once whether it did."""
        self._give_up_overdue()
        triggers = self._triggers.due()
        if not triggers:
            spoke = self._triggers.rules_spoke
            if self._triggers.close_boundary() and not spoke:
                self._account.quiet_boundary(self._tier)
            return False
        if self._in_flight is not None:
            if self._triggers.close_boundary():
                self._account.dropped(triggers, "step_in_flight")
            return False
        if self._policy is None:
            spoke = self._triggers.rules_spoke
            self._account.no_client(self._triggers.take(), rules_spoke=spoke)
            return False
        snapshot = self._take_snapshot()
        step = self._in_flight = InFlight(self._account, snapshot, self._turn, self._compactions)
        run_detached(self._policy, step, self._land)
        return True

    def prepare(self) -> Snapshot | None:
        """What a step at this boundary would see, or None when no step is due here. Starts the trigger counters anew."""
        with self._lock:
            if not self.settings.enabled or not self._triggers.due():
                return None
            return self._take_snapshot()

    def complete(self, snapshot: Snapshot, result: StepResult) -> None:
        """The other half: edit the bank, buffer a reminder, write the rows. Raises what goes wrong."""
        with self._lock:
            self._settle(snapshot, result, self._turn, self._compactions)

    def apply_operations(self, operations: Iterable[Operation]) -> BankDelta:
        """Write to the bank directly: the scripted writer of replay, seeding from a handoff. No row."""
        with self._lock:
            return self._write(operations)

    # Delivery

    @_guarded(None)
    def peek(self) -> Reminder | None:
        """What the next model call should carry, or None. The same one until it is committed or loses its authority."""
        return self._buffer.peek()

    @_guarded(None)
    def commit(self, reminder: Reminder) -> None:
        """The model call that carried `reminder` returned. Counted once, whatever the retries."""
        if not self._buffer.commit(reminder):
            return
        self._bank.record_injection(reminder.cited)
        if reminder.restores:
            self._account.rules("post_compaction", "injected", "intervened", num_cited=len(reminder.cited))
        else:
            self._last_reminder = reminder.text
        self._announce(
            Delivered(
                step_id=reminder.step_id, tier=reminder.tier, entry_ids=reminder.cited, text=reminder.text, channel="reminder"
            )
        )

    def inspect(self) -> dict[str, Any]:
        """A detached, JSON-ready view: tier, step in flight, last decision, pending triggers, live bank, last twenty rows."""
        with self._lock:
            if not self.settings.enabled:
                return {"enabled": False}
            waiting = self._buffer.peek()
            return {
                "enabled": True,
                "session_id": self.session_id,
                "tier": self._tier,
                "in_flight": self._in_flight is not None,
                "pending_triggers": list(self._triggers.due()),
                "waiting_reminder": None if waiting is None else {"step_id": waiting.step_id, "text": waiting.text},
                "num_turns": self._turn,
                "bank": self._bank.state().model_dump(mode="json"),
                "window": [step.model_dump(mode="json") for step in self._observer.window.steps()],
                "faults": self.num_faults,
                **self._account.inspect(),
            }

    @property
    def bank(self) -> Bank:
        """The live bank (thread-safe itself)."""
        return self._bank

    def close(self) -> None:
        """The session is over: late answers are only billed, an undelivered reminder has expired."""
        with self._lock:
            self._cancel("scope_changed")
            self._book(self._buffer.clear("expired", "stale"))

    # Within

    def _take_snapshot(self) -> Snapshot:
        waiting = self._buffer.waiting()
        triggers = self._triggers.take()
        return Snapshot(
            task_messages=self._observer.task_messages(),
            window=self._observer.window.steps(),
            bank=self._bank.state(),
            triggers=triggers,
            last_reminder=waiting.text if waiting else self._last_reminder,
        )

    def _land(self, step: InFlight, result: StepResult | None, error: BaseException | None) -> None:
        """A detached step ended; called on its own thread."""
        try:
            with self._lock:
                mine = self._in_flight is step
                if mine:
                    self._in_flight = None
                self._land_locked(step, result, error, mine)
        except Exception as fault:
            self._fault(fault)

    def _land_locked(self, step: InFlight, result: StepResult | None, error: BaseException | None, mine: bool) -> None:
        if error is not None:
            self._fault(error)
        triggers, cancelled = step.snapshot.triggers, step.cancelled
        if cancelled is not None and result is not None:
            step.account.step(triggers, self._tier, result, Settled("cancelled", cancelled))
        elif cancelled is not None:
            step.account.failed(triggers, "cancelled", cancelled, step.age_ms())
        elif not mine and result is not None:
            step.account.bill(result, "timeout/deadline")
        elif result is None:
            step.account.failed(triggers, "error", "client_error", step.age_ms())
        else:
            self._settle(step.snapshot, result, step.turn, step.compactions)

    def _settle(self, snapshot: Snapshot, result: StepResult, turn: int, compactions: int) -> None:
        if self._tier == "rules" and "repeated_failure" in snapshot.triggers:
            return  # the annotation said it and has its row
        before = self._bank.state()
        delta = self._write(result.operations) if result.operations else None
        if result.reason in KEEPS_TRIGGERS:
            self._triggers.give_back(snapshot.triggers)
        present = Present(before, self._bank.state(), self._observer.window.steps())
        outcome = settle(snapshot, result, present, getattr(self._policy, "profile", RUNTIME))
        threshold_id = getattr(self._policy, "threshold_id", None)
        self._account.step(snapshot.triggers, self._tier, result, outcome, delta=delta, threshold_id=threshold_id)
        if outcome.decision == "injected":
            self._buffer_reminder(snapshot, outcome, turn, compactions)

    def _buffer_reminder(self, snapshot: Snapshot, outcome: Settled, turn: int, compactions: int) -> None:
        reminder = Reminder(
            step_id=self._next_id(),
            tier=self._tier,
            text=outcome.text,
            cited=outcome.cited,
            triggers=snapshot.triggers,
            turn=turn,
        )
        if compactions != self._compactions and not still_stands(reminder, self._living()):
            self._account.fate(Fate(reminder, "expired", "compacted"))
        elif self._turn - turn > MAX_UNDELIVERED_TURNS:
            self._account.fate(Fate(reminder, "expired", "stale"))
        elif older := self._buffer.put(reminder):
            self._account.fate(older)

    def _write(self, operations: Iterable[Operation]) -> BankDelta:
        """Apply a batch; no secret reaches the bank, whoever wrote the text."""
        return self._bank.apply([replace(op, content=redact(op.content)[0]) if op.content else op for op in operations])

    @property
    def _tier(self) -> Tier:
        return "rules" if self._policy is None else "llm"

    def _offer_restore(self) -> None:
        if not self._restore_due:
            return
        self._restore_due = False
        text, shown = restored_state(self._bank.state(), self.settings.max_output_tokens * 4)
        if not text:
            self._account.rules("post_compaction", "silent", "bank_empty")
            return
        self._buffer.put(
            Reminder(
                step_id=self._next_id(),
                tier="rules",
                text=text,
                cited=shown,
                triggers=("post_compaction",),
                turn=self._turn,
                restores=True,
            )
        )

    def _cancel(self, reason: Reason) -> None:
        if self._in_flight is not None:
            self._in_flight.cancelled = reason
            self._in_flight = None

    def _give_up_overdue(self) -> None:
        """A step past its deadline no longer holds the slot; what it still answers is only billed."""
        step = self._in_flight
        if step is not None and step.is_overdue(self.settings.timeout_ms):
            self._in_flight = None
            self._account.failed(step.snapshot.triggers, "timeout", "deadline", step.age_ms())

    def _living(self) -> set[str]:
        return {entry.id for entry in self._bank.state().entries}

    def _book(self, fates: Iterable[Fate]) -> None:
        for fate in fates:
            self._account.fate(fate)

    def _next_id(self) -> str:
        self._num_steps += 1
        return f"{self.session_id}-{self._num_steps}"

    def _announce(self, event: Delivered) -> None:
        if self._on_delivered is None:
            return
        try:
            self._on_delivered(event)
        except Exception as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        self.num_faults += 1
        self.faults.append(error)
