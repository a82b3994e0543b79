"""The two files that `train` reads: `sft.parquet` (`data.build`) and `pivots.parquet` (`data.pivots`); keys: docs/design/files.md."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from data.tables import Row, gather, metadata, read_rows, with_format, write_rows, write_table
from pmem.canonical import file_sha256
from pmem.errors import UserError
from pmem.plan_notes import with_notes

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
LESSON_OF = "lesson_of"
SILENCE, REMINDER, WOULD_SAY = "silence", "reminder", "would_say"
"""Values of the `decision` column. A `would_say` row repeats a silent row of its snapshot with what that row would have said: it
teaches the sentence, never the decision."""


def write_sft(
    path: Path, rows: Iterable[Row], *, trajectory_steps: int | None = None, facts: dict[str, str] | None = None
) -> int:
    """Write SFT rows sorted by `row_id`, with the length of their window in the file's metadata; returns how many."""
    window = {} if trajectory_steps is None else {"trajectory_steps": str(trajectory_steps)}
    return write_table(path, gather(SFT_SCHEMA, rows), sort_by=["row_id"], facts={**window, **(facts or {})})


def lesson_file(rows: Path, num_entries: int) -> Path:
    """The rows of the lesson with banks of `num_entries`, beside a file of SFT rows."""
    return rows.with_name(f"{rows.stem}.bank{num_entries}{rows.suffix}")


def write_lesson(rows: Path, num_entries: int, lesson: Iterable[Row]) -> int:
    """Write a lesson beside the SFT rows it goes before, bound to them by their hash; returns its number of rows."""
    return write_sft(lesson_file(rows, num_entries), lesson, facts={LESSON_OF: file_sha256(rows)})


def read_lesson(rows: Path, num_entries: int) -> Iterator[Row]:
    """Yield the rows of a lesson. Raises UserError when it is not there or was built for other rows."""
    path = lesson_file(rows, num_entries)
    mend = f"build them together with `python -m data.build course=[{num_entries}] out={rows}`"
    if not path.is_file():
        raise UserError(f"{path}, the lesson with banks of {num_entries}, does not exist; {mend}")
    if metadata(path).get(LESSON_OF) != file_sha256(rows):
        raise UserError(f"{path} was not built together with {rows}; {mend}")
    return read_sft(path)


def remove_lessons(rows: Path) -> None:
    """Remove the lessons of an earlier build of `rows`."""
    for path in rows.parent.glob(f"{glob.escape(rows.stem)}.bank*{rows.suffix}"):
        path.unlink()


def shown_in(path: Path) -> dict[str, int | str]:
    """What a file of SFT rows says of its prompts, for `policy.json`: `trajectory_steps` of the window, and `plan_notes` where
    the lists end with them. The runtime must show the same. Empty when the file does not say."""
    facts = metadata(path)
    window: dict[str, int | str] = {"trajectory_steps": int(facts["trajectory_steps"])} if "trajectory_steps" in facts else {}
    return window | ({"plan_notes": facts["plan_notes"]} if with_notes(facts.get("plan_notes"), str(path)) else {})


def read_sft(path: Path) -> Iterator[Row]:
    """Yield SFT rows: `prompt_messages` is a list of {role, content}, `completion` the canonical envelope. Raises UserError."""
    return read_rows(path, SFT_SCHEMA)


def write_pivots(path: Path, rows: Iterable[Row]) -> int:
    """Write pivot rows sorted by `snapshot_id`; returns how many."""
    return write_rows(path, PIVOT_SCHEMA, rows, sort_by=["snapshot_id"])


def read_pivots(path: Path) -> Iterator[Row]:
    """Yield pivot rows. A candidate's `value` is V_remind as in the labels: the cost of what is spoken is not yet subtracted."""
    return read_rows(path, PIVOT_SCHEMA)
