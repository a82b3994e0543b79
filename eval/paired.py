"""Matched trials: the paired difference of two arms, exact McNemar, non-inferiority, and the power stated before any claim.

Sources: Miller 2024 (arXiv 2411.00640) for clustered paired differences; Connor 1987 for the power of paired proportions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, norm
from statsmodels.stats.contingency_tables import mcnemar

from eval.statistics import Figure, Floats, bootstrap, mean


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """`difference` of success (arm minus baseline), discordant pairs, exact McNemar p-value, and what the pairs can detect."""

    difference: Figure
    helped: int
    harmed: int
    p_value: float | None
    detectable: float
    pairs: int


def paired_difference(arm: Floats, baseline: Floats, tasks: Sequence[str], *, seed: int = 0) -> PairedDifference:
    """Compare success of matched trials, arrays of shape (N,) with values in [0, 1].

    The interval resamples tasks. McNemar assumes one trial a task, so it is None when a task has several.
    """
    helped = int(np.sum(arm > baseline))
    harmed = int(np.sum(arm < baseline))
    single = len(set(tasks)) == len(tasks)
    p_value = None
    if single and helped + harmed:
        p_value = float(mcnemar([[0, helped], [harmed, 0]], exact=True).pvalue)
    discordant = max((helped + harmed) / len(arm), 1 / len(arm)) if len(arm) else 1.0
    figure = bootstrap(mean(arm - baseline), tasks, seed=seed)
    return PairedDifference(figure, helped, harmed, p_value, detectable_difference(len(arm), discordant), len(arm))


def power_paired(pairs: int, difference: float, discordant: float, *, level: float = 0.95) -> float:
    """Probability that a two-sided test at `level` finds `difference` when a share `discordant` of the pairs differ."""
    spread = discordant - difference**2
    if pairs <= 0 or spread <= 0:
        return 0.0
    return float(norm.cdf(abs(difference) * math.sqrt(pairs / spread) - norm.ppf((1 + level) / 2)))


def pairs_needed(difference: float, discordant: float, *, power: float = 0.8, level: float = 0.95) -> int:
    """Pairs at which `difference` is found with probability `power`."""
    reach = float(norm.ppf((1 + level) / 2) + norm.ppf(power))
    return math.ceil((discordant - difference**2) * (reach / difference) ** 2)


def detectable_difference(pairs: int, discordant: float, *, power: float = 0.8, level: float = 0.95) -> float:
    """Smallest true difference that `pairs` pairs find with probability `power`, at most 1."""
    if pairs <= 0:
        return 1.0
    reach = float(norm.ppf((1 + level) / 2) + norm.ppf(power))
    return min(1.0, reach * math.sqrt(discordant / (pairs + reach**2)))


def units_needed(alpha: float, observed: float = 0.0, *, delta: float = 0.05, limit: int = 100_000) -> int | None:
    """Silence-is-right units with an error rate `observed` that certify a rate <= `alpha` at confidence 1 - `delta`; None: never.

    Exact binomial: the smallest n with P(Binomial(n, alpha) <= floor(n * observed)) <= delta.
    """
    if observed >= alpha:
        return None
    counts = np.arange(1, limit + 1)
    enough = np.flatnonzero(binom.cdf(np.floor(counts * observed + 1e-9), counts, alpha) <= delta)
    return int(counts[enough[0]]) if len(enough) else None
