"""Signals that accumulate in a set and coalesce at a boundary (docs/design/runtime.md section 5).

    triggers.on_step(is_error=True); triggers.due()   # ("tool_error_streak",) once two errors stand in a row

Only `interval` is not deterministic: it is the one trigger under which a reminder must cite an entry.
"""

from collections.abc import Iterable

from pmem.snapshot import Trigger

ERROR_STREAK = 2
PROMPTED: frozenset[Trigger] = frozenset({"interval", "tool_error_streak", "loop_signal", "manual"})
"""Triggers that start a prompted step; `repeated_failure` and `post_compaction` belong to the rules tier and never do."""
MAX_TRIGGERS = 3
_ORDER: tuple[Trigger, ...] = ("repeated_failure", "manual", "loop_signal", "tool_error_streak", "post_compaction", "interval")


class Triggers:
    """What has happened since the last prompted step. Not locked: the session calls it under its own lock."""

    def __init__(self, cadence_tool_calls: int) -> None:
        self._cadence = cadence_tool_calls
        self._pending: set[Trigger] = set()
        self.tools_since_step = 0
        self._errors_in_a_row = 0
        self.fresh = False
        """A tool completed or a signal came since the last boundary; else there is nothing to look at."""

    def on_step(self, *, is_error: bool, counts_for_streak: bool = True) -> None:
        """One completed tool. A probing read and an operator's repeat do not count for the streak, either way."""
        self.tools_since_step += 1
        self.fresh = True
        if not counts_for_streak:
            return
        self._errors_in_a_row = self._errors_in_a_row + 1 if is_error else 0
        if self._errors_in_a_row == ERROR_STREAK:
            self._pending.add("tool_error_streak")

    def add(self, trigger: Trigger) -> None:
        """An explicit signal: the host's loop guard, a person, or the rules tier."""
        self._pending.add(trigger)
        self.fresh = True

    @property
    def rules_spoke(self) -> bool:
        """The rules tier annotated a result since the last boundary; nothing more may be said at this one."""
        return "repeated_failure" in self._pending

    def due(self) -> tuple[Trigger, ...]:
        """The triggers a prompted step would run for, at most three, most telling first; empty when none is due."""
        found = set(self._pending)
        if self.tools_since_step >= self._cadence:
            found.add("interval")
        if not found & PROMPTED:
            return ()
        return tuple(trigger for trigger in _ORDER if trigger in found)[:MAX_TRIGGERS]

    def take(self) -> tuple[Trigger, ...]:
        """Like `due`, and the counters start anew: a step is launched for them."""
        found = self.due()
        self._pending.clear()
        self.tools_since_step = self._errors_in_a_row = 0
        self.fresh = False
        return found

    def close_boundary(self) -> bool:
        """A boundary passes without a step; what is due stays pending. Returns whether anything happened since the last one."""
        was_boundary, self.fresh = self.fresh, False
        self._pending.discard("repeated_failure")
        return was_boundary

    def give_back(self, triggers: Iterable[Trigger]) -> None:
        """A step that was refused for capacity leaves its triggers pending for the next free boundary."""
        for trigger in triggers:
            if trigger == "interval":
                self.tools_since_step = max(self.tools_since_step, self._cadence)
            elif trigger in PROMPTED:
                self._pending.add(trigger)
