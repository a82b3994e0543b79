"""A session run over a recorded rollout: at each place what memory would have said, through which channel, or why it was silent.

The recorded agent does not change by what is said, so everything after the first reminder is only what *would* have been seen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pmem.delivery import Reminder
from pmem.policy import MemoryPolicy
from pmem.replay import feed
from pmem.rollout import Event
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.telemetry import Ledger, StepRow

Kind = Literal["step", "turn_end", "delivery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What happened at one place. `said` is the text, by `channel`; else `decision` and `why` tell why nothing was."""

    event: int
    kind: Kind
    step: int | None = None
    call: str | None = None
    outcome: str | None = None
    said: str | None = None
    channel: Literal["annotation", "reminder"] | None = None
    decision: str | None = None
    why: str = ""
    triggers: tuple[str, ...] = ()
    prob_speak: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Rehearsal:
    """One session over one rollout. `policy` None: rules only."""

    def __init__(self, settings: Settings, policy: MemoryPolicy | None = None) -> None:
        self.ledger = Ledger()
        self._ticks = 0
        self._policy = policy
        self.session = MemorySession(settings, policy=policy, telemetry=self.ledger, clock=self._clock, session_id="replay")

    def run(self, events: Iterable[Event]) -> Iterator[Finding]:
        """Findings in the order of the events."""
        for event in events:
            self._ticks += 1
            fed = feed(self.session, event)
            num_rows = len(self.ledger.steps)
            if fed.boundary:
                self._boundary()
            if event.kind == "tool_result":
                yield self._finding(event, "step", fed.annotation, self.ledger.steps[num_rows:])
            elif event.kind == "turn_end" and self.ledger.steps[num_rows:]:
                yield self._finding(event, "turn_end", None, self.ledger.steps[num_rows:])
            if fed.boundary or event.kind == "user":
                yield from self._deliver(event)

    def _boundary(self) -> None:
        """The detached step, taken here and now."""
        if self._policy is None:
            self.session.evaluate()
            return
        snapshot = self.session.prepare()
        if snapshot is not None:
            self.session.complete(snapshot, self._policy.step(snapshot))
        else:
            self.session.evaluate()

    def _finding(self, event: Event, kind: Kind, annotation: str | None, rows: list[StepRow]) -> Finding:
        window = self.session.window()
        step = window[-1] if kind == "step" and window else None
        row = rows[-1] if rows else None
        decision = "injected" if annotation else (row.decision if row else "silent")
        return Finding(
            event=event.i,
            kind=kind,
            step=step.step if step else None,
            call=step.call if step else None,
            outcome=step.outcome if step else None,
            said=annotation,
            channel="annotation" if annotation else None,
            decision=decision,
            why="repeated failure" if annotation else self._why(row),
            triggers=tuple(row.triggers) if row else (),
            prob_speak=row.prob_speak if row else None,
        )

    def _why(self, row: StepRow | None) -> str:
        if row is not None:
            return row.reason
        return (
            f"not due: {self.session.tools_since_step()} of {self.session.settings.cadence_tool_calls} tools since the last step"
        )

    def _deliver(self, event: Event) -> Iterator[Finding]:
        """The next model call would carry what waits."""
        while (reminder := self.session.peek()) is not None:
            self.session.commit(reminder)
            yield Finding(
                event=event.i, kind="delivery", said=reminder.block, channel="reminder", decision="injected",
                why=_earned(reminder), triggers=reminder.triggers,
            )  # fmt: skip

    def _clock(self) -> float:
        return float(self._ticks)


def _earned(reminder: Reminder) -> str:
    return "restored after compaction" if reminder.restores else f"decided in turn {reminder.turn}"
