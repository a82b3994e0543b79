"""What is known of each snapshot: where it comes from, whether a reminder was needed, and what each candidate is worth.

Joins `snapshots.parquet` and `labels.parquet`. Definitions (advantage, verdict, need_true): docs/design/calibration.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.labels import LABEL_KINDS, SnapshotLabels, group_labels, read_labels
from data.snapshots import SNAPSHOT_SCHEMA
from data.tables import read_rows
from pmem.errors import UserError

COLUMNS = (
    "snapshot_id",
    "rollout_id",
    "task_id",
    "family",
    "split",
    "mechanism",
    "boundary_index",
    "step",
    "triggers",
    "bank_before",
)
DEFAULT_COST = 0.01
"""Cost of a reminder without a measured one, in units of success probability."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A measured reminder. `advantage` = V_remind - V_silent - cost, None when not measured."""

    candidate_id: str
    text: str
    cited_ids: tuple[str, ...]
    advantage: float | None
    std_error: float | None
    cost: float


@dataclass(frozen=True, slots=True)
class Truth:
    """One labelled snapshot. `episode` is the rollout, `task` the cluster of every interval."""

    snapshot_id: str
    episode: str
    task: str
    family: str
    split: str
    mechanism: str | None
    boundary: int
    step: int
    bank_size: int
    interval: bool
    label_kind: str
    agent: str | None
    verdict: str
    need_true: bool | None
    value_silent: float | None
    candidates: tuple[Candidate, ...]
    written: dict[str, float] = field(default_factory=dict)
    """Entries of the bank before the step: id -> step at which it was last written."""

    @property
    def known(self) -> bool:
        """`unknown` verdicts are counted and reported, and left out of fit, certify and test."""
        return self.verdict != "unknown"

    @property
    def need(self) -> bool:
        """A reminder was worth its cost here."""
        return self.verdict == "need"

    def candidate(self, candidate_id: str | None) -> Candidate | None:
        """The candidate of that id."""
        return next((candidate for candidate in self.candidates if candidate.candidate_id == candidate_id), None)

    @property
    def best_advantage(self) -> float:
        """What an oracle gains over silence here, never below 0."""
        return max([0.0, *(c.advantage for c in self.candidates if c.advantage is not None)])

    @property
    def unmatched_advantage(self) -> float:
        """What a reminder that matches nothing measured is charged: the mean of the useless candidates, at least its cost."""
        values = [c.advantage for c in self.candidates if c.advantage is not None and c.advantage <= 0]
        cost = min((c.cost for c in self.candidates), default=DEFAULT_COST)
        return min(-cost, sum(values) / len(values)) if values else -cost


def read_truths(snapshots: Path, labels: Path, splits: Sequence[str]) -> dict[str, Truth]:
    """Labelled snapshots of `splits` by id, in order of id. Raises UserError when there is none."""
    grouped = group_labels(read_labels(labels))
    wanted = set(splits)
    truths: dict[str, Truth] = {}
    for row in read_rows(snapshots, SNAPSHOT_SCHEMA, columns=COLUMNS):
        if row["split"] not in wanted or row["snapshot_id"] not in grouped:
            continue
        if row["snapshot_id"] in truths:
            raise UserError(f"{snapshots}: snapshot {row['snapshot_id']} stands twice; run `python -m data.replay` again")
        chosen = preferred(grouped[row["snapshot_id"]])
        if chosen is not None:
            truths[row["snapshot_id"]] = _truth(row, chosen)
    if not truths:
        raise UserError(
            f"{labels}: no usable label on a snapshot of split {', '.join(splits)}; simulate more, or name another split"
        )
    return truths


def preferred(labels: Sequence[SnapshotLabels]) -> SnapshotLabels | None:
    """The measured labels of a snapshot when it has some, else hindsight, teacher, human; voided ones are no labels."""
    usable = [label for label in labels if not label.voided]
    return min(usable, key=lambda label: LABEL_KINDS.index(label.label_kind), default=None)


def _truth(row: dict[str, Any], labels: SnapshotLabels) -> Truth:
    first = labels.silence or labels.candidates[0]
    return Truth(
        snapshot_id=row["snapshot_id"],
        episode=row["rollout_id"],
        task=row["task_id"],
        family=row["family"],
        split=row["split"],
        mechanism=row["mechanism"],
        boundary=row["boundary_index"],
        step=row["step"],
        bank_size=len(row["bank_before"]["entries"]),
        interval=list(row["triggers"]) == ["interval"],
        label_kind=labels.label_kind,
        agent=first["agent"],
        verdict=labels.verdict,
        need_true=first["need_true"],
        value_silent=labels.silence["value"] if labels.silence else None,
        candidates=tuple(_candidate(labels, candidate) for candidate in labels.candidates),
        written={entry["id"]: float(entry["touched"]) for entry in row["bank_before"]["entries"]},
    )


def _candidate(labels: SnapshotLabels, row: dict[str, Any]) -> Candidate:
    return Candidate(
        candidate_id=row["candidate_id"],
        text=row["reminder_text"] or "",
        cited_ids=tuple(row["cited_ids"] or ()),
        advantage=labels.advantage(row),
        std_error=row["paired_std_error"],
        cost=row["cost"] or DEFAULT_COST,
    )
