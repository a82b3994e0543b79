"""How words reach the agent: one visible block, peeked, delivered, committed; dropped, expired or kept by what happens meanwhile.

Peek before the host's model call, commit when it has returned: a failed call keeps the reminder, a retried one carries it once.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from pmem.outcomes import Decision, Reason
from pmem.snapshot import Trigger

OPEN, CLOSE = "<system-reminder>", "</system-reminder>"
LABEL = "Memory:"
Tier = Literal["rules", "llm"]
MAX_UNDELIVERED_TURNS = 1


def as_block(text: str) -> str:
    """The one visible block a reminder rides in."""
    return f"{OPEN}\n{LABEL} {text}\n{CLOSE}"


def without_own_text(text: str) -> str:
    """`text` without the blocks we wrote ourselves: our words are never observed as if they were the agent's. Linear."""
    start = text.find(OPEN)
    if start < 0:
        return text
    kept, position = [], 0
    while start >= 0:
        end = text.find(CLOSE, start)
        if end < 0:
            break
        if text[start + len(OPEN) : start + len(OPEN) + 40].lstrip().startswith(LABEL):
            kept.append(text[position:start])
            position = end + len(CLOSE)
        start = text.find(OPEN, end)
    kept.append(text[position:])
    return "".join(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """One decided reminder. `turn`: the user turn whose trajectory earned it."""

    step_id: str
    tier: Tier
    text: str
    cited: tuple[str, ...]
    triggers: tuple[Trigger, ...]
    turn: int
    restores: bool = False
    """The restore after a compaction rather than a model's reminder."""

    @property
    def block(self) -> str:
        return as_block(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Event for the host's ledger and for lessons: this reminder really reached the agent."""

    step_id: str
    tier: Tier
    entry_ids: tuple[str, ...]
    text: str
    channel: Literal["annotation", "reminder"]


@dataclass(slots=True)
class Opening:
    """A block for the start of the agent's session: what a person approved earlier. It never enters the policy's own prompt.

    A host shows it before everything else and says `told` once its agent has it.
    """

    block: str
    on_told: Callable[[], None]
    _told: bool = False

    def told(self) -> None:
        """The agent has it. Saying so again changes nothing."""
        if not self._told:
            self._told = True
            self.on_told()


@dataclass(frozen=True, slots=True)
class Fate:
    """An undelivered reminder's end, for the telemetry row."""

    reminder: Reminder
    decision: Decision
    reason: Reason


@dataclass(slots=True)
class ReminderBuffer:
    """At most one restore and one model reminder wait here. Not locked: the session calls it under its own lock."""

    _restore: Reminder | None = None
    _reminder: Reminder | None = None
    _committed: deque[str] = field(default_factory=lambda: deque(maxlen=64))

    def put(self, reminder: Reminder) -> Fate | None:
        """Buffer a reminder; a newer one takes the place of an older one that never left, which has expired."""
        if reminder.restores:
            self._restore = reminder
            return None
        older, self._reminder = self._reminder, reminder
        return Fate(older, "expired", "stale") if older else None

    def peek(self) -> Reminder | None:
        """What the next model call should carry: the restore first. The same answer until committed."""
        return self._restore or self._reminder

    def waiting(self) -> Reminder | None:
        """The model reminder that has been decided and not delivered."""
        return self._reminder

    def commit(self, reminder: Reminder) -> bool:
        """The host's model call returned with it. False when this very reminder was committed before."""
        if reminder.step_id in self._committed:
            return False
        self._committed.append(reminder.step_id)
        if self._restore is not None and self._restore.step_id == reminder.step_id:
            self._restore = None
        if self._reminder is not None and self._reminder.step_id == reminder.step_id:
            self._reminder = None
        return True

    def on_turn_start(self, turn: int) -> list[Fate]:
        """Reminders older than one user turn are stale."""
        if self._reminder is not None and turn - self._reminder.turn > MAX_UNDELIVERED_TURNS:
            return self._drop("expired", "stale")
        return []

    def on_turn_aborted(self, turn: int) -> list[Fate]:
        """An aborted turn drops the reminders it earned."""
        if self._reminder is not None and self._reminder.turn == turn:
            return self._drop("cancelled", "turn_aborted")
        return []

    def on_compaction(self, living: Iterable[str]) -> list[Fate]:
        """A compaction expires a reminder unless everything it cites still lives: then it is offered anew."""
        self._restore = None
        if self._reminder is not None and not still_stands(self._reminder, living):
            return self._drop("expired", "compacted")
        return []

    def clear(self, decision: Decision, reason: Reason) -> list[Fate]:
        """Session end or change."""
        self._restore = None
        return self._drop(decision, reason)

    def withdraw_restore(self) -> bool:
        """The offer was not taken. Whether there was one, to be made again."""
        offered, self._restore = self._restore is not None, None
        return offered

    def _drop(self, decision: Decision, reason: Reason) -> list[Fate]:
        dropped, self._reminder = self._reminder, None
        return [Fate(dropped, decision, reason)] if dropped else []


def still_stands(reminder: Reminder, living: Iterable[str]) -> bool:
    """Whether a reminder outlives a compaction: it cites entries, and they are all alive."""
    return bool(reminder.cited) and set(reminder.cited) <= set(living)
