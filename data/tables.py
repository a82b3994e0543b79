"""Parquet with an exact schema: unknown and missing columns are errors, rows are sorted by id, the same rows give the same bytes.

Every record starts with `format` (docs/design/files.md); `snapshots`, `labels` and `rows` state their schema and call this.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmem.atomic import replacing
from pmem.errors import UserError

Row = dict[str, Any]
BATCH_ROWS = 1_000
WRITERS = {
    "snapshots.parquet": "`python -m data.replay`",
    "labels.parquet": "`python -m data.label`",
    "sft.parquet": "`python -m data.build`",
    "samples.parquet": "`python -m eval.score … samples=8`",
    "pivots.parquet": "`python -m data.pivots`",
}
"""Which stage writes a file of that name."""


def with_format(name: str, fields: Sequence[pa.Field]) -> pa.Schema:
    """The schema of a versioned file: `format` first, its value also in the file's metadata."""
    return pa.schema([pa.field("format", pa.string(), nullable=False), *fields], metadata={"format": name})


def format_name(schema: pa.Schema) -> str:
    """Name and version of the records of `schema`, such as `pmem.label/1`."""
    return schema.metadata[b"format"].decode()


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[Row], *, sort_by: Sequence[str]) -> int:
    """Write `rows` sorted by the columns `sort_by` (nulls first); returns how many. Raises ValueError on an unknown key."""
    return write_table(path, gather(schema, rows), sort_by=sort_by)


def gather(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    """Rows as one table; a missing key is null. Held as Arrow batches, so 100,000 snapshots fit in a few hundred MB.

    Raises ValueError on an unknown key.
    """
    return pa.Table.from_batches(list(_batches(schema, rows)), schema=schema)


def write_table(path: Path, table: pa.Table, *, sort_by: Sequence[str], facts: dict[str, str] | None = None) -> int:
    """Sort by the columns `sort_by`, nulls first, and write with fixed options: the same rows give the same bytes.

    `facts` go into the file's metadata: how the rows were made, for the data card.
    """
    if facts:
        encoded = {key.encode(): value.encode() for key, value in facts.items()}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **encoded})
    order = [(name, "ascending", "at_start") for name in sort_by]
    table = table.take(pc.sort_indices(table, sort_keys=order)) if len(table) else table
    with replacing(Path(path)) as temporary:
        pq.write_table(table, temporary, compression="zstd", version="2.6", row_group_size=10_000, store_schema=True)
    return len(table)


def read_rows(path: Path, schema: pa.Schema, *, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of a file written by `write_rows`, batch by batch. Raises UserError when the file is not of this schema."""
    with open_parquet(path) as file:
        check_schema(Path(path), file.schema_arrow, schema)
        yield from rows_of(Path(path), file, columns)


def rows_of(path: Path, file: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of an open file, batch by batch. Raises UserError when its pages are damaged."""
    batches = file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns) if columns else None)
    while True:
        try:
            batch = next(batches, None)
            rows = [] if batch is None else batch.to_pylist()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path} is damaged ({reason[:200]}); delete it and run its stage again") from None
        if batch is None:
            return
        yield from rows


def metadata(path: Path) -> dict[str, str]:
    """The facts a stage left in the file's metadata."""
    found = open_parquet(path).schema_arrow.metadata or {}
    return {key.decode(): value.decode() for key, value in sorted(found.items()) if key != b"ARROW:schema"}


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file. Raises UserError when it is missing, cut off or something else."""
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder; name the Parquet file in it")
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        stage = WRITERS.get(Path(path).name, "the stage that writes it")
        raise UserError(f"{path} does not exist; run {stage} first") from None
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is not a whole Parquet file ({reason}); delete it and run its stage again") from None


def check_schema(path: Path, found: pa.Schema, expected: pa.Schema) -> None:
    """Raise UserError naming the first column that is missing, unknown or of another type."""
    name = format_name(expected)
    for field in expected:
        if field.name not in found.names:
            raise UserError(f"{path}: column {field.name!r} of {name} is missing; write the file again with this version")
        if not _same_type(found.field(field.name).type, field.type):
            raise UserError(f"{path}: column {field.name!r} is {found.field(field.name).type}, {name} wants {field.type}")
    for column in found.names:
        if column not in expected.names:
            raise UserError(f"{path}: unknown column {column!r}; the columns of {name} are {', '.join(expected.names)}")


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Equal but for the name of list items, which writers choose differently (`item`, `element`)."""
    if pa.types.is_list(found) and pa.types.is_list(expected):
        return _same_type(found.value_type, expected.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        if [field.name for field in found] != [field.name for field in expected]:
            return False
        return all(_same_type(left.type, right.type) for left, right in zip(found, expected))
    return bool(found.equals(expected))


def _batches(schema: pa.Schema, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    name, known = format_name(schema), set(schema.names)
    source = iter(rows)
    while chunk := list(islice(source, BATCH_ROWS)):
        for row in chunk:
            if not known.issuperset(row):
                raise ValueError(f"unknown key {min(set(row) - known)!r} in a {name} record")
        yield pa.RecordBatch.from_pylist([{**row, "format": name} for row in chunk], schema=schema)
