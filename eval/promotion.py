"""The rules a candidate must keep to be promoted, each one line of configs/promote.yaml, each judged with its figure and
interval.

A rule whose figure was not measured is not held: what nobody looked at earns no promotion.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.evidence import Evidence
from eval.metrics import decision_share, speak_rate
from eval.operating import View
from eval.statistics import NOT_MEASURED, Figure, bootstrap, mean
from pmem.config import STRICT, bounded
from pmem.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """One field a rule; a value of null switches the rule off (and the report says so)."""

    __pydantic_config__ = STRICT

    certificate: bool | None = True
    """A certified threshold, made for this model on exactly this certify split."""
    non_inferior_to_rules: float | None = 0.02
    """Margin: the lower end of (pass rate minus that of the rules arm) lies at or above minus this."""
    better_than_never: float | None = 0.8
    """Power from which a pass rate above the never arm's is demanded (lower end above 0)."""
    not_always_noisy: bool | None = True
    """Not: as many injected reminders as trials, and no better than never."""
    better_than_random: bool | None = True
    """Regret below that of random at the same rate (lower end of the difference above 0)."""
    action_rate: tuple[float, float] | None = (0.005, 0.5)
    """The share of snapshots it speaks on lies in this band: neither collapse."""
    malformed: float | None = 0.01
    """Largest share of malformed steps."""
    cited_share: float | None = 1.0
    """Least share of interval reminders that cite an entry."""
    tokens_per_task: float | None = 20_000
    """Largest mean of added tokens a task."""
    seconds_per_step: float | None = 2.0
    """Largest 95th percentile of model seconds a step (share of its batch)."""

    def __post_init__(self) -> None:
        bounded(self, 0, 1, "non_inferior_to_rules", "better_than_never", "action_rate", "malformed", "cited_share")
        bounded(self, 0, math.inf, "tokens_per_task", "seconds_per_step")
        if self.action_rate is not None and self.action_rate[0] > self.action_rate[1]:
            raise UserError(f"action_rate is {list(self.action_rate)}; write the lower end of the band first")


@dataclass(frozen=True, slots=True)
class Judged:
    """One rule: its name and sentence, whether it held, and on which figure."""

    rule: str
    held: bool
    figure: float | None
    interval: tuple[float, float] | None

    def as_json(self) -> dict[str, Any]:
        """A reason of verdict.json."""
        interval = list(self.interval) if self.interval else None
        return {"rule": self.rule, "held": self.held, "figure": self.figure, "interval": interval}


def judge(policy: Policy, evidence: Evidence, split: str, seed: int) -> list[Judged]:
    """Every rule that is switched on, in the order of `Policy`."""
    view = evidence.view(evidence.candidate, split)
    assert view is not None
    return [*_certified(policy, evidence), *_live(policy, evidence), *_on_snapshots(policy, evidence, view, split, seed)]


def _judged(name: str, sentence: str, held: bool, figure: Figure) -> Judged:
    known = figure.ci_low is not None and figure.ci_high is not None
    interval = (float(figure.ci_low), float(figure.ci_high)) if known else None  # type: ignore[arg-type]
    if figure.value is None:
        sentence += " (not measured)"
    return Judged(f"{name}: {sentence}", bool(held and figure.value is not None), figure.value, interval)


def _certified(policy: Policy, evidence: Evidence) -> Iterator[Judged]:
    if not policy.certificate:
        return
    threshold = evidence.threshold
    text = evidence.sweep.get("arms", {}).get(evidence.candidate, {}).get("sentence", "no certificate was attempted")
    if not evidence.split_intact:
        text = "the certify split is not the one the threshold was certified on; sweep again"
    yield Judged(f"certificate: {text}", threshold.certified and evidence.split_intact, threshold.threshold, None)


def _live(policy: Policy, evidence: Evidence) -> Iterator[Judged]:
    entry = (evidence.ab or {}).get("arms", {}).get(evidence.candidate, {})
    paired, power = entry.get("paired", {}), (evidence.ab or {}).get("power", {})
    if policy.non_inferior_to_rules is not None:
        figure, margin = _figure(paired.get("rules", {}).get("difference")), policy.non_inferior_to_rules
        held = figure.ci_low is not None and figure.ci_low >= -margin
        yield _judged("non_inferior_to_rules", f"paired pass rate at least the rules' minus {margin:.1%}", held, figure)
    if policy.better_than_never is not None:
        figure, reached = _figure(paired.get("never", {}).get("difference")), power.get("power") or 0.0
        if reached < policy.better_than_never:
            note = f"not demanded, power {reached:.0%} is below {policy.better_than_never:.0%}"
            yield _judged("better_than_never", f"paired pass rate above never's ({note})", True, figure)
        else:
            held = figure.ci_low is not None and figure.ci_low > 0
            yield _judged("better_than_never", f"paired pass rate above never's (power {reached:.0%})", held, figure)
    if policy.not_always_noisy:
        figure = _figure(entry.get("figures", {}).get("reminders_per_task"))
        held = entry.get("always_noisy_regression") is False
        yield _judged("not_always_noisy", "not at least one reminder a task without any gain", held, figure)
    if policy.tokens_per_task is not None:
        figure = _figure(entry.get("more", {}).get("tokens_per_task"))
        held = (figure.value or 0.0) <= policy.tokens_per_task
        yield _judged("tokens_per_task", f"added tokens a task at most {policy.tokens_per_task:,.0f}", held, figure)


def _on_snapshots(policy: Policy, evidence: Evidence, view: View, split: str, seed: int) -> Iterator[Judged]:
    if policy.better_than_random:
        figure = less_regret_than(view.known(), evidence.views[split]["random"].known(), seed=seed)
        held = figure.ci_low is not None and figure.ci_low > 0
        yield _judged("better_than_random", "regret saved against random at the same rate above 0", held, figure)
    if policy.action_rate is not None:
        figure, (low, high) = speak_rate(view, seed=seed), policy.action_rate
        held = figure.value is not None and low <= figure.value <= high
        yield _judged("action_rate", f"speaks on {low:.1%} to {high:.0%} of the snapshots", held, figure)
    if policy.malformed is not None:
        figure = decision_share(view, ["malformed"], seed=seed)
        yield _judged(
            "malformed", f"at most {policy.malformed:.1%} malformed steps", (figure.value or 0.0) <= policy.malformed, figure
        )
    if policy.cited_share is not None:
        figure = cited_share(view, seed=seed)
        held = (figure.value or 0.0) >= policy.cited_share
        yield _judged("cited_share", f"at least {policy.cited_share:.0%} of its interval reminders cite an entry", held, figure)
    if policy.seconds_per_step is not None:
        seconds = np.array([row.latency_ms for row in view.decisions]) / 1000
        figure = Figure(float(np.quantile(seconds, 0.95)), None, None, len(seconds)) if len(seconds) else NOT_MEASURED
        held = (figure.value or 0.0) <= policy.seconds_per_step
        yield _judged("seconds_per_step", f"95th percentile of model time at most {policy.seconds_per_step:g} s", held, figure)


def less_regret_than(view: View, other: View, *, seed: int) -> Figure:
    """Regret of `other` minus regret of `view` on the same snapshots."""
    return bootstrap(mean(view.spoke * view.advantage - other.spoke * other.advantage), view.tasks, seed=seed)


def cited_share(view: View, *, seed: int) -> Figure:
    """Share of the spoken reminders at interval boundaries that cite an entry."""
    rows = [
        (truth.task, row) for truth, row in zip(view.truths, view.decisions) if truth.interval and row.spoke and row.reminder_text
    ]
    if not rows:
        return NOT_MEASURED
    cited = np.array([float(bool(row.cited_ids)) for _, row in rows])
    return bootstrap(mean(cited), [task for task, _ in rows], seed=seed, proportion=True)


def _figure(value: dict[str, Any] | None) -> Figure:
    return Figure(**value) if value else NOT_MEASURED
