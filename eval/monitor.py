"""After promotion: does it still keep its word? Folds live telemetry and labels, and says demote when it must.

Run:  python -m eval.monitor steps=~/.local/state/pmem/memory/steps.jsonl threshold=runs/quickstart/threshold.json
      python -m eval.monitor … labels=labels.jsonl reference=runs/quickstart/decisions/sft_grpo.parquet exit_code=true
Watched: the certified risk with a time-uniform lower bound (MAPIE `RiskMonitoring`, Podkopaev and Ramdas 2022), so it may be
looked at after every label; action rate inside its band; drift of probabilities and prompt sizes against the decisions of
promotion; failures. Labels are JSON lines {"needed": bool, "spoke": bool, "kind": "hindsight" | "human"} in order of time, and
"episode" where steps of one session were labelled: the bound counts independent units, so of each episode its first
silence-is-right step is taken. Hindsight rules need kept rollouts.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring
from scipy.stats import ks_2samp
from statsmodels.stats.proportion import proportion_confint

from eval.decisions import read_decisions
from pmem.atomic import write_text
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.telemetry import Rows, StepRow, read_rows
from pmem.threshold import Threshold

LABEL_KEYS = {"needed", "spoke", "kind"}


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorConfig:
    """What is watched, and when it is too much."""

    steps: Path = Path("steps.jsonl")
    """Telemetry of the runtime (`pmem.step/1`)."""
    threshold: Path = Path("runs/quickstart/threshold.json")
    """The promoted threshold."""
    labels: Path | None = None
    """Labelled steps; without them the certified risk is not watched, and the verdict says so."""
    reference: Path | None = None
    """Decisions of promotion, the reference of drift."""
    action_rate: tuple[float, float] = (0.005, 0.5)
    """Band of the share of prompted steps that speak: below it fell silent, above it chatters."""
    failures: float = 0.05
    """Largest share of malformed, timed-out and failed steps."""
    drift_level: float = 0.001
    """p-value of the Kolmogorov–Smirnov test below which drift is reported."""
    drift_distance: float = 0.2
    """Least distance of the two distributions that matters, however small its p-value."""
    min_steps: int = 100
    """Prompted steps below which rates and drift are not judged."""
    out: Path | None = None
    """Write the result as JSON here."""
    exit_code: bool = False
    """Exit with 1 when it says demote."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One thing that is watched. `fine` None: not enough to say."""

    name: str
    fine: bool | None
    figure: float | None
    sentence: str


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(MonitorConfig, __doc__, Path("configs/monitor.yaml"), argv)
    threshold = read_any_threshold(config.threshold)
    rows = read_steps(config.steps.expanduser())
    watched = watch(config, threshold, rows)
    demote = any(one.fine is False for one in watched)
    if config.out:
        content = {"format": "pmem.monitor/1", "demote": demote, "steps": len(rows), "watched": [asdict(one) for one in watched]}
        write_text(config.out, json.dumps(content, indent=1) + "\n")
    for one in watched:
        word = {True: "fine     ", False: "NOT FINE ", None: "unknown  "}[one.fine]
        print(f"  {word} {one.name}: {one.sentence}")
    print(f"monitor: {len(rows)} prompted steps; {'demote: go back to the rules tier' if demote else 'keep'}")
    return 1 if demote and config.exit_code else 0


def read_steps(path: Path) -> list[StepRow]:
    """Prompted steps. Raises UserError where nothing can be read: a watchman without a book must not say "keep"."""
    skipped = Rows()
    rows = list(read_rows(path, StepRow, skipped))
    if not path.is_file() and not rows:
        raise UserError(f"{path} is not a file; name the steps file of the runtime (`pmem paths` says where it stands)")
    if skipped.num_skipped and not rows:
        raise UserError(f"{path} holds no row of pmem.step/1; name the steps file of the runtime (`pmem paths`)")
    if skipped.num_skipped:
        print(f"  {skipped.num_skipped} lines of {path} could not be read and are left out", file=sys.stderr)
    return [row for row in rows if row.tier == "llm"]


def watch(config: MonitorConfig, threshold: Threshold, rows: Sequence[StepRow]) -> list[Watched]:
    """Everything that is watched, in the order it is printed."""
    foreign = {row.threshold_id for row in rows if row.threshold_id and row.threshold_id != threshold.threshold_id}
    found = [Watched("threshold", not foreign, None, f"{len(foreign)} other thresholds among the rows")]
    found.append(watch_risk(threshold, read_labels(config.labels)) if config.labels else
                 Watched("certified risk", None, None, "no labels were given, so it is not watched"))  # fmt: skip
    ended = [row for row in rows if row.decision not in {"dropped", "cancelled", "expired"}]
    if len(ended) < config.min_steps:
        return [*found, Watched("rates", None, None, f"{len(ended)} steps, {config.min_steps} are wanted")]
    spoke = sum(row.decision == "injected" for row in ended)
    low, high = config.action_rate
    found.append(_rate("action rate", spoke, len(ended), low, high))
    failed = sum(row.decision in {"malformed", "timeout", "error"} for row in ended)
    found.append(_rate("failures", failed, len(ended), 0.0, config.failures))
    return [*found, *watch_drift(config, ended)]


def watch_risk(threshold: Threshold, labels: Sequence[dict[str, Any]]) -> Watched:
    """The false-intervention rate on labelled steps against alpha, at confidence 1 - delta at every moment together."""
    quiet = np.array([label["spoke"] for label in first_of_each([label for label in labels if not label["needed"]])], dtype=int)
    if threshold.alpha is None or not len(quiet):
        return Watched("certified risk", None, None, "nothing to hold it against")
    level = min(0.98, 2 * (threshold.delta or 0.05))  # MAPIE spends half on the reference, which is given here
    monitor = RiskMonitoring(risk="fpr", test_level=level, threshold=threshold.alpha, warn=False)
    monitor.update(np.zeros(len(quiet), dtype=int), quiet)
    sentence = (
        f"{quiet.mean():.1%} of {len(quiet)} silence-is-right steps were spoken to; the rate is above {_latest(monitor):.1%} "
        f"with {1 - level / 2:.0%} confidence at any time, {threshold.alpha:.0%} is allowed"
    )
    return Watched("certified risk", not monitor.harmful_shift_detected, float(quiet.mean()), sentence)


def first_of_each(labels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first label of each episode, in order of time; a label that names none is an episode of its own."""
    seen: set[str] = set()
    kept = []
    for label in labels:
        episode = label.get("episode")
        if episode is None or episode not in seen:
            kept.append(label)
        if episode is not None:
            seen.add(episode)
    return kept


def _latest(monitor: RiskMonitoring) -> float:
    bound = monitor.online_risk_lower_bound_latest
    return max(0.0, float(bound)) if bound is not None else 0.0


def watch_drift(config: MonitorConfig, rows: Sequence[StepRow]) -> list[Watched]:
    """Probabilities and prompt sizes against the decisions of promotion."""
    if config.reference is None:
        return [Watched("drift", None, None, "no reference decisions were given")]
    reference = [row for row in read_decisions(config.reference) if row.sample_index is None]
    then = [row.prob_raw for row in reference if row.prob_raw is not None]
    now = [row.prob_speak for row in rows if row.prob_speak is not None]
    sizes = [float(row.tokens_in) for row in reference], [float(row.tokens_in) for row in rows]
    return [_drift(config, "drift of probabilities", then, now), _drift(config, "drift of prompt sizes", *sizes)]


def _drift(config: MonitorConfig, name: str, then: Sequence[float], now: Sequence[float]) -> Watched:
    if not then or not now:
        return Watched(name, None, None, "no values to compare")
    result = ks_2samp(then, now)
    distance, p_value = float(result.statistic), float(result.pvalue)
    drifted = p_value < config.drift_level and distance > config.drift_distance
    return Watched(name, not drifted, distance, f"Kolmogorov–Smirnov distance {distance:.2f}, p = {p_value:.3g}")


def _rate(name: str, hits: int, number: int, low: float, high: float) -> Watched:
    """A share is out of its band only when its whole 95 % interval is."""
    lower, upper = proportion_confint(hits, number, method="wilson")
    return Watched(
        name, bool(upper >= low and lower <= high), hits / number, f"{hits / number:.1%}, allowed {low:.1%} to {high:.0%}"
    )


def read_labels(path: Path) -> list[dict[str, Any]]:
    """Labelled steps in order of time. Raises UserError with file and line."""
    labels = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; write one JSON line a labelled step") from None
    for number, line in enumerate(lines, start=1):
        try:
            label = json.loads(line)
        except json.JSONDecodeError:
            raise UserError(f"{path} line {number}: not valid JSON") from None
        if not isinstance(label, dict) or set(label) - {"episode"} != LABEL_KEYS or not isinstance(label["needed"], bool):
            raise UserError(f"{path} line {number}: wants the keys needed, spoke and kind, and may name its episode")
        labels.append(label)
    return labels


def read_any_threshold(path: Path) -> Threshold:
    """The threshold file for whatever model it names."""
    try:
        return Threshold.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"threshold file {path} does not exist; `python -m eval.sweep` writes it") from None
    except ValueError:
        raise UserError(f"{path} is not a pmem.threshold/1 file; `python -m eval.sweep` writes it") from None


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
