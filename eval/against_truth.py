"""How well an arm ranks the environment's own truth (`need_true`), beside the measured labels and the ceiling that their noise leaves."""

import numpy as np

from eval.operating import View
from eval.statistics import Figure, auroc, bootstrap


def truth_figures(view: View, *, seed: int) -> dict[str, Figure] | None:
    """`auroc_truth`, `auroc_measured` and `ceiling`: what the truth itself reaches against the measured labels.

    Over the snapshots of simulated tasks with a known verdict. None where the truth or the labels are of one class.
    """
    view = view.known()
    view = view.where(np.array([truth.need_true is not None for truth in view.truths], dtype=bool))
    true = np.array([bool(truth.need_true) for truth in view.truths], dtype=bool)
    if true.all() or not true.any() or view.need.all() or not view.need.any():
        return None
    return {
        "auroc_truth": bootstrap(auroc(view.score, true), view.tasks, seed=seed),
        "auroc_measured": bootstrap(auroc(view.score, view.need), view.tasks, seed=seed),
        "ceiling": bootstrap(auroc(true.astype(float), view.need), view.tasks, seed=seed),
    }
