"""The operating point of one model arm: calibrator from `fit`, threshold from costs and from the certificate on `certify`.

    tau_cost = cost_false / (cost_false + cost_missed)          shipped = max(tau_cost, certified)
Not certifiable: shipped = max(tau_cost, lowest threshold that keeps the rate on `dev`), marked uncertified; the runtime then
stays with the rules. No task may stand in two of fit, certify and dev, else the certificate would be read on what it was
fitted on.
"""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.calibrate import Method, check_probabilities, fit_calibrator
from eval.certify import Certificate, certify
from eval.decisions import Decision
from eval.operating import View, align, make_view
from eval.statistics import Floats
from eval.truth import Truth
from pmem.canonical import content_id
from pmem.errors import UserError
from pmem.threshold import Calibrator, Threshold


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What is asked of a threshold."""

    alpha: float
    delta: float
    cost_false: float
    cost_missed: float

    def __post_init__(self) -> None:
        if not (0 < self.alpha < 1 and 0 < self.delta < 1):
            raise UserError(f"alpha ({self.alpha}) and delta ({self.delta}) must lie between 0 and 1")
        if self.cost_false <= 0 or self.cost_missed <= 0:
            raise UserError(f"cost_false ({self.cost_false}) and cost_missed ({self.cost_missed}) must be above 0")

    @property
    def threshold(self) -> float:
        """Speaking pays when p * cost_missed > (1 - p) * cost_false."""
        return self.cost_false / (self.cost_false + self.cost_missed)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A threshold file's content and how it came about. `certificate` None: none was attempted, the arm was not scored on
    certify.
    """

    arm: str
    threshold: Threshold
    certificate: Certificate | None
    cost_threshold: float
    dev_threshold: float

    @property
    def sentence(self) -> str:
        """What is certified, in words."""
        return self.certificate.sentence if self.certificate else "No certificate was attempted: not scored on split certify."


def raw_probabilities(decisions: Sequence[Decision]) -> Floats:
    """Raw probability of each row; a failed read (malformed, timeout) never speaks and counts as 0. Checked."""
    values = np.array([0.0 if row.prob_raw is None else row.prob_raw for row in decisions], dtype=np.float64)
    check_probabilities(values, f"arm {decisions[0].arm}" if decisions else "decisions")
    return values


def calibrated(decisions: Sequence[Decision], calibrator: Calibrator) -> list[float | None]:
    """Calibrated probability of each row; None where the arm read none."""
    return [None if row.prob_raw is None else calibrator.apply(row.prob_raw) for row in decisions]


def operating_view(arm: str, truths: dict[str, Truth], decisions: Sequence[Decision], threshold: Threshold | None) -> View:
    """The arm on `truths` under its threshold; arms without a model pass None."""
    rows = align(decisions, truths, arm)
    probs = calibrated(rows, threshold.calibrator) if threshold else [row.prob_calibrated for row in rows]
    return make_view(arm, truths, rows, probs, threshold.threshold if threshold else None)


def fit_on(arm: str, truths: dict[str, Truth], decisions: Sequence[Decision], method: Method) -> Calibrator:
    """The calibrator of the arm from the known snapshots of split `fit`, without those where it had nothing to decide."""
    unasked = {row.snapshot_id for row in decisions if row.reason == "nothing_noted"}
    known = {name: truth for name, truth in truths.items() if truth.known and name not in unasked}
    rows = align(decisions, known, arm)
    return fit_calibrator(raw_probabilities(rows), np.array([truth.need for truth in known.values()], dtype=bool), method)


def dev_threshold(view: View, alpha: float, grid: Floats) -> float:
    """Lowest threshold of the grid whose false-intervention rate on `view` (an arm at threshold 0) is at most `alpha`.

    Without silence-is-right snapshots nothing is known and the lowest is returned.
    """
    best = float(grid[0])
    for threshold in grid:
        rate = rate_at(view, float(threshold))
        if rate is not None and rate > alpha:
            return best
        best = float(threshold)
    return best


def rate_at(view: View, threshold: float) -> float | None:
    """False-intervention rate of `prob >= threshold` on the known rows, episodes averaged first."""
    sums: dict[str, list[bool]] = {}
    for truth, prob in zip(view.truths, np.nan_to_num(view.prob, nan=0.0)):
        if truth.known and not truth.need:
            sums.setdefault(truth.episode, []).append(bool(prob >= threshold))
    return float(np.mean([np.mean(said) for said in sums.values()])) if sums else None


def choose(
    arm: str, decisions: Sequence[Decision], splits: dict[str, dict[str, Truth]], costs: Costs, *,
    method: Method, grid: Floats, seed: int, created: str | None = None,
    certify_hash: str | None = None,
) -> Chosen:  # fmt: skip
    """Calibrate, certify and choose for one arm; `splits` holds the truths of fit, certify and dev.

    An arm without truths of certify gets no certificate, one without truths of dev stands at the cost threshold.
    `certify_hash` names the whole split when only a seeded draw of it was scored.
    """
    check_disjoint(splits)
    calibrator = fit_on(arm, splits["fit"], decisions, method)
    dev = 0.0
    if splits["dev"]:
        rows = align(decisions, splits["dev"], arm)
        dev = dev_threshold(make_view(arm, splits["dev"], rows, calibrated(rows, calibrator), None), costs.alpha, grid)
    wanted = max(costs.threshold, dev)
    certificate = None
    if splits["certify"]:
        quiet = {name: truth for name, truth in splits["certify"].items() if truth.known and not truth.need}
        prob = np.array([value or 0.0 for value in calibrated(align(decisions, quiet, arm), calibrator)])
        certificate = certify(
            prob, [truth.episode for truth in quiet.values()],
            alpha=costs.alpha, delta=costs.delta, grid=grid, wanted=wanted, seed=seed,
        )  # fmt: skip
    lowest = certificate.threshold if certificate else None
    model, prompt = one_model(decisions, f"arm {arm}")
    threshold = Threshold(
        threshold=wanted if lowest is None else max(costs.threshold, lowest), certified=lowest is not None, calibrator=calibrator,
        alpha=costs.alpha, delta=costs.delta, cost_false=costs.cost_false, cost_missed=costs.cost_missed,
        num_units=certificate.num_units if certificate else 0, unit=certificate.unit if certificate else None,
        loss=certificate.loss if certificate else None, split_hash=certify_hash or split_hash(splits["certify"]),
        families=tuple(sorted({truth.family for truth in splits["certify"].values()})), decision_mode="scored",
        model_hash=model, prompt_version=prompt, created=created or timestamp(),
    )  # fmt: skip
    return Chosen(arm, threshold, certificate, costs.threshold, dev)


def only_scored(truths: dict[str, Truth], decisions: Sequence[Decision]) -> dict[str, Truth]:
    """The truths that these decisions cover."""
    scored = {row.snapshot_id for row in decisions}
    return {name: truth for name, truth in truths.items() if name in scored}


def check_disjoint(splits: dict[str, dict[str, Truth]]) -> None:
    """Raise UserError when a task stands in two splits: its certificate would be worthless."""
    owner: dict[str, str] = {}
    for split, truths in splits.items():
        for truth in truths.values():
            if owner.setdefault(truth.task, split) != split:
                raise UserError(f"task {truth.task} stands in split {owner[truth.task]} and in {split}; split by task again")


def split_hash(truths: dict[str, Truth]) -> str:
    """Content hash of a split: which snapshots, with which verdicts."""
    return content_id(sorted((truth.snapshot_id, truth.verdict) for truth in truths.values()))


def one_model(decisions: Sequence[Decision], where: str) -> tuple[str, str]:
    """Model hash and prompt version shared by all rows. Raises UserError when the rows are of several models."""
    kinds = sorted({(row.model_hash or "", row.prompt_version or "") for row in decisions})
    if len(kinds) != 1:
        raise UserError(f"{where}: rows of {len(kinds)} models or prompt versions stand in one file; score the arm again")
    return kinds[0]


def timestamp() -> str:
    """UTC time of writing; SOURCE_DATE_EPOCH fixes it for reproducible files."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch else datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="seconds")
