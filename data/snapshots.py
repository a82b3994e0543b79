"""The snapshots file, `pmem.snapshot/1`: one row a boundary, what the policy saw there (keys: docs/design/files.md).

`data.replay` writes it; labellers, `data.build`, `data.pivots` and `eval` read it and rebuild the runtime's own `Snapshot`
with `to_policy_snapshot`, so that every stage renders the same prompt.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from data.tables import Row, metadata, read_rows, with_format, write_rows
from pmem.bank import entry_number
from pmem.canonical import content_id
from pmem.settings import Settings
from pmem.snapshot import BankState, Entry, Snapshot, Step

FORMAT = "pmem.snapshot/1"
MECHANISMS = ("requirement", "grounding", "failure_loop", "diagnosis", "progress")

STEP_TYPE = pa.struct(
    [
        ("step", pa.int64()),
        ("tool", pa.string()),
        ("call", pa.string()),
        ("fingerprint", pa.string()),
        ("outcome", pa.string()),
        ("digest", pa.string()),
        ("provenance", pa.string()),
        ("thought", pa.string()),
    ]
)
ENTRY_TYPE = pa.struct(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("content", pa.string()),
        ("created", pa.float64()),
        ("touched", pa.float64()),
        ("injections", pa.int64()),
    ]
)
SNAPSHOT_SCHEMA = with_format(
    FORMAT,
    [
        pa.field("snapshot_id", pa.string(), nullable=False),
        pa.field("rollout_id", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("mechanism", pa.string()),
        pa.field("boundary_index", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("triggers", pa.list_(pa.string()), nullable=False),
        pa.field("task_messages", pa.list_(pa.string()), nullable=False),
        pa.field("window", pa.list_(STEP_TYPE), nullable=False),
        pa.field("bank_before", pa.struct([("status", pa.string()), ("entries", pa.list_(ENTRY_TYPE))]), nullable=False),
        pa.field("last_reminder", pa.string()),
        pa.field("prompt_version", pa.string(), nullable=False),
        pa.field("restore_ref", pa.string()),
    ],
)


def write_snapshots(path: Path, rows: Iterable[Row]) -> int:
    """Write rows sorted by `snapshot_id`; returns how many."""
    return write_rows(path, SNAPSHOT_SCHEMA, rows, sort_by=["snapshot_id"])


def read_snapshots(path: Path) -> Iterator[Row]:
    """Yield the rows of a snapshots file in order of `snapshot_id`. Raises UserError naming file and column."""
    return read_rows(path, SNAPSHOT_SCHEMA)


def trajectory_steps(path: Path) -> int:
    """Length of the window in which these snapshots were taken; a live session must use the same. Without a file: the default."""
    facts = metadata(path) if Path(path).exists() else {}
    return int(facts.get("trajectory_steps", Settings().trajectory_steps))


def snapshot_columns(snapshot: Snapshot) -> dict[str, Any]:
    """The columns of a row that hold what the policy saw."""
    return {
        "triggers": list(snapshot.triggers),
        "task_messages": list(snapshot.task_messages),
        "window": [step.model_dump() for step in snapshot.window],
        "bank_before": {
            "status": snapshot.bank.status,
            "entries": [entry.model_dump() for entry in snapshot.bank.entries],
        },
        "last_reminder": snapshot.last_reminder,
    }


def with_snapshot_id(row: Row) -> Row:
    """A copy with its content id. The split is an assignment, not content: other split weights keep the ids, and the labels."""
    content = {key: value for key, value in row.items() if key not in {"snapshot_id", "split", "format"}}
    return {**row, "snapshot_id": content_id(content)}


def to_policy_snapshot(row: Row) -> Snapshot:
    """The runtime's `Snapshot` of a row. `next_number` is one above the highest number among the ids present."""
    bank = row["bank_before"]
    entries = tuple(Entry(**entry) for entry in bank["entries"])
    next_number = max((entry_number(entry.id) for entry in entries), default=0) + 1
    return Snapshot(
        snapshot_id=row["snapshot_id"],
        task_messages=tuple(row["task_messages"]),
        window=tuple(Step(**step) for step in row["window"]),
        bank=BankState(status=bank["status"], entries=entries, next_number=next_number),
        triggers=tuple(row["triggers"]),
        last_reminder=row["last_reminder"],
    )
