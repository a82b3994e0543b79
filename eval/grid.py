"""The sweep from saved decisions: arm, window and bank budget as scored, calibrator, alpha, cost of a missed reminder, cadence.
Judged on split `dev`.

Only `dev` is looked at (and `fit` for the calibrator): `certify` is read once a candidate, `test` never here. A cadence of c
looks at every c-th boundary of an episode; a needed snapshot in between is missed.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from eval.calibrate import Method
from eval.choose import Costs, calibrated, dev_threshold, fit_on, only_scored
from eval.decisions import Decision
from eval.operating import View, align, make_view
from eval.statistics import Floats
from eval.truth import Truth
from pmem.config import STRICT
from pmem.errors import UserError

MAX_POINTS = 20_000


@dataclass(frozen=True, slots=True)
class Scored:
    """One set of saved decisions: the arm, and what it was shown. None: as the snapshots and the runtime's default have it."""

    arm: str
    trajectory_steps: int | None = None
    bank_budget_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GridAxes:
    """Every combination is one point, for every scored arm and each of its variants (`eval.score trajectory_steps=…`)."""

    __pydantic_config__ = STRICT

    calibrators: tuple[Method, ...] = ("sigmoid", "temperature")
    """Calibrators tried."""
    alphas: tuple[float, ...] = (0.02, 0.05, 0.10)
    """Allowed false-intervention rates."""
    costs_missed: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Costs of a missed reminder, beside cost_false."""
    cadences: tuple[int, ...] = (1, 2, 5, 10)
    """Tool steps between two looks of the policy."""

    def size(self, num_scored: int) -> int:
        """Number of points over so many sets of decisions. Raises UserError when it is absurd."""
        lengths = (num_scored, len(self.calibrators), len(self.alphas), len(self.costs_missed), len(self.cadences))
        size = int(np.prod(lengths))
        if size > MAX_POINTS:
            raise UserError(f"grid: {size} points; at most {MAX_POINTS} make sense, drop values from an axis")
        if not size:
            raise UserError("grid: an axis is empty; give each at least one value")
        if bad := [alpha for alpha in self.alphas if not 0 < alpha < 1]:
            raise UserError(f"grid: alpha {bad[0]:g} is not a rate; it must lie between 0 and 1")
        if bad := [cost for cost in self.costs_missed if not cost > 0]:
            raise UserError(f"grid: costs_missed {bad[0]:g} is no cost; it must lie above 0")
        if min(self.cadences) < 1:
            raise UserError(f"grid: cadence {min(self.cadences)} is not a number of tool steps; use 1 or more")
        return size


def sweep_points(
    scored: Mapping[Scored, Sequence[Decision]], fit: dict[str, Truth], dev: dict[str, Truth], axes: GridAxes, *,
    cost_false: float, delta: float, grid: Floats,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """One row a point: its settings, the threshold it chooses and what it does on `dev`."""
    for shown, method in itertools.product(scored, axes.calibrators):
        arm = shown.arm
        calibrator = fit_on(arm, only_scored(fit, scored[shown]), scored[shown], method)
        seen = only_scored(dev, scored[shown])
        rows = align(scored[shown], seen, arm)
        probs = calibrated(rows, calibrator)
        silent = make_view(arm, seen, rows, probs, None)
        lowest = {alpha: dev_threshold(silent, alpha, grid) for alpha in axes.alphas}
        for alpha, missed in itertools.product(axes.alphas, axes.costs_missed):
            costs = Costs(alpha=alpha, delta=delta, cost_false=cost_false, cost_missed=missed)
            threshold = max(costs.threshold, lowest[alpha])
            view = make_view(arm, seen, rows, probs, threshold).known()
            for cadence in axes.cadences:
                settings = {
                    **asdict(shown), "calibrator": method, "alpha": alpha, "cost_missed": missed, "cadence": cadence,
                    "threshold": round(threshold, 6),
                }  # fmt: skip
                yield {**settings, **point_values(at_cadence(view, cadence), cost_false / missed)}


def at_cadence(view: View, cadence: int) -> View:
    """The view when only every `cadence`-th boundary is looked at."""
    looked = np.array([truth.boundary % cadence == cadence - 1 for truth in view.truths], dtype=float)
    return replace(view, spoke=view.spoke * looked)


def point_values(view: View, odds: float) -> dict[str, float | None]:
    """False-intervention rate, recall, hit rate and net benefit of a view, without intervals (a sweep is a search, not a
    claim).
    """
    need = view.need
    good = view.spoke * (view.advantage > 0) * view.matched
    quiet: dict[str, list[float]] = {}
    for truth, said in zip(view.truths, view.spoke):
        if not truth.need:
            quiet.setdefault(truth.episode, []).append(float(said))
    return {
        "false_intervention_rate": float(np.mean([np.mean(said) for said in quiet.values()])) if quiet else None,
        "recall_needed": float(good[need].mean()) if need.any() else None,
        "hit_rate": float(good.sum() / view.spoke.sum()) if view.spoke.any() else None,
        "net_benefit": float(np.mean(np.where(need, good, -odds * view.spoke))) if len(view) else None,
    }
