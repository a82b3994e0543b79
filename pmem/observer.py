"""What a session has observed: task messages, stated thoughts, calls under way, the window, and the rules that watch it.

Everything is bounded and redacted on arrival. Not locked: the session calls it under its own lock.
"""

from collections import OrderedDict, deque
from typing import Any, NamedTuple

from pmem.bank import Bank
from pmem.redaction import Redactor, redact
from pmem.rules import Advisory, Rules, requests_repeat
from pmem.snapshot import Step
from pmem.tool_kinds import changes_workspace as guess_change
from pmem.tool_kinds import is_probing_read
from pmem.trajectory import REDACTION_REACH, Window, cut_chars, describe_call, digest, fingerprint, stated_thought
from pmem.triggers import Triggers

TASK_MAX_CHARS = 2_000
LATER_MAX_CHARS = 300
NUM_LATER = 3
MAX_CALLS = 256
MAX_THOUGHTS = 16


class PendingCall(NamedTuple):
    """A call that runs: its step number, tool and arguments, and what the agent said before it."""

    number: int
    tool: str
    args: Any
    batch_id: str | None
    thought: str | None


class Observer:
    """Observations of one session, and the rules tier over them."""

    def __init__(self, bank: Bank, triggers: Triggers, trajectory_steps: int) -> None:
        self.window = Window(trajectory_steps)
        self.rules = Rules(bank, self.window.reaches)
        self._triggers = triggers
        self._redactor = Redactor()
        self._first_message: str | None = None
        self._later: deque[str] = deque(maxlen=NUM_LATER)
        self._repeat_requested = False
        self._thoughts: deque[str] = deque(maxlen=MAX_THOUGHTS)
        self._calls: OrderedDict[str, PendingCall] = OrderedDict()
        self._answers: OrderedDict[str, str | None] = OrderedDict()

    def on_user_message(self, text: str) -> None:
        if not text.strip():
            return
        self._repeat_requested = requests_repeat(text)
        clean = redact(text[:REDACTION_REACH])[0].strip()
        if self._first_message is None:
            self._first_message = cut_chars(clean, TASK_MAX_CHARS)
        else:
            self._later.append(cut_chars(" ".join(clean.split()), LATER_MAX_CHARS))

    def on_agent_text(self, text: str) -> None:
        if text.strip():
            self._thoughts.append(text[-2 * REDACTION_REACH :])

    def on_tool_call(self, *, tool: str, args: Any, call_id: str | None, batch_id: str | None) -> None:
        if call_id is not None and (call_id in self._calls or call_id in self._answers):
            return
        number = self.window.reserve()
        self._calls[call_id or f"#{number}"] = PendingCall(number, tool, args, batch_id, self._take_thought())
        while len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)

    def pending_call(self, call_id: str | None) -> PendingCall | None:
        """The call that a result belongs to: by its id, else the oldest call without one."""
        if call_id is not None:
            return self._calls.get(call_id)
        return next((call for key, call in self._calls.items() if key.startswith("#")), None)

    def batch_open(self, batch_id: str | None) -> bool:
        """Whether a declared call of this batch has no result yet."""
        return batch_id is not None and any(call.batch_id == batch_id for call in self._calls.values())

    def on_tool_result(
        self,
        *,
        tool: str,
        args: Any,
        text: str,
        is_error: bool,
        call_id: str | None,
        changes_workspace: bool | None,
        is_probe: bool,
    ) -> Advisory | None:
        """Take one completed call into the window and let the rules look at it."""
        probed = is_error and (is_probe or is_probing_read(tool, args, text))
        is_error = is_error and not probed
        step = self._step(tool, args, text, is_error, call_id)
        self.window.add(step)
        self.remember_answer(call_id, None)
        exempt = self._repeat_requested
        self._triggers.on_step(is_error=is_error, counts_for_streak=not probed and not (is_error and exempt))
        if is_error:
            return self.rules.on_failure(step, exempt=exempt)
        if not probed:
            changed = guess_change(tool, args) if changes_workspace is None else changes_workspace
            self.rules.on_success(step, changed=changed)
        return None

    def answered(self, call_id: str | None) -> tuple[bool, str | None]:
        """Whether this call was observed before, and the note it got then (a resumed host runs its wrappers again)."""
        return (True, self._answers[call_id]) if call_id is not None and call_id in self._answers else (False, None)

    def remember_answer(self, call_id: str | None, note: str | None) -> None:
        if call_id is not None:
            self._answers[call_id] = note
            while len(self._answers) > MAX_CALLS:
                self._answers.popitem(last=False)

    def task_messages(self) -> tuple[str, ...]:
        """First user message, then the newest later ones."""
        return () if self._first_message is None else (self._first_message, *self._later)

    def _step(self, tool: str, args: Any, text: str, is_error: bool, call_id: str | None) -> Step:
        pending = self.pending_call(call_id)
        if pending is not None:
            self._calls.pop(call_id or f"#{pending.number}", None)
        thought = self._take_thought() or (pending.thought if pending else None)
        return Step.model_construct(
            step=pending.number if pending else self.window.reserve(),
            tool=tool,
            call=describe_call(tool, args),
            fingerprint=fingerprint(tool, args),
            outcome="error" if is_error else "ok",
            digest=digest(text, is_error=is_error, clean=self._redactor.redact),
            provenance="code",
            thought=thought,
        )

    def _take_thought(self) -> str | None:
        thought = stated_thought(self._thoughts) if self._thoughts else None
        self._thoughts.clear()
        return thought
