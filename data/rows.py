"""The two files that `train` reads: `sft.parquet` (`data.build`) and `pivots.parquet` (`data.pivots`); keys: docs/design/files.md."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from data.tables import Row, gather, metadata, read_rows, with_format, write_rows, write_table

MESSAGES_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
CANDIDATE_TYPE = pa.struct(
    [
        ("candidate_id", pa.string()),
        ("text", pa.string()),
        ("cited_ids", pa.list_(pa.string())),
        ("value", pa.float64()),
        ("std_error", pa.float64()),
    ]
)
SFT_SCHEMA = with_format(
    "pmem.sft/1",
    [
        pa.field("row_id", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("prompt_messages", MESSAGES_TYPE, nullable=False),
        pa.field("completion", pa.string(), nullable=False),
        pa.field("decision", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
    ],
)
PIVOT_SCHEMA = with_format(
    "pmem.pivot/1",
    [
        pa.field("snapshot_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("prompt_messages", MESSAGES_TYPE, nullable=False),
        pa.field("value_silent", pa.float64(), nullable=False),
        pa.field("std_error_silent", pa.float64()),
        pa.field("candidates", pa.list_(CANDIDATE_TYPE), nullable=False),
        pa.field("pivot_mean", pa.float64(), nullable=False),
        pa.field("pivot_var", pa.float64(), nullable=False),
        pa.field("policy_hash", pa.string()),
    ],
)
SILENCE, REMINDER, WOULD_SAY = "silence", "reminder", "would_say"
"""Values of the `decision` column. A `would_say` row repeats a silent row of its snapshot with what that row would have said: it
teaches the sentence, never the decision."""


def write_sft(path: Path, rows: Iterable[Row], *, trajectory_steps: int | None = None) -> int:
    """Write SFT rows sorted by `row_id`, with the length of their window in the file's metadata; returns how many."""
    facts = {} if trajectory_steps is None else {"trajectory_steps": str(trajectory_steps)}
    return write_table(path, gather(SFT_SCHEMA, rows), sort_by=["row_id"], facts=facts)


def lesson_file(rows: Path, num_entries: int) -> Path:
    """The rows of the lesson with banks of `num_entries`, beside a file of SFT rows."""
    return rows.with_name(f"{rows.stem}.bank{num_entries}{rows.suffix}")


def window_of(path: Path) -> dict[str, int]:
    """`{"trajectory_steps": …}` of a file of SFT rows, for `policy.json`: runtime and rows must show the same window. Empty when the
    file does not say."""
    found = metadata(path).get("trajectory_steps")
    return {} if found is None else {"trajectory_steps": int(found)}


def read_sft(path: Path) -> Iterator[Row]:
    """Yield SFT rows: `prompt_messages` is a list of {role, content}, `completion` the canonical envelope. Raises UserError."""
    return read_rows(path, SFT_SCHEMA)


def write_pivots(path: Path, rows: Iterable[Row]) -> int:
    """Write pivot rows sorted by `snapshot_id`; returns how many."""
    return write_rows(path, PIVOT_SCHEMA, rows, sort_by=["snapshot_id"])


def read_pivots(path: Path) -> Iterator[Row]:
    """Yield pivot rows. A candidate's `value` is V_remind as in the labels: the cost of what is spoken is not yet subtracted."""
    return read_rows(path, PIVOT_SCHEMA)
