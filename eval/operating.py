"""Saved decisions brought to an operating point: calibrate the probability, apply a threshold, line up with what is known.

A row was made at the writing floor of `eval.score`; at a higher threshold it either stays as it is or becomes
`gated/below_threshold`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eval.decisions import Decision
from eval.statistics import Floats
from eval.truth import Truth
from pmem.errors import UserError
from pmem.policy import OWN_CHOICE

MODEL_ARMS = frozenset({"prompted", "sft", "sft_grpo", "full_bank", "injection_only", "advisor"})


@dataclass(frozen=True, slots=True)
class View:
    """One arm on labelled snapshots, rows aligned. `spoke` is a share in [0, 1] (arms in expectation), `prob` NaN without a
    model.
    """

    arm: str
    truths: tuple[Truth, ...]
    decisions: tuple[Decision, ...]
    prob: Floats
    spoke: Floats
    advantage: Floats
    """Advantage of what the arm says here when it speaks, shape (N,)."""
    matched: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.truths)

    @property
    def need(self) -> NDArray[np.bool_]:
        """Verdict `need`, shape (N,)."""
        return np.array([truth.need for truth in self.truths], dtype=bool)

    @property
    def tasks(self) -> list[str]:
        """The cluster of every interval."""
        return [truth.task for truth in self.truths]

    @property
    def score(self) -> Floats:
        """What ranks the snapshots: the probability, or whether the arm speaks where it has none. A failed read ranks last."""
        return np.nan_to_num(self.prob, nan=0.0) if np.isfinite(self.prob).any() else self.spoke

    def where(self, keep: NDArray[np.bool_]) -> "View":
        """The rows of `keep`."""
        index = np.flatnonzero(keep)
        return replace(
            self,
            truths=tuple(self.truths[i] for i in index),
            decisions=tuple(self.decisions[i] for i in index),
            prob=self.prob[index],
            spoke=self.spoke[index],
            advantage=self.advantage[index],
            matched=self.matched[index],
        )

    def known(self) -> "View":
        """Without the snapshots whose verdict is unknown."""
        return self.where(np.array([truth.known for truth in self.truths], dtype=bool))


def align(decisions: Sequence[Decision], truths: dict[str, Truth], arm: str) -> list[Decision]:
    """The decision of each truth, in the order of `truths`. Raises UserError when some were never scored."""
    by_id = {decision.snapshot_id: decision for decision in decisions if decision.sample_index is None}
    missing = [snapshot_id for snapshot_id in truths if snapshot_id not in by_id]
    if missing:
        raise UserError(
            f"arm {arm}: {len(missing)} of {len(truths)} labelled snapshots were never scored (first {missing[0]}); "
            f"run `python -m eval.score arm={arm}` over their splits"
        )
    return [by_id[snapshot_id] for snapshot_id in truths]


def at_threshold(decision: Decision, prob: float | None, threshold: float | None) -> Decision:
    """`decision` under a threshold on the calibrated probability `prob`; arms without a model are not gated by one.

    A row that stood below the writing floor and reaches the threshold would speak, though its text was never written. Below the
    threshold the runtime calls a model that wanted to speak gated, and any other silent.
    """
    if threshold is None or prob is None:
        return replace(decision, prob_calibrated=prob)
    moved = replace(decision, prob_calibrated=prob, threshold=threshold)
    if prob >= threshold and decision.reason == "below_threshold":
        return replace(moved, decision="injected", reason="intervened", spoke=True)
    if prob < threshold and decision.decision in {"injected", "gated"}:
        if (decision.prob_raw or 0.0) >= OWN_CHOICE:
            return replace(moved, decision="gated", reason="below_threshold", spoke=False)
        return replace(moved, decision="silent", reason="model_silent", spoke=False)
    return moved


def make_view(arm: str, truths: dict[str, Truth], decisions: Sequence[Decision], probs: Sequence[float | None],
              threshold: float | None) -> View:  # fmt: skip
    """The arm at an operating point; `probs` are calibrated and aligned with the aligned decisions."""
    rows = [at_threshold(decision, prob, threshold) for decision, prob in zip(align(decisions, truths, arm), probs)]
    ordered = tuple(truths.values())
    matches = [truth.candidate(row.matched_candidate_id) for truth, row in zip(ordered, rows)]
    return View(
        arm=arm,
        truths=ordered,
        decisions=tuple(rows),
        prob=np.array([np.nan if prob is None else prob for prob in probs], dtype=np.float64),
        spoke=np.array([float(row.spoke) for row in rows]),
        advantage=np.array([_advantage(truth, match) for truth, match in zip(ordered, matches)]),
        matched=np.array([match is not None for match in matches], dtype=bool),
    )


def _advantage(truth: Truth, match: object) -> float:
    value = getattr(match, "advantage", None)
    return truth.unmatched_advantage if value is None else float(value)


def action_rate(view: View) -> float:
    """Share of the snapshots on which the arm speaks."""
    return float(view.spoke.mean()) if len(view) else 0.0


def derived_views(candidate: View) -> list[View]:
    """The cheap arms made from the candidate's own rows: never, always, random at its rate, and the oracle.

    `always` and `random` say the candidate's own text; `random` stands in expectation (it speaks everywhere with the candidate's
    rate), so that no draw of ours makes it look better or worse.
    """
    size = len(candidate)
    silent = np.zeros(size)
    nothing = np.full(size, np.nan)
    best = np.array([truth.best_advantage for truth in candidate.truths])
    wanted = np.array([float(truth.need and truth.best_advantage > 0) for truth in candidate.truths])
    return [
        replace(candidate, arm="never", prob=nothing, spoke=silent),
        replace(candidate, arm="always", prob=nothing, spoke=np.ones(size)),
        replace(candidate, arm="random", prob=nothing, spoke=np.full(size, action_rate(candidate))),
        replace(candidate, arm="oracle", prob=nothing, spoke=wanted, advantage=best, matched=np.ones(size, dtype=bool)),
    ]
