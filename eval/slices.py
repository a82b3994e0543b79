"""The candidate's figures by slice: who is served worse? Many slices, so single ones are read with care (stated in the
report).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from eval.metrics import false_intervention_rate, recall_needed
from eval.operating import View
from eval.statistics import auroc, bootstrap, mean
from eval.truth import Truth

BY: dict[str, Callable[[Truth], str | None]] = {
    "family": lambda truth: truth.family,
    "mechanism": lambda truth: truth.mechanism,
    "agent": lambda truth: truth.agent,
    "bank size": lambda truth: "0–2 entries" if truth.bank_size <= 2 else "3–5 entries" if truth.bank_size <= 5 else "6 or more",
    "position": lambda truth: "steps 1–5" if truth.step <= 5 else "steps 6–10" if truth.step <= 10 else "step 11 on",
}


def slice_rows(view: View, *, seed: int) -> list[dict[str, Any]]:
    """One row a slice with at least 5 known snapshots: counts, base rate, AUROC, false-intervention rate, recall."""
    view = view.known()
    rows = []
    for by, key in BY.items():
        names = [key(truth) for truth in view.truths]
        for name in sorted({name for name in names if name}):
            part = view.where(np.array([other == name for other in names], dtype=bool))
            if len(part) < 5:
                continue
            rows.append({
                "by": by, "slice": name, "n": len(part), "tasks": len(set(part.tasks)),
                "base_rate": bootstrap(mean(part.need.astype(float)), part.tasks, seed=seed, proportion=True).as_json(),
                "auroc": bootstrap(auroc(part.score, part.need), part.tasks, seed=seed).as_json(),
                "false_intervention_rate": false_intervention_rate(part, seed=seed).as_json(),
                "recall_needed": recall_needed(part, seed=seed).as_json(),
            })  # fmt: skip
    return rows
