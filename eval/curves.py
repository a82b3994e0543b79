"""Points of the report's pictures: reliability with a consistency band, histogram, risk and coverage, net benefit over cost
ratios.
"""

from typing import Any

import numpy as np

from eval.operating import View
from eval.statistics import Floats, equal_mass_bins, risk_coverage

NUM_BINS = 8
NUM_DRAWS = 1_000


def reliability(view: View, *, seed: int) -> list[dict[str, float]]:
    """One point a bin of equal mass: mean probability, share that needed a reminder, and the band in which 95 % of the
    shares of a perfectly calibrated model with these very probabilities would fall (Bröcker and Smith 2007).
    """
    view = view.known()
    read = np.isfinite(view.prob)
    prob, need = view.prob[read], view.need[read]
    if not len(prob):
        return []
    generator = np.random.default_rng(seed)
    codes = equal_mass_bins(prob, NUM_BINS)
    points = []
    for code in np.unique(codes):
        members = prob[codes == code]
        shares = (generator.random((NUM_DRAWS, len(members))) < members).mean(axis=1)
        low, high = np.quantile(shares, [0.025, 0.975])
        points.append({
            "prob": float(members.mean()), "share": float(need[codes == code].mean()), "n": len(members),
            "band_low": float(low), "band_high": float(high),
        })  # fmt: skip
    return points


def histogram(view: View, bins: int = 20) -> list[dict[str, int]]:
    """Counts of calibrated probabilities on [0, 1], needed and silence-is-right apart."""
    view = view.known()
    read = np.isfinite(view.prob)
    edges = np.linspace(0, 1, bins + 1)
    needed = np.histogram(view.prob[read & view.need], edges)[0]
    quiet = np.histogram(view.prob[read & ~view.need], edges)[0]
    return [{"need": int(a), "quiet": int(b)} for a, b in zip(needed, quiet)]


def confidence_and_failure(view: View, threshold: float) -> tuple[Floats, np.ndarray]:
    """How far the probability lies from the threshold, on its own side scaled to 1; and whether the action there was wrong.

    Wrong: speaking where silence was right, silence or a useless reminder where one was needed.
    """
    prob = np.nan_to_num(view.prob, nan=0.0)
    above = np.clip((prob - threshold) / max(1e-9, 1 - threshold), 0, None)
    below = np.clip((threshold - prob) / max(1e-9, threshold), 0, None)
    good = (view.spoke > 0) & (view.advantage > 0) & view.matched
    return np.where(prob >= threshold, above, below), np.where(view.need, ~good, view.spoke > 0)


def risk_curve(view: View, threshold: float) -> list[dict[str, float]]:
    """Coverage against the share of wrong actions among the covered, most certain first."""
    view = view.known()
    if not len(view):
        return []
    coverage, risk, general = risk_coverage(*confidence_and_failure(view, threshold))
    return [{"coverage": float(c), "risk": float(r), "generalised": float(g)} for c, r, g in zip(coverage, risk, general)]


def net_benefit_curve(view: View) -> list[dict[str, float]]:
    """Net benefit a snapshot of this arm as it stands, over cost ratios cost_false / cost_missed = 2^log_odds, 1/16 to 4."""
    view = view.known()
    good = view.spoke * (view.advantage > 0) * view.matched
    hits, false = float(good[view.need].sum()), float(view.spoke[~view.need].sum())
    powers = np.arange(-4, 2.5, 0.5)
    return [{"log_odds": float(power), "net_benefit": float(hits - 2.0**power * false) / max(1, len(view))} for power in powers]


def slider_rows(view: View) -> list[dict[str, Any]]:
    """What the report's slider needs of each known snapshot: probability, need, whether its reminder helps, episode, whether
    a threshold is all that stands between it and speaking.
    """
    view = view.known()
    episodes = {name: index for index, name in enumerate(sorted({truth.episode for truth in view.truths}))}
    rows = []
    for place, (truth, row) in enumerate(zip(view.truths, view.decisions)):
        good = view.matched[place] and view.advantage[place] > 0 and bool(row.reminder_text)
        rows.append({
            "p": round(float(np.nan_to_num(view.prob[place], nan=0.0)), 4),
            "need": int(truth.need),
            "good": int(good),
            "e": episodes[truth.episode],
            "can": int(row.reason in {"intervened", "below_threshold", "model_silent"}),
        })  # fmt: skip
    return rows
