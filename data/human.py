"""Labels by people, through a plain file: write a sheet, fill two columns in any editor, read it back.

    python -m data.human action=export snapshots=runs/snapshots.parquet sheet=todo.csv splits=[dev] limit=100
    python -m data.human action=collect snapshots=runs/snapshots.parquet sheet=todo.csv out=runs/human.parquet

`.csv` and `.jsonl` both work. Columns to fill: `verdict` (need, not_needed, unknown) and, for need, `reminder` citing an entry of
the bank such as [tm-k-1]. Empty verdicts are passed over, so a half-filled sheet can be read.
"""

import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from data.labels import VERDICTS, write_labels
from data.snapshots import read_snapshots, to_policy_snapshot
from data.splits import SPLITS, hash_fraction
from data.tables import Row
from pmem.atomic import replacing
from pmem.bank import render_entries
from pmem.config import bounded, parse_stage
from pmem.envelope import citations
from pmem.errors import UserError, exit_code

DEFAULT = Path("configs/human.yaml")
COLUMNS = ("snapshot_id", "task", "bank", "recent_steps", "verdict", "reminder", "labeller")
CELL_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HumanConfig:
    """Settings of the sheet."""

    action: Literal["export", "collect"] = "export"
    """Write the sheet, or read it back."""
    snapshots: Path = Path("runs/snapshots.parquet")
    """Snapshots file."""
    sheet: Path = Path("runs/human.csv")
    """The file that people fill: .csv or .jsonl."""
    out: Path = Path("runs/human.parquet")
    """Labels file that `collect` writes."""
    splits: tuple[str, ...] = ("dev",)
    """Splits to take snapshots from."""
    limit: int = 100
    """Snapshots on the sheet, chosen by hash."""

    def __post_init__(self) -> None:
        if self.sheet.suffix not in {".csv", ".jsonl"}:
            raise UserError(f"sheet {self.sheet} must end in .csv or .jsonl")
        bounded(self, 1, math.inf, "limit")
        if unknown := sorted(set(self.splits) - set(SPLITS)):
            raise UserError(f"splits: unknown split {unknown[0]!r}; known are {', '.join(SPLITS)}")


def export(config: HumanConfig) -> int:
    """Write the sheet; returns how many snapshots stand on it. Raises UserError when there are none, or the sheet exists."""
    if config.sheet.exists():
        raise UserError(f"{config.sheet} exists and may hold somebody's work; move it away first")
    rows = [row for row in read_snapshots(config.snapshots) if row["split"] in config.splits and row["bank_before"]["entries"]]
    if not rows:
        raise UserError(f"{config.snapshots} has no snapshot with a bank in the splits {', '.join(config.splits)}")
    rows.sort(key=lambda row: hash_fraction(f"human:{row['snapshot_id']}"))
    sheet = [_sheet_row(row) for row in rows[: config.limit]]
    with replacing(config.sheet) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        if config.sheet.suffix == ".csv":
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(sheet)
        else:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in sheet)
    return len(sheet)


def collect(config: HumanConfig) -> list[Row]:
    """Read the sheet into label rows. Raises UserError naming the line that cannot be used."""
    banks = {
        row["snapshot_id"]: {entry["id"] for entry in row["bank_before"]["entries"]} for row in read_snapshots(config.snapshots)
    }
    labels: list[Row] = []
    for where, row in _read_sheet(config.sheet):
        if str(row.get("verdict") or "").strip():
            labels += _labels(row, where, banks)
    if not labels:
        raise UserError(f"{config.sheet}: no verdict is filled in; write need, not_needed or unknown into the column verdict")
    write_labels(config.out, labels)
    return labels


def _sheet_row(row: Row) -> dict[str, str]:
    snapshot = to_policy_snapshot(row)
    steps = (f"{step.step}. {step.call} -> {step.outcome}: {step.digest}" + (f" | {step.thought}" if step.thought else "")
             for step in snapshot.window)  # fmt: skip
    return {
        "snapshot_id": row["snapshot_id"],
        "task": "\n".join(snapshot.task_messages),
        "bank": render_entries(snapshot.bank, budget_tokens=4_000),
        "recent_steps": "\n".join(steps),
        "verdict": "",
        "reminder": "",
        "labeller": "",
    }


def _labels(row: dict[str, Any], where: str, banks: dict[str, set[str]]) -> list[Row]:
    verdict = str(row["verdict"]).strip().lower().replace(" ", "_")
    if verdict not in VERDICTS:
        raise UserError(f"{where}: verdict {row['verdict']!r} is none of {', '.join(VERDICTS)}")
    bank = banks.get(str(row.get("snapshot_id")))
    if bank is None:
        raise UserError(
            f"{where}: snapshot {row.get('snapshot_id')!r} is not in the snapshots file; collect with the file exported from"
        )
    label = {
        "snapshot_id": row["snapshot_id"],
        "label_kind": "human",
        "candidate_id": None,
        "cited_ids": [],
        "verdict": verdict,
        "agent": str(row.get("labeller") or "").strip() or None,
        "divergence": False,
    }
    text = " ".join(str(row.get("reminder") or "").split())
    if not text:
        return [label]
    cited = [name for name in citations(text) if name in bank]
    if not cited:
        raise UserError(f"{where}: the reminder cites no entry of its bank; add one, such as [{min(bank, default='tm-k-1')}]")
    return [label, {**label, "candidate_id": "human", "reminder_text": text, "cited_ids": cited}]


def _read_sheet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        stream = path.open(encoding="utf-8-sig", newline="")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; write it with action=export") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; mend it or name another sheet") from None
    with stream:
        try:
            yield from _json_rows(path, stream) if path.suffix == ".jsonl" else _csv_rows(path, stream)
        except (UnicodeDecodeError, csv.Error):
            raise UserError(f"{path} is not a sheet in UTF-8 text; save it as UTF-8 {path.suffix}") from None


def _json_rows(path: Path, stream: TextIO) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield f"{path} line {number}", _json_line(line, f"{path} line {number}")


def _csv_rows(path: Path, stream: TextIO) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(CELL_BYTES)
    reader = csv.DictReader(stream)
    _check_columns(path, reader.fieldnames or [])
    for number, row in enumerate(reader, start=1):
        yield f"{path} row {number}", row


def _json_line(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; mend the line")
    return value


def _check_columns(path: Path, found: Sequence[str]) -> None:
    for name in ("snapshot_id", "verdict", "reminder"):
        if name not in found:
            raise UserError(f"{path}: column {name!r} is missing; keep the columns of the exported sheet")


def main() -> int:
    """Entry point of `python -m data.human`."""
    config = parse_stage(HumanConfig, __doc__, DEFAULT)
    if config.action == "export":
        print(f"{export(config)} snapshots to label -> {config.sheet}")
        return 0
    verdicts = Counter(row["verdict"] for row in collect(config) if row["candidate_id"] is None)
    print(f"collected {', '.join(f'{name} {count}' for name, count in sorted(verdicts.items()))} -> {config.out}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
