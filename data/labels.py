"""The labels file, `pmem.label/1`: one row a snapshot and candidate, the candidate null for silence (keys: docs/design/files.md).

Definitions of value, cost and verdict: docs/design/calibration.md. Only `counterfactual` labels are measured; every row says its kind.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from data.tables import Row, read_rows, with_format, write_rows
from pmem.errors import UserError

FORMAT = "pmem.label/1"
LABEL_KINDS = ("counterfactual", "hindsight", "teacher", "human")
MEASURED = ("value", "std_error", "paired_diff", "paired_std_error", "cost")
VERDICTS = ("need", "not_needed", "unknown")

LABEL_SCHEMA = with_format(
    FORMAT,
    [
        pa.field("snapshot_id", pa.string(), nullable=False),
        pa.field("label_kind", pa.string(), nullable=False),
        pa.field("candidate_id", pa.string()),
        pa.field("reminder_text", pa.string()),
        pa.field("cited_ids", pa.list_(pa.string()), nullable=False),
        pa.field("num_branches", pa.int64()),
        pa.field("num_success", pa.int64()),
        pa.field("value", pa.float64()),
        pa.field("std_error", pa.float64()),
        pa.field("paired_diff", pa.float64()),
        pa.field("paired_std_error", pa.float64()),
        pa.field("cost", pa.float64()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("need_true", pa.bool_()),
        pa.field("seed_set", pa.int64()),
        pa.field("continuation", pa.string()),
        pa.field("agent", pa.string()),
        pa.field("divergence", pa.bool_()),
    ],
)


@dataclass(frozen=True, slots=True)
class SnapshotLabels:
    """All label rows of one kind at one snapshot. `silence` is the row without a candidate; unmeasured labels may lack it."""

    snapshot_id: str
    label_kind: str
    silence: Row | None
    candidates: tuple[Row, ...]

    @property
    def verdict(self) -> str:
        """One verdict a snapshot, repeated in each of its rows."""
        row = self.silence or self.candidates[0]
        return str(row["verdict"])

    @property
    def voided(self) -> bool:
        """True when the replay diverged: its values mean nothing (design issue: the snapshot is voided)."""
        rows = (self.silence, *self.candidates) if self.silence else self.candidates
        return any(row["divergence"] for row in rows)

    def advantage(self, row: Row) -> float | None:
        """A(s, r) = V_remind - V_silent - cost(r) of one candidate row, or None when it was not measured."""
        difference = row["paired_diff"]
        if difference is None and self.silence and None not in (row["value"], self.silence["value"]):
            difference = row["value"] - self.silence["value"]
        return None if difference is None else float(difference) - float(row["cost"] or 0.0)

    def best(self) -> tuple[Row | None, float | None]:
        """The candidate with the highest advantage (smallest id among equals); unmeasured labels give their first candidate."""
        measured = [(advantage, row) for row in self.candidates if (advantage := self.advantage(row)) is not None]
        if not measured:
            return (self.candidates[0] if self.candidates else None), None
        advantage, row = max(measured, key=lambda pair: pair[0])
        return row, advantage


def write_labels(path: Path, rows: Iterable[Row]) -> int:
    """Write rows sorted by snapshot, kind, seed set and candidate (silence first); returns how many."""
    return write_rows(path, LABEL_SCHEMA, rows, sort_by=["snapshot_id", "label_kind", "seed_set", "candidate_id"])


def read_labels(path: Path) -> Iterator[Row]:
    """Yield the rows of a labels file. Raises UserError naming file and column, or the row whose figure is no number."""
    for row in read_rows(path, LABEL_SCHEMA):
        for name in MEASURED:
            if row[name] is not None and not math.isfinite(row[name]):
                raise UserError(f"{path}: {name} of snapshot {row['snapshot_id']} is {row[name]}, no number; label it again")
        yield row


def group_labels(rows: Iterable[Row]) -> dict[str, list[SnapshotLabels]]:
    """Label rows by snapshot, one `SnapshotLabels` a kind and seed set, in file order."""
    grouped: dict[str, dict[tuple[str, int | None], list[Row]]] = {}
    for row in rows:
        grouped.setdefault(row["snapshot_id"], {}).setdefault((row["label_kind"], row["seed_set"]), []).append(row)
    return {
        snapshot_id: [_gather(snapshot_id, kind, members) for (kind, _), members in kinds.items()]
        for snapshot_id, kinds in grouped.items()
    }


def _gather(snapshot_id: str, kind: str, rows: list[Row]) -> SnapshotLabels:
    silence = next((row for row in rows if row["candidate_id"] is None), None)
    candidates = tuple(row for row in rows if row["candidate_id"] is not None)
    return SnapshotLabels(snapshot_id, kind, silence, candidates)
