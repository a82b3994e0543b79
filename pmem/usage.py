"""What memory costs and what it earns, folded from the telemetry rows: `pmem usage report`.

A decided reminder that never reached the agent (expired, dropped with its turn) is no hit: hits = injected - undelivered.
"""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pmem.telemetry import StepRow, UsageRow

UNDELIVERED = frozenset({("expired", "compacted"), ("expired", "stale"), ("cancelled", "turn_aborted")})


@dataclass
class TierUsage:
    """Figures of one tier (`rules` is free, `llm` is billed)."""

    num_steps: int = 0
    num_hits: int = 0
    num_cited_hits: int = 0
    tokens: int = 0
    model_ms: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def take(self, row: StepRow) -> None:
        """Fold one row in."""
        self.outcomes[f"{row.decision}/{row.reason}"] += 1
        if _is_undelivered(row):
            self.num_hits -= 1
            self.num_cited_hits -= row.num_cited > 0
            return
        if row.decision == "dropped":
            return
        self.num_steps += 1
        self.num_hits += row.decision == "injected"
        self.num_cited_hits += row.decision == "injected" and row.num_cited > 0
        self.tokens += row.tokens_total
        self.model_ms += row.latency_ms
        if row.latency_ms:
            self.latencies_ms.append(row.latency_ms)

    def summary(self) -> dict[str, Any]:
        """JSON-ready figures; a figure without data is null, never zero."""
        hits = max(0, self.num_hits)
        return {
            "steps": self.num_steps,
            "hits": hits,
            "cited_hits": max(0, self.num_cited_hits),
            "hit_rate": hits / self.num_steps if self.num_steps else None,
            "tokens": self.tokens,
            "model_seconds": round(self.model_ms / 1000, 3),
            "tokens_per_hit": round(self.tokens / hits) if hits else None,
            "seconds_per_hit": round(self.model_ms / 1000 / hits, 3) if hits else None,
            "latency_ms": _quantiles(self.latencies_ms),
            "timeouts": self._count("timeout"),
            "drops": self._reasons("dropped"),
            "gated": self._reasons("gated"),
            "outcomes": dict(sorted(self.outcomes.items())),
        }

    def _count(self, decision: str) -> int:
        return sum(count for name, count in self.outcomes.items() if name.startswith(decision + "/"))

    def _reasons(self, decision: str) -> dict[str, int]:
        return {name.partition("/")[2]: n for name, n in sorted(self.outcomes.items()) if name.startswith(decision + "/")}


@dataclass
class RouteUsage:
    """What one model on one route was billed."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    model_seconds: float = 0.0


def fold(steps: Iterable[StepRow], usages: Iterable[UsageRow] = ()) -> dict[str, Any]:
    """The whole report: `{first, last, tiers{rules, llm}, routes[]}`. `first` and `last` are null without rows."""
    tiers = {"rules": TierUsage(), "llm": TierUsage()}
    routes: dict[tuple[str, str], RouteUsage] = {}
    first = last = None
    for row in steps:
        tiers[row.tier].take(row)
        first, last = min(first or row.at, row.at), max(last or row.at, row.at)
    for bill in usages:
        _bill(routes.setdefault((bill.route, bill.model), RouteUsage()), bill)
    return {
        "first": first,
        "last": last,
        "tiers": {name: tier.summary() for name, tier in tiers.items()},
        "routes": [{"route": route, "model": model, **vars(usage)} for (route, model), usage in sorted(routes.items())],
    }


def _bill(usage: RouteUsage, row: UsageRow) -> None:
    usage.calls += 1
    usage.tokens_in += row.tokens_in
    usage.tokens_out += row.tokens_out
    usage.cached_tokens += row.cached_tokens
    usage.model_seconds = round(usage.model_seconds + row.duration_ms / 1000, 3)


def _is_undelivered(row: StepRow) -> bool:
    """A follow-up row of a reminder decided earlier: it ran no model of its own."""
    return (row.decision, row.reason) in UNDELIVERED and not row.tokens_total and not row.latency_ms


def _quantiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50": round(cuts[49], 1), "p95": round(cuts[94], 1), "p99": round(cuts[98], 1), "max": round(max(values), 1)}
