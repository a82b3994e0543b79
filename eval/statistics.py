"""Figures with intervals: clustered bootstrap, ranking, calibration and selectivity. Never a number without its interval.

One invariant: every statistic is written for *weighted* rows, weights of shape (R, N) for R resamples at once, so the value (all
weights 1) and its bootstrap replicates come from the same few lines. Ours are only what no kept library has: the clustered
bootstrap, the debiased calibration error (Kumar et al. 2019, arXiv 1909.10155) and AUGRC (Traub et al. 2024, arXiv 2407.01032).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t
from statsmodels.stats.proportion import proportion_confint

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Weights (R, N) -> values (R,); NaN where a resample leaves the statistic undefined."""

NUM_RESAMPLES = 2_000
LEVEL = 0.95
BLOCK_CELLS = 4_000_000
"""Weights are made in blocks of this many cells, so that memory stays flat whatever the number of rows."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, its interval at `LEVEL`, and the number of independent rows it rests on. None: not measured."""

    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int

    def as_json(self) -> dict[str, Any]:
        """The form of `verdict.json`."""
        return asdict(self)

    def text(self, digits: int = 3) -> str:
        """`0.912 [0.871, 0.944]`, or a dash when it was not measured."""
        if self.value is None:
            return "–"
        if self.ci_low is None or self.ci_high is None:
            return f"{self.value:.{digits}f}"
        return f"{self.value:.{digits}f} [{self.ci_low:.{digits}f}, {self.ci_high:.{digits}f}]"


NOT_MEASURED = Figure(None, None, None, 0)


def cluster_codes(clusters: Sequence[str]) -> NDArray[np.int64]:
    """Cluster names -> integers 0..C-1, in sorted order of the names."""
    return np.unique(np.asarray(clusters, dtype=object).astype(str), return_inverse=True)[1].astype(np.int64)


def bootstrap(
    statistic: Statistic, clusters: Sequence[str], *, seed: int = 0, resamples: int = NUM_RESAMPLES, proportion: bool = False
) -> Figure:
    """`statistic` over all rows, with a percentile interval from resampling whole clusters.

    The percentiles are widened for few clusters (Hesterberg 2015, expanded percentile). A `proportion` whose replicates
    never move (0 of n, n of n) gets the exact binomial interval over clusters instead of one of width 0.
    """
    num_rows = len(clusters)
    if num_rows == 0:
        return NOT_MEASURED
    value = float(statistic(np.ones((1, num_rows)))[0])
    if not np.isfinite(value):
        return Figure(None, None, None, num_rows)
    codes = cluster_codes(clusters)
    num_clusters = int(codes.max()) + 1
    replicates = _replicates(statistic, codes, num_clusters, seed, resamples)
    if num_clusters < 2 or len(replicates) < 2:
        return Figure(value, None, None, num_rows)
    if proportion and np.ptp(replicates) < 1e-12:
        low, high = proportion_confint(round(value * num_clusters), num_clusters, alpha=1 - LEVEL, method="beta")
        return Figure(value, float(low), float(high), num_rows)
    tail = float(norm.cdf(np.sqrt(num_clusters / (num_clusters - 1)) * t.ppf((1 - LEVEL) / 2, num_clusters - 1)))
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Figure(value, float(low), float(high), num_rows)


def _replicates(statistic: Statistic, codes: NDArray[np.int64], num_clusters: int, seed: int, resamples: int) -> Floats:
    """Finite bootstrap replicates, shape (<= resamples,)."""
    generator = np.random.default_rng(seed)
    block = max(1, min(resamples, BLOCK_CELLS // len(codes)))
    values = []
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        draws = generator.multinomial(num_clusters, np.full(num_clusters, 1 / num_clusters), size=count)  # (count, C)
        with np.errstate(divide="ignore", invalid="ignore"):
            values.append(statistic(draws[:, codes].astype(np.float64)))
    replicates = np.concatenate(values)
    return replicates[np.isfinite(replicates)]


def ratio(numerator: Floats, denominator: Floats) -> Statistic:
    """Sum of `numerator` over sum of `denominator`, rows of shape (N,)."""

    def value(weights: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (weights @ numerator) / (weights @ denominator)

    return value


def mean(values: Floats) -> Statistic:
    """Mean over rows."""
    return ratio(values, np.ones_like(values))


def auroc(scores: Floats, positive: NDArray[np.bool_]) -> Statistic:
    """Area under the ROC curve; ties count half."""
    order, starts = _levels(scores)
    labels = positive[order].astype(np.float64)

    def value(weights: Floats) -> Floats:
        ordered = weights[:, order]
        wins = np.add.reduceat(ordered * labels, starts, axis=1)  # (R, L) weight of positives a level
        losses = np.add.reduceat(ordered * (1 - labels), starts, axis=1)
        below = np.cumsum(losses, axis=1) - losses
        with np.errstate(divide="ignore", invalid="ignore"):
            return (wins * (below + losses / 2)).sum(axis=1) / (wins.sum(axis=1) * losses.sum(axis=1))

    return value


def auprc(scores: Floats, positive: NDArray[np.bool_]) -> Statistic:
    """Average precision, as scikit-learn defines it. Its chance level is the base rate."""
    order, starts = _levels(-scores)
    labels = positive[order].astype(np.float64)

    def value(weights: Floats) -> Floats:
        ordered = weights[:, order]
        hits = np.add.reduceat(ordered * labels, starts, axis=1)
        said = np.cumsum(np.add.reduceat(ordered, starts, axis=1), axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.where(said > 0, np.cumsum(hits, axis=1) / said, 0.0)
            return (hits * precision).sum(axis=1) / hits.sum(axis=1)

    return value


def _levels(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ascending order of the rows, and where each run of equal scores starts in it."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return order, starts


def brier(prob: Floats, positive: NDArray[np.bool_]) -> Statistic:
    """Mean squared distance of probability and truth."""
    return mean((prob - positive) ** 2)


def equal_mass_bins(prob: Floats, num_bins: int) -> NDArray[np.int64]:
    """Bin of each row; edges are quantiles, equal probabilities never part."""
    edges = np.unique(np.quantile(prob, np.linspace(0, 1, num_bins + 1)[1:-1], method="inverted_cdf"))
    return np.searchsorted(edges, prob, side="left")


def squared_calibration_error(prob: Floats, positive: NDArray[np.bool_], num_bins: int) -> Statistic:
    """Debiased squared calibration error over equal-mass bins: sum_b w_b [(p_b - y_b)^2 - y_b (1 - y_b) / (n_b - 1)].

    Unbiased for the binned error at weights 1; may be negative. Bins with less than two rows are left out.
    """
    members = _one_hot(equal_mass_bins(prob, num_bins))  # (N, B)

    def value(weights: Floats) -> Floats:
        count = weights @ members  # (R, B)
        with np.errstate(divide="ignore", invalid="ignore"):
            said = (weights * prob) @ members / count
            true = (weights * positive) @ members / count
            terms = np.where(count > 1, (said - true) ** 2 - true * (1 - true) / (count - 1), 0.0)
        return (count * terms).sum(axis=1) / count.sum(axis=1)

    return value


def debiased_ece(prob: Floats, positive: NDArray[np.bool_], num_bins: int = 10) -> Statistic:
    """Root of the debiased squared calibration error, 0 where that is negative (Kumar et al. 2019)."""
    squared = squared_calibration_error(prob, positive, num_bins)
    return lambda weights: np.sqrt(np.maximum(squared(weights), 0.0))


def _one_hot(codes: NDArray[np.int64]) -> Floats:
    members = np.zeros((len(codes), int(codes.max()) + 1))
    members[np.arange(len(codes)), codes] = 1.0
    return members


def murphy(prob: Floats, positive: NDArray[np.bool_], num_bins: int = 10) -> dict[str, float]:
    """Brier = reliability - resolution + uncertainty + within (Murphy 1973; the last is what binning leaves, Stephenson 2008)."""
    members = _one_hot(equal_mass_bins(prob, num_bins))
    share = members.sum(axis=0) / len(prob)
    keep = share > 0
    said = (prob @ members)[keep] / (share[keep] * len(prob))
    true = (positive @ members)[keep] / (share[keep] * len(prob))
    base = float(np.mean(positive))
    parts = {
        "reliability": float(share[keep] @ (said - true) ** 2),
        "resolution": float(share[keep] @ (true - base) ** 2),
        "uncertainty": base * (1 - base),
    }
    whole = float(np.mean((prob - positive) ** 2))
    return {**parts, "within": whole - parts["reliability"] + parts["resolution"] - parts["uncertainty"], "brier": whole}


def spiegelhalter(prob: Floats, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Spiegelhalter's z and its two-sided p-value (1986); large |z| = not calibrated. Treats rows as independent."""
    variance = float(np.sum((1 - 2 * prob) ** 2 * prob * (1 - prob)))
    if variance <= 0:
        return 0.0, 1.0
    z = float(np.sum((positive - prob) * (1 - 2 * prob)) / np.sqrt(variance))
    return z, float(2 * norm.sf(abs(z)))


def risk_coverage(confidence: Floats, failure: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Coverage, selective risk and generalised risk (failures among all rows) after each further row, most confident first."""
    order = np.argsort(-confidence, kind="stable")
    failures = np.cumsum(failure[order])
    taken = np.arange(1, len(order) + 1)
    return taken / len(order), failures / taken, failures / len(order)


def augrc(confidence: Floats, failure: NDArray[np.bool_]) -> Statistic:
    """Area under generalised risk against coverage: 0 is perfect, an error rate e ranked by chance gives e / 2."""
    order = np.argsort(-confidence, kind="stable")
    failed = failure[order].astype(np.float64)

    def value(weights: Floats) -> Floats:
        ordered = weights[:, order]
        total = ordered.sum(axis=1, keepdims=True)
        reached = np.cumsum(ordered * failed, axis=1) / total
        before = np.concatenate([np.zeros((len(weights), 1)), reached[:, :-1]], axis=1)
        return ((reached + before) / 2 * ordered / total).sum(axis=1)

    return value
