"""From trial results to figures: pass rate, reminders, cost of an injection, and every arm paired with never and with rules."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from eval.live import TrialResult
from eval.paired import PairedDifference, paired_difference, pairs_needed, power_paired
from eval.statistics import NOT_MEASURED, Figure, Floats, bootstrap, mean, ratio

BASELINES = ("never", "rules")


def task_of(trial: TrialResult) -> str:
    """The cluster of a trial."""
    return f"{trial.family}/{trial.seed}"


def trial_key(trial: TrialResult) -> tuple[str, int, str, int]:
    """What two arms must share to be a matched pair."""
    return (trial.family, trial.seed, trial.agent, trial.agent_seed)


def live_figures(trials: Sequence[TrialResult], *, seed: int = 0) -> dict[str, Figure]:
    """The live metrics of verdict.json for one arm."""
    tasks = [task_of(trial) for trial in trials]
    said = _column(trials, "num_reminders")
    tokens = _column(trials, "tokens_in") + _column(trials, "tokens_out")
    seconds = _column(trials, "model_ms") / 1000
    spoke = bool(said.sum())
    return {
        "pass_rate": bootstrap(mean(_column(trials, "success")), tasks, seed=seed, proportion=True),
        "reminders_per_task": bootstrap(mean(said), tasks, seed=seed),
        "tokens_per_injection": bootstrap(ratio(tokens, said), tasks, seed=seed) if spoke else NOT_MEASURED,
        "seconds_per_injection": bootstrap(ratio(seconds, said), tasks, seed=seed) if spoke else NOT_MEASURED,
    }


def more_figures(trials: Sequence[TrialResult], *, seed: int = 0) -> dict[str, Figure]:
    """Beside the named metrics: acts and tokens a task, share of cited reminders, model seconds a boundary."""
    tasks = [task_of(trial) for trial in trials]
    said, boundaries = _column(trials, "num_reminders"), _column(trials, "num_boundaries")
    tokens = _column(trials, "tokens_in") + _column(trials, "tokens_out")
    return {
        "acts_per_task": bootstrap(mean(_column(trials, "num_acts")), tasks, seed=seed),
        "tokens_per_task": bootstrap(mean(tokens), tasks, seed=seed),
        "model_seconds_per_task": bootstrap(mean(_column(trials, "model_ms") / 1000), tasks, seed=seed),
        "cited_share": bootstrap(ratio(_column(trials, "num_cited"), said), tasks, seed=seed, proportion=True) if said.sum()
        else NOT_MEASURED,
        "reminders_per_boundary": bootstrap(ratio(said, boundaries), tasks, seed=seed) if boundaries.sum() else NOT_MEASURED,
    }  # fmt: skip


def compare(arm: Sequence[TrialResult], baseline: Sequence[TrialResult], *, seed: int = 0) -> PairedDifference:
    """Paired difference of success over the trials that both arms ran."""
    other = {trial_key(trial): trial for trial in baseline}
    pairs = [(trial, other[trial_key(trial)]) for trial in arm if trial_key(trial) in other]
    left = np.array([float(trial.success) for trial, _ in pairs])
    right = np.array([float(trial.success) for _, trial in pairs])
    return paired_difference(left, right, [task_of(trial) for trial, _ in pairs], seed=seed)


def paired_json(paired: PairedDifference) -> dict[str, Any]:
    """A comparison as it stands in ab.json."""
    return {**asdict(paired), "difference": paired.difference.as_json()}


def always_noisy_regression(arm: Sequence[TrialResult], baseline: Sequence[TrialResult]) -> bool:
    """At least one injected reminder a trial, and no better than the baseline: noise that costs."""
    said = sum(trial.num_reminders for trial in arm)
    passed = sum(trial.success for trial in arm) / max(1, len(arm))
    return bool(arm) and said >= len(arm) and passed <= sum(trial.success for trial in baseline) / max(1, len(baseline))


def arm_json(name: str, results: dict[str, list[TrialResult]], *, seed: int) -> dict[str, Any]:
    """Everything ab.json says of one arm."""
    trials = results[name]
    outcomes: Counter[str] = Counter()
    for trial in trials:
        outcomes.update(trial.outcomes)
    paired = {
        base: paired_json(compare(trials, results[base], seed=seed)) for base in BASELINES if base in results and base != name
    }
    agents = sorted({trial.agent for trial in trials})
    return {
        "num_trials": len(trials),
        "figures": {key: figure.as_json() for key, figure in live_figures(trials, seed=seed).items()},
        "more": {key: figure.as_json() for key, figure in more_figures(trials, seed=seed).items()},
        "paired": paired,
        "by_agent": {agent: _agent_json(name, agent, results, seed) for agent in agents},
        "always_noisy_regression": always_noisy_regression(trials, results.get("never", [])) if name != "never" else False,
        "outcomes": dict(outcomes.most_common()),
        "num_rows": sum(trial.num_rows for trial in trials),
    }


def _agent_json(name: str, agent: str, results: dict[str, list[TrialResult]], seed: int) -> dict[str, Any]:
    mine = [trial for trial in results[name] if trial.agent == agent]
    rate = bootstrap(mean(_column(mine, "success")), [task_of(trial) for trial in mine], seed=seed, proportion=True)
    never = [trial for trial in results.get("never", []) if trial.agent == agent]
    return {
        "pass_rate": rate.as_json(),
        "paired_never": paired_json(compare(mine, never, seed=seed)) if never and name != "never" else None,
    }


def power_json(results: dict[str, list[TrialResult]], candidate: str, expected: float) -> dict[str, Any]:
    """What the run can show: power for the expected difference at the observed discordance, and pairs for 80 %."""
    if candidate not in results or "never" not in results:
        return {
            "pairs": 0,
            "power": None,
            "pairs_for_80_percent": None,
            "detectable": None,
            "discordant": None,
            "expected": expected,
        }
    paired = compare(results[candidate], results["never"])
    discordant = max((paired.helped + paired.harmed) / max(1, paired.pairs), expected)
    return {
        "pairs": paired.pairs, "expected": expected, "discordant": discordant,
        "power": power_paired(paired.pairs, expected, discordant),
        "pairs_for_80_percent": pairs_needed(expected, discordant), "detectable": paired.detectable,
    }  # fmt: skip


def _column(trials: Sequence[TrialResult], name: str) -> Floats:
    return np.array([float(getattr(trial, name)) for trial in trials], dtype=np.float64)
