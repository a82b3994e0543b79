"""How the policy conducts itself beyond right and wrong: its time and failures, its citations, and what its errors are like.

Classes of the errors that survive the threshold, after the paper's: *redundant reminder* (says a measured fact that the agent had
not lost, or whose reminder gained nothing), *unnecessary verification* (asks to check or confirm something), *over-confident
speculation* (any other sentence that says nothing measured). Read from the text by the rules below, so a share is a lead for
reading the examples, not a diagnosis.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from eval.decisions import Decision
from eval.metrics import decision_share
from eval.operating import View
from eval.statistics import NOT_MEASURED, Figure, Floats, Statistic, bootstrap, mean, ratio

CLASSES = ("redundant reminder", "unnecessary verification", "over-confident speculation")
VERIFICATION = re.compile(r"\b(?:check|verify|confirm|make sure|double[- ]check|ensure|validate|look again|test whether)\b", re.I)
REFUSED = ("dropped", "error")
"""Decisions of steps that no model answered, beside `timeout`."""
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def weighted_quantile(values: Floats, level: float) -> Statistic:
    """The smallest value at which the weighted share of the rows reaches `level`."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]

    def value(weights: Floats) -> Floats:
        share = np.cumsum(weights[:, order], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = share >= level * share[:, -1:]
        return ordered[np.argmax(reached, axis=1)]

    return value


def time_figures(view: View, *, seed: int) -> dict[str, Figure]:
    """Model time of a step in milliseconds (share of its batch), and the shares that were refused or ran out of time."""
    spent = np.array([row.latency_ms for row in view.decisions])
    figures = {
        name: bootstrap(weighted_quantile(spent, level), view.tasks, seed=seed) if spent.any() else NOT_MEASURED
        for name, level in QUANTILES.items()
    }
    return {
        **figures,
        "refused": decision_share(view, REFUSED, seed=seed),
        "deadline": decision_share(view, ["timeout"], seed=seed),
    }


def citation_figures(view: View, *, seed: int) -> dict[str, Figure]:
    """Of the spoken reminders that cite: share whose every citation stood in the bank before the step (the others cite what this
    very step wrote), and steps since the cited entries were last written.
    """
    rows = [place for place, row in enumerate(view.decisions) if view.spoke[place] > 0 and row.cited_ids]
    if not rows:
        return {"valid": NOT_MEASURED, "age_steps": NOT_MEASURED}
    cited = [(view.truths[place], view.decisions[place]) for place in rows]
    tasks = [truth.task for truth, _ in cited]
    valid = np.array([float(all(name in truth.written for name in row.cited_ids)) for truth, row in cited])
    ages = [[truth.step - truth.written[name] for name in row.cited_ids if name in truth.written] for truth, row in cited]
    age = np.array([float(np.mean(each)) if each else 0.0 for each in ages])
    known = np.array([float(bool(each)) for each in ages])
    return {
        "valid": bootstrap(mean(valid), tasks, seed=seed, proportion=True),
        "age_steps": bootstrap(ratio(age * known, known), tasks, seed=seed) if known.any() else NOT_MEASURED,
    }


def error_class(decision: Decision, *, matched: bool) -> str:
    """The class of a reminder that was no hit."""
    if matched:
        return CLASSES[0]
    return CLASSES[1] if VERIFICATION.search(decision.reminder_text or "") else CLASSES[2]


def residual_figures(view: View, *, seed: int) -> dict[str, Any]:
    """Errors at the threshold: false interventions and wrong words by class, each as a share of the known snapshots; and misses."""
    view = view.known()
    good = (view.advantage > 0) & view.matched & view.need
    wrong = view.spoke * ~good
    names = [error_class(row, matched=bool(hit)) for row, hit in zip(view.decisions, view.matched)]
    figures = {
        name: bootstrap(mean(wrong * np.array([float(other == name) for other in names])), view.tasks, seed=seed, proportion=True)
        for name in CLASSES
    }
    figures["missed need"] = bootstrap(mean(view.need * (1.0 - view.spoke)), view.tasks, seed=seed, proportion=True)
    return {name: {**figure.as_json(), "count": _count(name, names, wrong, view)} for name, figure in figures.items()}


def _count(name: str, names: Sequence[str], wrong: Floats, view: View) -> int:
    if name not in CLASSES:
        return int((view.need & (view.spoke == 0)).sum())
    return int(sum(value > 0 for other, value in zip(names, wrong) if other == name))
