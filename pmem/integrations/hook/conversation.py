"""One session of a hook client: its events become calls of one `MemorySession`, and what memory says rides in their answers.

A failure is held until its batch comes, so that steps stand in the order of their calls and one answer carries everything. Where
batches never come (Codex, the Python SDK) every tool result is a boundary.
"""

import threading
from collections import deque
from dataclasses import dataclass, field

from pmem.delivery import CLOSE, OPEN, Opening, Reminder
from pmem.integrations.hook.dialects import Dialect, HookEvent, Outcome
from pmem.integrations.hook.transcript import Transcript
from pmem.session import MemorySession

MAX_OWN = 32


@dataclass(frozen=True, slots=True)
class Said:
    """What one answer should carry; `reminder` is committed, `opening` told, when the answer has really been printed."""

    blocks: tuple[str, ...] = ()
    reminder: Reminder | None = None
    opening: Opening | None = None

    def within(self, max_chars: int) -> "Said":
        """Without the blocks that do not fit, each left out whole; a reminder that is left out waits on."""
        kept: list[str] = []
        for block in self.blocks:
            if sum(map(len, kept)) + len(kept) + len(block) <= max_chars:
                kept.append(block)
        reminder = self.reminder if self.reminder is not None and self.reminder.block in kept else None
        opening = self.opening if self.opening is not None and self.opening.block in kept else None
        return Said(tuple(kept), reminder, opening)

    def text(self, *, bare: bool) -> str:
        """The blocks in one; `bare`: without their tags."""
        return "\n".join(bare_text(block) if bare else block for block in self.blocks)


@dataclass(slots=True)
class Conversation:
    """State of one client session. Hold `lock` from an event until its answer was delivered: two answers never carry the same."""

    session: MemorySession
    dialect: Dialect
    live: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    num_tool_events: int = 0
    num_observed: int = 0
    _held: dict[str, Outcome] = field(default_factory=dict)
    _sees_batches: bool = False
    _turn_open: bool = False
    _num_turns: int = 0
    _opening_due: bool = True
    _compaction_told_by: str | None = None
    _transcript: Transcript = field(default_factory=Transcript)
    _own: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_OWN))
    """What was said last, without its tags: a client that wraps it itself shows the agent no tags of ours."""

    def handle(self, event: HookEvent) -> Said:
        """Observe one event; what is to be said in its answer."""
        if event.kind == "failure":
            return self._failure(event)
        if event.kind in ("tool", "batch"):
            return self._results(event)
        notes = self._flush()
        if event.kind == "prompt":
            self._prompt(event)
        elif event.kind == "start":
            self._start(event)
        elif event.kind == "compacting":
            self._compaction_told_by = None
        elif event.kind == "compacted":
            self._compacted(event.name)
        elif event.kind in ("stop", "stop_failure"):
            self._stop(event)
        carries = event.kind == "prompt" or (event.kind == "start" and event.source == "compact")
        opening = self.session.opening if self._opening_due and event.kind in ("prompt", "start") else None
        return self._said(notes, carries=carries, opening=opening)

    def delivered(self, said: Said) -> None:
        """The agent has it."""
        if said.opening is not None:
            said.opening.told()
            self._opening_due = False
        if said.reminder is not None:
            self.session.commit(said.reminder)

    def _failure(self, event: HookEvent) -> Said:
        self.num_tool_events += 1
        (outcome,) = event.outcomes
        if not event.interrupted:
            self._held[outcome.call_id or f"#{len(self._held)}"] = outcome
        return Said()

    def _results(self, event: HookEvent) -> Said:
        self.num_tool_events += 1
        self._listen(event)
        told = [self._held.pop(outcome.call_id or "", outcome) for outcome in event.outcomes]
        notes = self._flush()
        self._sees_batches = self._sees_batches or event.kind == "batch"
        notes += [note for outcome in told if (note := self._observe(outcome)) is not None]
        boundary = event.kind == "batch" or not self._sees_batches
        if boundary:
            self.session.on_batch_end()
            self.session.evaluate()
        return self._said(notes, carries=boundary)

    def _prompt(self, event: HookEvent) -> None:
        """A turn that is still open was interrupted: no client tells of that."""
        if self._turn_open:
            self.session.on_turn_end(aborted=True)
        if event.by_person:
            self.session.on_user_message(self._foreign(event.text))
        self.session.on_turn_start()
        self._turn_open = True
        self._num_turns += 1

    def _start(self, event: HookEvent) -> None:
        self._opening_due = event.source != "resume"  # a resumed transcript holds it, a compacted one may not
        if event.source == "compact":
            self._compacted(event.name)
            self.session.on_batch_end()
        elif event.source == "clear" and self._num_turns:
            self.session.on_session_change()

    def _compacted(self, told_by: str) -> None:
        """One compaction may be told by two events; the second is no second compaction."""
        if self._compaction_told_by not in (None, told_by):
            self._compaction_told_by = None
            return
        self._compaction_told_by = told_by
        self.session.on_compaction()

    def _stop(self, event: HookEvent) -> None:
        self._listen(event)
        self.session.on_turn_end(aborted=event.kind == "stop_failure")
        self.session.evaluate()
        self._turn_open = False

    def _listen(self, event: HookEvent) -> None:
        """What the agent said since the last event: by its transcript, else by what the event tells (its last message)."""
        said = self._transcript.new_texts(event.transcript)
        for text in said or ([event.text] if event.kind in ("stop", "stop_failure") else []):
            self.session.on_agent_text(self._foreign(text))

    def _flush(self) -> list[str]:
        """Failures whose batch never came."""
        held, self._held = self._held, {}
        return [note for outcome in held.values() if (note := self._observe(outcome)) is not None]

    def _observe(self, outcome: Outcome) -> str | None:
        self.num_observed += 1
        text = self._foreign(outcome.text)
        return self.session.on_tool_result(
            tool=outcome.tool, args=outcome.args, text=text, is_error=outcome.is_error, call_id=outcome.call_id
        )

    def _said(self, notes: list[str], *, carries: bool, opening: Opening | None = None) -> Said:
        reminder = self.session.peek() if carries else None
        blocks = (*([opening.block] if opening else []), *notes, *([reminder.block] if reminder else []))
        if self.dialect.wraps_context:
            self._own.extend(map(bare_text, blocks))
        return Said(blocks, reminder, opening)

    def _foreign(self, text: str) -> str:
        """`text` without what we said ourselves."""
        for own in self._own:
            text = text.replace(own, "")
        return text


def bare_text(block: str) -> str:
    """A block without its tags."""
    return block.removeprefix(f"{OPEN}\n").removesuffix(f"\n{CLOSE}")
