"""The arms of a run on labelled snapshots of other folders: imported rollouts with hindsight labels, another agent's own decisions.

Such labels are opinions, not measurements: the figures say how far arm and label agree, never what a reminder would have changed.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.splits import SPLITS
from eval.choose import only_scored, operating_view
from eval.decisions import read_decisions
from eval.evidence import Evidence
from eval.operating import MODEL_ARMS, View
from eval.run_files import RunFiles
from eval.statistics import Figure, Floats, auprc, auroc, bootstrap, mean
from eval.truth import Truth, read_truths
from pmem.errors import UserError

AGREEMENT = ("auroc", "auprc", "agreement", "false_intervention_rate", "recall_needed", "speak_rate")
"""The figures of an arm, in the order of the report."""


def other_run_figures(folders: Mapping[str, Path], evidence: Evidence, *, seed: int) -> dict[str, Any]:
    """By name of the folder: kinds of label, verdicts, and `AGREEMENT` of every arm scored there, at the thresholds of `evidence`.

    Raises UserError when a folder holds no decisions, or those of another model than the run's.
    """
    found = {}
    for name, folder in folders.items():
        files = RunFiles(folder)
        paths = files.scored_arms()
        if not paths:
            raise UserError(
                f"others.{name}: {folder} holds no decisions; run `python -m eval.score run={folder} arm=… model=…` first"
            )
        truths = {key: truth for key, truth in read_truths(files.snapshots, files.labels, SPLITS).items() if truth.known}
        arms = {arm: _view(arm, path, truths, evidence) for arm, path in paths.items()}
        widest = max(arms.values(), key=len)
        found[name] = {
            "label_kinds": dict(sorted(Counter(truth.label_kind for truth in widest.truths).items())),
            "need": int(widest.need.sum()),
            "not_needed": int((~widest.need).sum()),
            "tasks": len(set(widest.tasks)),
            "arms": {
                arm: {key: figure.as_json() for key, figure in agreement(view, seed=seed).items()} for arm, view in arms.items()
            },
        }
    return found


def agreement(view: View, *, seed: int) -> dict[str, Figure]:
    """`AGREEMENT` over the rows of `view`; intervals are clustered by task."""
    need, tasks, spoke = view.need, view.tasks, view.spoke

    def share(values: Floats, rows: NDArray[np.bool_]) -> Figure:
        members = [task for task, row in zip(tasks, rows) if row]
        return bootstrap(mean(values[rows]), members, seed=seed, proportion=True)

    everywhere = np.ones(len(view), dtype=bool)
    return {
        "auroc": bootstrap(auroc(view.score, need), tasks, seed=seed),
        "auprc": bootstrap(auprc(view.score, need), tasks, seed=seed),
        "agreement": share(np.where(need, spoke, 1 - spoke), everywhere),
        "false_intervention_rate": share(spoke, ~need),
        "recall_needed": share(spoke, need),
        "speak_rate": share(spoke, everywhere),
    }


def _view(arm: str, path: Path, truths: dict[str, Truth], evidence: Evidence) -> View:
    rows = read_decisions(path)
    threshold = evidence.thresholds.get(arm)
    models = {row.model_hash for row in rows}
    if arm in MODEL_ARMS and (threshold is None or models != {threshold.model_hash}):
        raise UserError(f"{path} was not decided by the model of arm {arm} in {evidence.files.run}; score it with that model")
    seen = only_scored(truths, rows)
    if not seen:
        raise UserError(f"{path}: no decision on a snapshot with a known label; score with only_known=true")
    return operating_view(arm, seen, rows, threshold)
