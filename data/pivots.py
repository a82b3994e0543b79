"""Pick the snapshots that GRPO trains on: those where the frozen SFT policy's sampled answers differ in measured value.

    python -m data.pivots decisions=runs/samples.parquet snapshots=… labels=[…] out=runs/pivots.parquet

Value of a sample: silent -> V_silent; reminder -> V_remind of its matched candidate - cost; malformed or gated -> as rewarded;
matching nothing that was measured -> none. Pivot: variance > 0 and mean below a ceiling. Kept besides: snapshots where silence is
right, until they are 30-50 % of the mix, or the policy forgets how to be quiet (docs/design/calibration.md).
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pvariance

from data.labels import SnapshotLabels, group_labels, read_labels
from data.rows import write_pivots
from data.snapshots import read_snapshots, to_policy_snapshot
from data.splits import hash_fraction
from data.tables import Row, metadata, open_parquet, rows_of
from pmem.config import bounded, parse_stage
from pmem.envelope import EMPTY_LIST
from pmem.errors import UserError, exit_code
from pmem.plan_notes import with_notes
from pmem.prompt import render_messages

DEFAULT = Path("configs/pivots.yaml")
COLUMNS = ("snapshot_id", "sample_index", "model_hash", "spoke", "matched_candidate_id", "decision", "reason", "list_text")


@dataclass(frozen=True, kw_only=True, slots=True)
class PivotConfig:
    """Settings of the pivot stage."""

    decisions: Path = Path("runs/samples.parquet")
    """Sampled decisions of the frozen SFT policy on the train split (`pmem.decision/1` with `sample_index`)."""
    snapshots: Path = Path("runs/snapshots.parquet")
    """Snapshots file."""
    labels: tuple[Path, ...] = (Path("runs/labels.parquet"),)
    """Labels files; only measured (counterfactual) labels count."""
    out: Path = Path("runs/pivots.parquet")
    """The pivots to write."""
    filtered: bool = True
    """Off: every sampled snapshot is taken, differing samples or not (an ablation)."""
    mean_ceiling: float = 0.95
    """Snapshots whose samples are worth this much in the mean have nothing left to learn."""
    malformed: float = -1.0
    """Value of an answer that cannot be read, the same as in the reward."""
    gated: float = -0.5
    """Value of a reminder that a gate refuses (no citation, too long), the same as in the reward."""
    min_share_silent: float = 0.3
    """Least share of snapshots where silence is right; filled up with quiet snapshots that are no pivots."""
    max_share_silent: float = 0.5
    """Largest such share."""
    max_pivots: int | None = None
    """Upper bound on rows."""
    min_pivots: int = 8
    """Prompts one GRPO batch needs: generation_batch_size // num_generations."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_share_silent <= self.max_share_silent < 1:
            raise UserError("min_share_silent and max_share_silent must satisfy 0 <= min <= max < 1")
        bounded(self, 0, math.inf, "min_pivots", "max_pivots", "mean_ceiling")


@dataclass(frozen=True, slots=True)
class Scored:
    """A train snapshot with measured labels and the values of the policy's samples there."""

    snapshot: Row
    labels: SnapshotLabels
    values: tuple[float, ...]
    policy_hash: str | None

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def variance(self) -> float:
        return pvariance(self.values)

    @property
    def silence_is_right(self) -> bool:
        """No candidate's measured advantage is positive."""
        best = self.labels.best()[1]
        return best is None or best <= 0


def sample_value(sample: Row, labels: SnapshotLabels, config: PivotConfig) -> float | None:
    """The measured value of one sampled answer; None when nothing measured matches it."""
    assert labels.silence is not None
    silent = float(labels.silence["value"])
    if sample["decision"] == "malformed":
        return config.malformed
    if sample["decision"] == "gated" and sample["reason"] != "below_threshold":
        return config.gated
    if not sample["spoke"]:
        return silent if sample["decision"] in {"silent", "gated"} else None
    for row in labels.candidates:
        if row["candidate_id"] == sample["matched_candidate_id"] and row["value"] is not None:
            return float(row["value"]) - float(row["cost"] or 0.0)
    return None


def select(scored: Sequence[Scored], config: PivotConfig) -> list[Scored]:
    """Pivots, and as many quiet snapshots as bring the share where silence is right between its bounds. By hash, not luck."""
    ordered = sorted(scored, key=lambda one: hash_fraction(f"pivot:{one.snapshot['snapshot_id']}"))
    if not config.filtered:
        return ordered[: config.max_pivots]
    pivots = [one for one in ordered if one.variance > 0 and one.mean < config.mean_ceiling]
    speak = [one for one in pivots if not one.silence_is_right]
    quiet = [one for one in pivots if one.silence_is_right]
    spare = [one for one in ordered if one.silence_is_right and one.variance == 0]
    if config.max_pivots is not None:
        speak = speak[: round(config.max_pivots * (1 - config.min_share_silent))]
    least = -(-len(speak) * config.min_share_silent // (1 - config.min_share_silent))
    most = len(speak) * config.max_share_silent // (1 - config.max_share_silent)
    quiet = (quiet + spare)[: max(int(least), min(int(most), len(quiet)))] if speak else quiet
    return (speak + quiet)[: config.max_pivots]


def pivot_row(one: Scored, written: str | None = None) -> Row:
    """One row of `pivots.parquet`; `value` of a candidate is V_remind, before its cost.

    `written`: the list, where its end is not the policy's own to write (plan notes); the prompt's last message then, and an answer is the
    decision and what is said.
    """
    assert one.labels.silence is not None
    begun = [] if written is None else [{"role": "assistant", "content": written + "\n"}]
    return {
        "snapshot_id": one.snapshot["snapshot_id"],
        "split": one.snapshot["split"],
        "prompt_messages": [*render_messages(to_policy_snapshot(one.snapshot)), *begun],
        "value_silent": one.labels.silence["value"],
        "std_error_silent": one.labels.silence["std_error"],
        "candidates": [
            {
                "candidate_id": row["candidate_id"],
                "text": row["reminder_text"],
                "cited_ids": row["cited_ids"],
                "value": row["value"],
                "std_error": row["std_error"],
            }
            for row in one.labels.candidates
        ],
        "pivot_mean": one.mean,
        "pivot_var": one.variance,
        "policy_hash": one.policy_hash,
    }


def read_samples(path: Path) -> dict[str, list[Row]]:
    """Sampled decisions by snapshot, read by column name. Raises UserError when a column is missing."""
    file = open_parquet(path)
    missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise UserError(f"{path}: column {missing[0]!r} is missing; score samples with eval.score samples=…")
    samples: dict[str, list[Row]] = {}
    for row in rows_of(path, file, COLUMNS):
        if row["sample_index"] is not None:
            samples.setdefault(row["snapshot_id"], []).append(row)
    models = {row["model_hash"] for rows in samples.values() for row in rows}
    if len(models) > 1:
        raise UserError(f"{path} holds samples of {len(models)} models; pivots are of one frozen policy, so score it alone")
    if not samples:
        raise UserError(
            f"{path} holds no samples (sample_index is null everywhere); score with eval.score samples=8 splits=[train]"
        )
    return samples


def pick(config: PivotConfig) -> tuple[list[Scored], list[Scored]]:
    """Run the stage; returns all scored snapshots and the chosen ones. Raises UserError when too few are chosen."""
    samples = read_samples(config.decisions)
    groups = group_labels(row for path in config.labels for row in read_labels(path))
    scored = list(_scored(config, samples, groups))
    if not scored:
        raise UserError(
            f"{config.decisions}, {config.snapshots} and {', '.join(map(str, config.labels))} share no train snapshot with measured "
            "values; name the files of one run"
        )
    chosen = select(scored, config)
    if len(chosen) < config.min_pivots:
        raise UserError(
            f"only {len(chosen)} pivots among {len(scored)} scored snapshots, one GRPO batch needs {config.min_pivots}; label "
            "and sample more train snapshots, raise mean_ceiling, or lower the batch"
        )
    noted = with_notes(metadata(config.decisions).get("plan_notes"), str(config.decisions))
    lists = {name: next((row["list_text"] for row in rows if row["list_text"]), EMPTY_LIST) for name, rows in samples.items()}
    write_pivots(config.out, (pivot_row(one, lists[one.snapshot["snapshot_id"]] if noted else None) for one in chosen))
    return scored, chosen


def _scored(config: PivotConfig, samples: dict[str, list[Row]], groups: dict[str, list[SnapshotLabels]]) -> Iterator[Scored]:
    for row in read_snapshots(config.snapshots):
        if row["split"] != "train" or row["snapshot_id"] not in samples:
            continue
        labels = _measured(groups.get(row["snapshot_id"], []))
        if labels is None:
            continue
        rows = samples[row["snapshot_id"]]
        values = [value for sample in rows if (value := sample_value(sample, labels, config)) is not None]
        if values:
            yield Scored(row, labels, tuple(values), rows[0]["model_hash"])


def _measured(groups: Sequence[SnapshotLabels]) -> SnapshotLabels | None:
    for labels in groups:
        if labels.label_kind == "counterfactual" and not labels.voided and labels.silence and labels.silence["value"] is not None:
            return labels
    return None


def main() -> int:
    """Entry point of `python -m data.pivots`."""
    config = parse_stage(PivotConfig, __doc__, DEFAULT)
    scored, chosen = pick(config)
    real = sum(one.variance > 0 for one in chosen)
    quiet = sum(one.silence_is_right for one in chosen)
    print(
        f"picked {len(chosen)} of {len(scored)} scored snapshots: {real} with differing samples, silence is right in {quiet} "
        f"({quiet / len(chosen):.0%}) -> {config.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
