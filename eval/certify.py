"""Learn-Then-Test: the lowest threshold whose false-intervention rate is at most alpha with confidence 1 - delta, or none.

Angelopoulos et al. 2021 (arXiv 2110.01052), fixed-sequence testing from the safest threshold down, by MAPIE. The
exchangeable unit is the episode, because turns of one episode err together: with 200 episodes or more their loss (share of
silence-is-right snapshots spoken to, Hoeffding-Bentkus), with fewer one seeded random snapshot of each (exact binomial
tail). The grid is fixed beforehand.
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mapie.risk_control import BinaryClassificationController
from mapie.risk_control.fwer_control import control_fwer
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from numpy.typing import NDArray

from eval.paired import units_needed
from eval.statistics import Floats
from pmem.errors import UserError

EPISODE_LOSS_FROM = 200
MAX_GRID = 10_000


@dataclass(frozen=True, slots=True)
class Certificate:
    """`threshold` is None when nothing on the grid can be certified. `observed` is the error rate at `threshold`, or at
    `wanted`.
    """

    threshold: float | None
    alpha: float
    delta: float
    num_units: int
    unit: str
    loss: str
    observed: float
    wanted: float
    more_units: int | None

    @property
    def sentence(self) -> str:
        """What is certified, or how much is missing."""
        level, unit = f"{1 - self.delta:.0%}", f"{self.num_units} episodes ({self.unit.replace('_', ' ')})"
        if self.threshold is not None:
            return (
                f"Certified: false-intervention rate at most {self.alpha:.0%} with {level} confidence at thresholds from "
                f"{self.threshold:.2f} up, on {unit}."
            )
        start = f"Cannot be certified with {unit} at {self.alpha:.0%} and {level} confidence"
        seen = f"{start}: at the wanted threshold {self.wanted:.2f} the observed rate is {self.observed:.1%}"
        if self.more_units is None:
            return f"{seen}; the ranking must improve."
        return f"{seen}; {self.more_units} more silence-is-right episodes at that rate are needed."


def make_grid(points: int) -> Floats:
    """Thresholds from the safest (0.99) to the riskiest (0.01), fixed before any data is seen."""
    if not 2 <= points <= MAX_GRID:
        raise UserError(f"grid_points is {points}; choose 2 to {MAX_GRID} (99 steps of 0.01 are plenty)")
    return np.linspace(0.99, 0.01, points)


def certify(
    prob: Floats, episodes: Sequence[str], *, alpha: float, delta: float, grid: Floats, wanted: float, seed: int,
    episode_loss_from: int = EPISODE_LOSS_FROM,
) -> Certificate:  # fmt: skip
    """Certify on silence-is-right snapshots only: calibrated `prob` (N,) and the episode of each.

    Speaking means prob >= threshold, before any other gate, which is an upper bound of what the runtime says.
    """
    if not len(prob):
        raise UserError("split certify holds no silence-is-right snapshot; simulate more episodes")
    if len(set(episodes)) >= episode_loss_from:
        losses = episode_losses(prob, episodes, grid)
        threshold = certify_losses(losses, alpha=alpha, delta=delta, grid=grid)
        units, unit, loss = len(losses), "episode", "episode_mean"
        at_wanted = float(episode_losses(prob, episodes, np.array([wanted])).mean())
    else:
        chosen = prob[one_per_episode(episodes, seed)]
        threshold = certify_binary(chosen, alpha=alpha, delta=delta, grid=grid)
        units, unit, loss = len(chosen), "snapshot_per_episode", "binary"
        at_wanted = float(np.mean(chosen >= wanted))
    needed = units_needed(alpha, at_wanted, delta=delta)
    more = None if needed is None else max(1, needed - units)
    return Certificate(threshold, alpha, delta, units, unit, loss, at_wanted, wanted, None if threshold is not None else more)


def certify_binary(prob: Floats, *, alpha: float, delta: float, grid: Floats) -> float | None:
    """One independent silence-is-right unit a row: the lowest certified threshold of `grid`, or None."""
    controller = BinaryClassificationController(
        lambda rows: np.column_stack([1 - rows[:, 0], rows[:, 0]]),
        risk="fpr", target_level=float(alpha), confidence_level=1 - delta, best_predict_param_choice="fpr",
        list_predict_params=grid, fwer_method="fixed_sequence",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "nothing can be controlled" is an answer here, not a warning
        controller.calibrate(prob[:, None], np.zeros(len(prob), dtype=int))
    valid = np.asarray(controller.valid_predict_params, dtype=float)
    return float(valid.min()) if len(valid) else None


def certify_losses(losses: Floats, *, alpha: float, delta: float, grid: Floats) -> float | None:
    """Losses in [0, 1] of independent episodes, shape (E, G) over `grid` from safe to risky: the lowest certified threshold."""
    risk = losses.mean(axis=0)
    p_values = compute_hoeffding_bentkus_p_value(risk, len(losses), alpha, binary=False)[:, 0]
    valid = control_fwer(p_values, delta, "fixed_sequence")
    return float(grid[valid].min()) if len(valid) else None


def episode_losses(prob: Floats, episodes: Sequence[str], grid: Floats) -> Floats:
    """Share of an episode's snapshots at or above each threshold, shape (E, G)."""
    names, codes = np.unique(np.asarray(episodes, dtype=str), return_inverse=True)
    said = (prob[:, None] >= grid[None, :]).astype(float)
    sums = np.zeros((len(names), len(grid)))
    np.add.at(sums, codes, said)
    return sums / np.bincount(codes)[:, None]


def one_per_episode(episodes: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Row of one random snapshot of each episode; the draw depends only on the episode's name, its size and the seed."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(episodes):
        rows.setdefault(name, []).append(row)
    picked = []
    for name in sorted(rows):
        digest = hashlib.sha256(f"pmem.certify/1:{seed}:{name}".encode()).digest()
        picked.append(rows[name][int.from_bytes(digest[:8], "big") % len(rows[name])])
    return np.array(picked, dtype=np.int64)
