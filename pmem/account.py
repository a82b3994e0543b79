"""The books of one session: telemetry rows, billed calls, the last decision that is shown, the last twenty rows, totals.

Not locked: the session calls it under its own lock. The sinks only queue.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pmem.bank import BankDelta
from pmem.citing import Settled
from pmem.delivery import Fate, Tier
from pmem.outcomes import Decision, Reason
from pmem.snapshot import Trigger
from pmem.step import StepResult
from pmem.telemetry import RowDelta, StepRow, Telemetry, UsageRow, timestamp

HISTORY = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """The outcome of the newest memory boundary. `reason` is None when the boundary was seen and nothing was due."""

    decision: Decision
    reason: Reason | None
    tier: Tier


class Account:
    """Writes rows and remembers the newest. `telemetry` None: rows stay in this session only.

    Where the rules tier spoke, its `injected` stays shown: a step that was suppressed for it does not replace it.
    """

    def __init__(self, telemetry: Telemetry | None, clock: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self.history: deque[StepRow] = deque(maxlen=HISTORY)
        self.shown: Shown | None = None
        self.totals: Counter[str] = Counter()

    def quiet_boundary(self, tier: Tier) -> None:
        """A boundary with new tools at which nothing was due: shown as silent, no row."""
        self.shown = Shown("silent", None, tier)

    def rules(self, trigger: Trigger, decision: Decision, reason: Reason, *, num_cited: int = 0, num_updated: int = 0) -> None:
        """A row of the rules tier: free, at once."""
        delta = RowDelta.model_validate({"procedural": {"updated": num_updated}})
        self._row(triggers=(trigger,), tier="rules", decision=decision, reason=reason, num_cited=num_cited, bank_delta=delta)
        self.shown = Shown(decision, reason, "rules")

    def dropped(self, triggers: tuple[Trigger, ...], reason: Reason) -> None:
        """A boundary that ran no step; never replaces the shown decision."""
        self._row(triggers=triggers, tier="llm", decision="dropped", reason=reason)

    def no_client(self, triggers: tuple[Trigger, ...]) -> None:
        """A step was due and no model is there to take it."""
        self._row(triggers=triggers, tier="rules", decision="silent", reason="no_client")
        self.shown = Shown("silent", "no_client", "rules")

    def fate(self, fate: Fate) -> None:
        """A reminder that was decided and never delivered."""
        self._row(
            triggers=fate.reminder.triggers,
            tier=fate.reminder.tier,
            decision=fate.decision,
            reason=fate.reason,
            num_cited=len(fate.reminder.cited),
        )

    def step(
        self, triggers: tuple[Trigger, ...], tier: Tier, result: StepResult, outcome: Settled, *,
        delta: BankDelta | None = None, threshold_id: str | None = None,
    ) -> None:  # fmt: skip
        """Row and bill of a step that answered, one of each an attempt. `delta`: what the live bank took (None: nothing)."""
        for attempt in result.earlier:
            self.step(triggers, tier, attempt, Settled(attempt.decision, attempt.reason))
        self.bill(result, f"{outcome.decision}/{outcome.reason}")
        self._row(
            triggers=triggers,
            tier=tier,
            decision=outcome.decision,
            reason=outcome.reason,
            bank_delta=RowDelta.model_validate(delta or {}),
            num_operations=len(result.operations) if delta else 0,
            num_dropped=result.dropped,
            num_cited=len(outcome.cited),
            tokens_in=result.tokens_in,
            tokens_out=result.tokens_out,
            tokens_total=result.tokens_in + result.tokens_out,
            latency_ms=max(0.0, result.latency_ms),
            prob_speak=result.prob_raw,
            label_mass=result.label_mass,
            threshold_id=threshold_id,
            route=result.route,
            model=result.model,
        )
        if outcome.decision not in ("dropped", "cancelled") and outcome.reason != "suppressed":
            self.shown = Shown(outcome.decision, outcome.reason, tier)

    def failed(self, triggers: tuple[Trigger, ...], decision: Decision, reason: Reason, latency_ms: float) -> None:
        """The row of a step that gave no result at all."""
        self._row(triggers=triggers, tier="llm", decision=decision, reason=reason, latency_ms=max(0.0, latency_ms))
        if decision != "cancelled":
            self.shown = Shown(decision, reason, "llm")

    def bill(self, result: StepResult, outcome: str) -> None:
        """Book what a step cost to the route and model that spent it. A step that reached no model costs nothing."""
        if result.route is None or not (result.tokens_in or result.tokens_out or result.latency_ms):
            return
        self.totals["tokens"] += result.tokens_in + result.tokens_out
        self.totals["model_ms"] += round(result.latency_ms)
        self._usage(
            UsageRow(
                at=timestamp(self._clock()),
                route=result.route,
                model=result.model or "",
                tokens_in=result.tokens_in,
                tokens_out=result.tokens_out,
                cached_tokens=result.tokens_cached,
                duration_ms=max(0.0, result.latency_ms),
                outcome=outcome,
            )
        )

    def inspect(self) -> dict[str, Any]:
        """Counts and outcomes only."""
        shown = self.shown
        return {
            "last_decision": None if shown is None else {"decision": shown.decision, "reason": shown.reason, "tier": shown.tier},
            "history": [row.model_dump(mode="json") for row in self.history],
            "totals": dict(self.totals),
        }

    def _row(self, **values: Any) -> None:
        row = StepRow(at=timestamp(self._clock()), **values)
        self.history.append(row)
        self.totals[f"rows_{row.tier}"] += 1
        self.totals[row.decision] += 1
        if self._telemetry is not None:
            self._telemetry.step(row)

    def _usage(self, row: UsageRow) -> None:
        if self._telemetry is not None:
            self._telemetry.usage(row)
