"""Everything a verdict rests on, read and checked once: truths, every arm at its operating point, threshold, trials, hashes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.choose import one_model, only_scored, operating_view, split_hash
from eval.decisions import ARMS, read_decisions
from eval.operating import MODEL_ARMS, View, derived_views
from eval.run_files import RunFiles, read_json
from eval.truth import Truth, read_truths
from pmem.canonical import file_sha256
from pmem.errors import UserError
from pmem.threshold import Threshold, read_threshold


@dataclass(frozen=True, slots=True)
class Evidence:
    """`views[split][arm]`; `ab` is None when no live trials were run; `split_intact`: certify is what the threshold was made
    on.
    """

    files: RunFiles
    candidate: str
    threshold: Threshold
    thresholds: dict[str, Threshold]
    truths: dict[str, dict[str, Truth]]
    views: dict[str, dict[str, View]]
    sweep: dict[str, Any]
    ab: dict[str, Any] | None
    split_intact: bool
    hashes: dict[str, str]

    def view(self, arm: str, split: str) -> View | None:
        """The arm on a split, if both exist."""
        return self.views.get(split, {}).get(arm)


def gather(run: Path, candidate: str, splits: Sequence[str]) -> Evidence:
    """Read a run. Raises UserError when the candidate's decisions or threshold are missing, or belong to different models."""
    files = RunFiles(run)
    paths = files.scored_arms()
    if candidate not in paths:
        raise UserError(f"{files.decisions(candidate)} does not exist; run `python -m eval.score arm={candidate}` first")
    decisions = {arm: read_decisions(path) for arm, path in paths.items()}
    thresholds = {arm: _threshold(files, arm, candidate, decisions[arm]) for arm in paths if arm in MODEL_ARMS}
    truths = {split: found for split in splits if (found := _truths(files, split))}
    if splits[0] not in truths:
        raise UserError(
            f"{files.labels}: split {splits[0]} holds no usable label, so nothing can be judged; simulate more episodes"
        )
    views = {split: made for split, found in truths.items() if (made := _views(found, decisions, thresholds, candidate))}
    if splits[0] not in views:
        raise UserError(
            f"arm {candidate} was never scored on split {splits[0]}; run `python -m eval.score arm={candidate}` over it"
        )
    certify = _truths(files, "certify")
    return Evidence(
        files=files, candidate=candidate, threshold=thresholds[candidate], thresholds=thresholds, truths=truths, views=views,
        sweep=read_json(files.sweep) or {}, ab=read_json(files.ab),
        split_intact=bool(certify) and split_hash(certify) == thresholds[candidate].split_hash,
        hashes=input_hashes(files, paths),
    )  # fmt: skip


def _threshold(files: RunFiles, arm: str, candidate: str, decisions: Sequence[Any]) -> Threshold:
    model, prompt = one_model(decisions, str(files.decisions(arm)))
    path = files.threshold if arm == candidate else files.arm_threshold(arm)
    return read_threshold(path, model_hash=model, prompt_version=prompt)


def _truths(files: RunFiles, split: str) -> dict[str, Truth]:
    try:
        return read_truths(files.snapshots, files.labels, [split])
    except UserError as error:
        if "no usable label" in str(error):
            return {}
        raise


def _views(
    truths: dict[str, Truth], decisions: dict[str, Any], thresholds: dict[str, Threshold], candidate: str
) -> dict[str, View]:
    """All arms on one split, in report order. An arm scored on a part of the split is judged on that part (its n says so),
    one scored nowhere is left out; without the candidate there is nothing.
    """
    views: dict[str, View] = {}
    for arm, rows in decisions.items():
        seen = only_scored(truths, rows)
        if seen:
            views[arm] = operating_view(arm, seen, rows, thresholds.get(arm))
    if candidate not in views:
        return {}
    for view in derived_views(views[candidate]):
        views[view.arm] = view
    return {arm: views[arm] for arm in ARMS if arm in views}


def input_hashes(files: RunFiles, decisions: dict[str, Path]) -> dict[str, str]:
    """SHA-256 of every file the verdict was made from, by its path in the run."""
    paths = [files.snapshots, files.labels, files.threshold, files.sweep, files.ab, *decisions.values()]
    return {str(path.relative_to(files.run)): file_sha256(path) for path in sorted(paths) if path.exists()}
