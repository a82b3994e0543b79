"""The figures of one arm on labelled snapshots, each with an interval clustered by task (names: docs/design/files.md, verdict.json).

Definitions (docs/design/calibration.md): false-intervention rate is averaged within an episode first; recall counts only
reminders whose measured advantage is positive; a hit is a spoken reminder with positive advantage, a harm one with negative
advantage where need was.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eval.operating import View
from eval.statistics import (
    NOT_MEASURED,
    Figure,
    Floats,
    auprc,
    auroc,
    bootstrap,
    brier,
    debiased_ece,
    mean,
    ratio,
)
from pmem.errors import UserError

SNAPSHOT_METRICS = (
    "auroc", "auprc", "ece", "brier", "false_intervention_rate", "recall_needed", "hit_rate", "regret", "net_benefit",
)  # fmt: skip
LIVE_METRICS = ("pass_rate", "reminders_per_task", "tokens_per_injection", "seconds_per_injection")
METRICS = (*SNAPSHOT_METRICS[:7], *LIVE_METRICS, *SNAPSHOT_METRICS[7:])


def require_both_classes(need: NDArray[np.bool_], where: str) -> None:
    """Raise UserError when nothing can be ranked because every snapshot has the same verdict."""
    if len(need) == 0:
        raise UserError(f"{where}: no snapshot has a known verdict; label more snapshots")
    if not need.any():
        raise UserError(f"{where}: no snapshot needs a reminder, so nothing can be ranked; simulate more episodes")
    if need.all():
        raise UserError(
            f"{where}: every snapshot needs a reminder (one class only), so nothing can be ranked; keep silent ones too"
        )


def snapshot_figures(view: View, *, cost_false: float, cost_missed: float, seed: int = 0) -> dict[str, Figure]:
    """All of `SNAPSHOT_METRICS` for the known rows of `view`."""
    view = view.known()
    require_both_classes(view.need, f"arm {view.arm}")
    tasks, need, score = view.tasks, view.need, view.score
    figures = {
        "auroc": bootstrap(auroc(score, need), tasks, seed=seed),
        "auprc": bootstrap(auprc(score, need), tasks, seed=seed),
        "ece": NOT_MEASURED,
        "brier": NOT_MEASURED,
    }
    read = np.isfinite(view.prob)
    if read.any():
        prob, truth, clusters = view.prob[read], need[read], [task for task, ok in zip(tasks, read) if ok]
        figures["ece"] = bootstrap(debiased_ece(prob, truth), clusters, seed=seed)
        figures["brier"] = bootstrap(brier(prob, truth), clusters, seed=seed)
    figures["false_intervention_rate"] = false_intervention_rate(view, seed=seed)
    figures["recall_needed"] = recall_needed(view, seed=seed)
    figures["hit_rate"] = hit_rate(view, seed=seed)
    figures["regret"] = regret(view, seed=seed)
    figures["net_benefit"] = net_benefit(view, cost_false / cost_missed, seed=seed)
    return figures


def episode_rates(view: View) -> tuple[Floats, list[str], list[str]]:
    """Share of its silence-is-right snapshots on which an episode is spoken to: rates (E,), tasks (E,), episodes (E,)."""
    spoke: dict[str, list[float]] = {}
    task_of: dict[str, str] = {}
    for truth, said in zip(view.truths, view.spoke):
        if truth.known and not truth.need:
            spoke.setdefault(truth.episode, []).append(float(said))
            task_of[truth.episode] = truth.task
    episodes = sorted(spoke)
    return np.array([np.mean(spoke[name]) for name in episodes]), [task_of[name] for name in episodes], episodes


def false_intervention_rate(view: View, *, seed: int = 0) -> Figure:
    """P(speak | not needed), mean of episode means."""
    rates, tasks, _ = episode_rates(view)
    return bootstrap(mean(rates), tasks, seed=seed, proportion=True) if len(rates) else NOT_MEASURED


def recall_needed(view: View, *, seed: int = 0) -> Figure:
    """P(speak a reminder with positive measured advantage | need)."""
    needed = view.where(view.need)
    if not len(needed):
        return NOT_MEASURED
    return bootstrap(mean(_good(needed)), needed.tasks, seed=seed, proportion=True)


def hit_rate(view: View, *, seed: int = 0) -> Figure:
    """Share of the spoken reminders that have positive measured advantage."""
    if not view.spoke.any():
        return NOT_MEASURED
    return bootstrap(ratio(_good(view), view.spoke), view.tasks, seed=seed, proportion=True)


def harm_rate(view: View, *, seed: int = 0) -> Figure:
    """Share of the needed snapshots on which the arm says something with negative measured advantage."""
    needed = view.where(view.need)
    if not len(needed):
        return NOT_MEASURED
    return bootstrap(mean(needed.spoke * (needed.advantage < 0)), needed.tasks, seed=seed, proportion=True)


def unmatched_share(view: View, *, seed: int = 0) -> Figure:
    """Share of the spoken reminders that say nothing that was measured (counted as misses)."""
    if not view.spoke.any():
        return NOT_MEASURED
    return bootstrap(ratio(view.spoke * ~view.matched, view.spoke), view.tasks, seed=seed, proportion=True)


def speak_rate(view: View, *, seed: int = 0) -> Figure:
    """Share of all snapshots on which the arm speaks."""
    return bootstrap(mean(view.spoke), view.tasks, seed=seed, proportion=True)


def regret(view: View, *, seed: int = 0) -> Figure:
    """Mean success probability lost against the oracle that says the best measured candidate, or nothing.

    The oracle picks the best of several noisy measurements, so every arm's regret is a little too high, by the same amount.
    """
    best = np.array([truth.best_advantage for truth in view.truths])
    return bootstrap(mean(best - view.spoke * view.advantage), view.tasks, seed=seed)


def net_benefit(view: View, odds: float, *, seed: int = 0) -> Figure:
    """Hits minus `odds` times false interventions, a snapshot; `odds` = cost_false / cost_missed (Vickers and Elkin 2006)."""
    gain = np.where(view.need, _good(view), -odds * view.spoke)
    return bootstrap(mean(gain), view.tasks, seed=seed)


def _good(view: View) -> Floats:
    return view.spoke * (view.advantage > 0) * view.matched


def outcome_shares(view: View, *, seed: int = 0) -> dict[str, Figure]:
    """Share of each decision and reason, such as `gated/below_threshold`; the kinds of not speaking stay apart."""
    names = [f"{row.decision}/{row.reason}" for row in view.decisions]
    counts = Counter(names)
    return {
        name: bootstrap(mean(np.array([float(other == name) for other in names])), view.tasks, seed=seed, proportion=True)
        for name in sorted(counts, key=lambda name: -counts[name])
    }


def decision_share(view: View, decisions: Sequence[str], *, seed: int = 0) -> Figure:
    """Share of the rows that ended in one of `decisions`."""
    hits = np.array([float(row.decision in decisions) for row in view.decisions])
    return bootstrap(mean(hits), view.tasks, seed=seed, proportion=True)
