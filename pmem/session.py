"""The face a host talks to: tool results in, annotations and reminders out, nothing else (docs/design/runtime.md).

    session = MemorySession(settings, policy=policy, telemetry=FileTelemetry(settings))
    session.on_user_message(task); session.on_turn_start()
    note = session.on_tool_result(tool="bash", args={"command": "make"}, text=output, is_error=True)   # append it to the result
    session.on_batch_end(); session.evaluate()                         # starts a step, returns at once
    if reminder := session.peek(): ...                                 # deliver reminder.block with the next model call
    session.commit(reminder)                                           # when that call has returned

No method for hosts raises, waits for a model or touches a file; what was caught is counted in `inspect()["faults"]`. Thread-safe.
Rules only when `policy` is None. `prepare` and `complete` are the two halves of `evaluate`, for replay and evaluation.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pmem.bank import Bank, BankDelta
from pmem.delivery import Delivered, Opening, Reminder, as_block, without_own_text
from pmem.envelope import Operation
from pmem.gates import RUNTIME
from pmem.host_boundary import host_call
from pmem.inflight import InFlight, run_detached
from pmem.observer import PendingCall
from pmem.outcomes import Reason
from pmem.plane import Plane
from pmem.settings import Settings
from pmem.snapshot import Snapshot, Step
from pmem.step import StepResult
from pmem.telemetry import Telemetry

if TYPE_CHECKING:
    from pmem.policy import MemoryPolicy


class MemorySession:
    """Memory of one agent session. Without `telemetry` rows are seen in `inspect()` only and no file is touched.

    `on_delivered` is called, on the host's thread, for every annotation and reminder that reached the agent. `opening`: what the
    host tells its agent first, when `pmem.connect` found something.
    """

    def __init__(
        self, settings: Settings, *, policy: "MemoryPolicy | None" = None, clock: Callable[[], float] = time.time,
        telemetry: Telemetry | None = None, on_delivered: Callable[[Delivered], None] | None = None,
        session_id: str | None = None, notice: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.session_id = session_id or secrets.token_hex(4)
        self.opening: Opening | None = None
        self.faults: deque[Exception] = deque(maxlen=8)
        self.num_faults = 0
        self.lock = threading.RLock()
        self._policy: MemoryPolicy | None = None
        self._notice = notice
        self._notices: deque[str] = deque(maxlen=8)
        self._clock = clock
        self._telemetry = telemetry
        self._on_delivered = on_delivered
        self._in_flight: InFlight | None = None
        self.use_policy(policy)

    def use_policy(self, policy: "MemoryPolicy | None") -> None:
        """The model tier of this session, before anything was observed; the rules tier is the session's own."""
        self._policy = None if getattr(policy, "name", None) == "rules" else policy
        self._plane = self._new_plane()

    def say(self, sentence: str) -> None:
        """A runtime notice for the person: which route serves instead, and why."""
        self._notices.append(sentence)
        if self._notice is not None:
            self._notice(sentence)

    def _new_plane(self) -> Plane:
        return Plane(
            self.settings,
            self._clock,
            self._telemetry,
            session_id=self.session_id,
            tier="rules" if self._policy is None else "llm",
            profile=getattr(self._policy, "profile", RUNTIME),
            threshold_id=getattr(self._policy, "threshold_id", None),
        )

    # What happened, from the host

    @host_call(None)
    def on_user_message(self, text: str, own: bool = False) -> None:
        """A message of the user. `own`: it is text of ours and must not be observed."""
        if not own:
            self._plane.observer.on_user_message(without_own_text(text))

    @host_call(None)
    def on_agent_text(self, text: str) -> None:
        """What the agent said or thought; it becomes the `thought` of the next completed step."""
        self._plane.observer.on_agent_text(without_own_text(text))

    @host_call(None)
    def on_tool_call(self, *, tool: str, args: Any, call_id: str | None = None, batch_id: str | None = None) -> None:
        """Optional: a call that is about to run. Gives parallel results their order and `replay.feed` a result's arguments."""
        self._plane.observer.on_tool_call(tool=tool, args=args, call_id=call_id, batch_id=batch_id)

    @host_call(None)
    def on_tool_result(
        self, *, tool: str, args: Any, text: str, is_error: bool = False, call_id: str | None = None, batch_id: str | None = None,
        changes_workspace: bool | None = None, is_probe: bool = False,
    ) -> str | None:  # fmt: skip
        """One completed call. Returns a block to append to this very result, or None. A repeated `call_id` is observed once.

        `changes_workspace` None: guessed from tool and arguments. `is_probe`: the error only says that a file is not there.
        """
        observer = self._plane.observer
        seen, note = observer.answered(call_id)
        if seen:
            return note
        advisory = observer.on_tool_result(
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
        observer.remember_answer(call_id, note)
        self._announce(self._plane.advise(advisory))
        return note

    @host_call(None)
    def on_batch_end(self) -> None:
        """All results of one native batch are in and the model will be called next: a boundary that can carry a reminder."""
        self._plane.offer_restore()

    @host_call(None)
    def on_turn_start(self) -> None:
        """The next user prompt was accepted."""
        self._plane.start_turn()

    @host_call(None)
    def on_turn_end(self, aborted: bool = False) -> None:
        """The agent's turn is over. An aborted one drops its reminder, cancels its step, and keeps a restore pending."""
        if aborted:
            self._plane.abort_turn()
            self._cancel("turn_aborted")

    @host_call(None)
    def on_compaction(self, committed: bool = True) -> None:
        """The host shortened the agent's context. Only a committed compaction counts."""
        if committed:
            self._plane.compact()

    @host_call(None)
    def on_loop_signal(self) -> None:
        """The host's own loop guard fired."""
        self._plane.triggers.add("loop_signal")

    @host_call(None)
    def on_manual(self) -> None:
        """A person asked for a memory step at the next boundary."""
        self._plane.triggers.add("manual")

    @host_call(None)
    def on_session_change(self, session_id: str | None = None) -> None:
        """New session, branch or resume: nothing of the old one may be seen by the new. A late answer is only booked."""
        self._cancel("scope_changed")
        self._plane.book(self._plane.buffer.clear("cancelled", "scope_changed"))
        self.session_id = session_id or secrets.token_hex(4)
        self._plane = self._new_plane()

    # A boundary

    @host_call(False)
    def evaluate(self) -> bool:
        """A boundary. Starts a detached step when one is due and returns at once whether it did."""
        plane, triggers = self._plane, self._plane.triggers
        if self._in_flight is not None and self._in_flight.give_up_when_overdue(self.settings.timeout_ms):
            self._in_flight = None
        spoke, due = triggers.rules_spoke, triggers.due()
        if not due:
            if triggers.close_boundary() and not spoke:
                plane.account.quiet_boundary(plane.tier)
            return False
        if self._in_flight is not None:
            if triggers.close_boundary():
                plane.account.dropped(due, "step_in_flight")
            return False
        if self._policy is None:
            due = triggers.take()
            if not spoke:
                plane.account.no_client(due)
            return False
        self._in_flight = InFlight(plane, plane.take_snapshot(), plane.moment())
        run_detached(self._policy, self._in_flight, self._land)
        return True

    def prepare(self) -> Snapshot | None:
        """What a step at this boundary would see, or None when no step is due here. Starts the trigger counters anew."""
        with self.lock:
            if not self.settings.enabled or not self._plane.triggers.due():
                return None
            return self._plane.take_snapshot()

    def complete(self, snapshot: Snapshot, result: StepResult) -> None:
        """The other half: edit the bank, buffer a reminder, write the rows. Raises what goes wrong."""
        with self.lock:
            self._plane.settle(snapshot, result, self._plane.moment())

    def apply_operations(self, operations: Iterable[Operation]) -> BankDelta:
        """Write to the bank directly: the scripted writer of replay, seeding from a handoff. No row. Raises ValueError."""
        with self.lock:
            return self._plane.write(operations)

    # Delivery

    @host_call(None)
    def peek(self) -> Reminder | None:
        """What the next model call should carry, or None. The same one until it is committed or loses its authority."""
        return self._plane.buffer.peek()

    @host_call(None)
    def commit(self, reminder: Reminder) -> None:
        """The model call that carried `reminder` returned. Counted once, whatever the retries."""
        delivered = self._plane.commit(reminder)
        if delivered is not None:
            self._announce(delivered)

    # For people and for replay

    def inspect(self) -> dict[str, Any]:
        """A detached, JSON-ready view: tier, step in flight, last decision, pending triggers, live bank, last twenty rows."""
        if not self.settings.enabled:
            return {"enabled": False}
        with self.lock:
            plane = self._plane
            waiting = plane.buffer.peek()
            return {
                "enabled": True,
                "session_id": self.session_id,
                "tier": plane.tier,
                "in_flight": self._in_flight is not None,
                "pending_triggers": list(plane.triggers.due()),
                "waiting_reminder": None if waiting is None else {"step_id": waiting.step_id, "text": waiting.text},
                "num_turns": plane.turn,
                "bank": plane.bank.state().model_dump(mode="json"),
                "tools_since_step": plane.triggers.tools_since_step,
                "window": [step.model_dump(mode="json") for step in plane.observer.window.steps()],
                "faults": self.num_faults,
                "notices": list(self._notices),
                **plane.account.inspect(),
            }

    @property
    def bank(self) -> Bank:
        """The live bank (thread-safe itself)."""
        return self._plane.bank

    def window(self) -> tuple[Step, ...]:
        """Completed steps as the policy would see them, oldest first."""
        with self.lock:
            return self._plane.observer.window.steps()

    def tools_since_step(self) -> int:
        """Completed tools since the last prompted step, which the cadence counts."""
        with self.lock:
            return self._plane.triggers.tools_since_step

    def pending_call(self, call_id: str | None) -> PendingCall | None:
        """A declared call without its result: the one of that id, else the oldest without an id."""
        with self.lock:
            return self._plane.observer.pending_call(call_id)

    def batch_open(self, batch_id: str | None) -> bool:
        """Whether a declared call of this batch has no result yet."""
        with self.lock:
            return self._plane.observer.batch_open(batch_id)

    @host_call(None)
    def close(self) -> None:
        """The session is over: late answers are only booked, an undelivered reminder has expired."""
        self._cancel("scope_changed")
        self._plane.book(self._plane.buffer.clear("expired", "stale"))

    # Within

    def _land(self, step: InFlight, result: StepResult | None, error: Exception | None) -> None:
        """A detached step ended; called on its own thread."""
        try:
            with self.lock:
                if self._in_flight is step:
                    self._in_flight = None
                step.land(result)
        except Exception as fault:
            self.fault(fault)
        if error is not None:
            self.fault(error)

    def _cancel(self, reason: Reason) -> None:
        if self._in_flight is not None:
            self._in_flight.cancel(reason)
            self._in_flight = None

    def _announce(self, event: Delivered) -> None:
        if self._on_delivered is None:
            return
        try:
            self._on_delivered(event)
        except Exception as error:
            self.fault(error)

    def fault(self, error: Exception) -> None:
        """Count what was caught at the boundary to the host."""
        self.num_faults += 1
        self.faults.append(error)
