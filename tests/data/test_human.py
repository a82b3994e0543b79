"""The sheet for people: written, filled, read back; half-filled is fine, wrong is named."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from data.human import HumanConfig, collect, export
from data.labels import read_labels
from data.snapshots import write_snapshots
from pmem.errors import UserError
from tests.data.make import snapshot_row


@pytest.fixture(params=["sheet.csv", "sheet.jsonl"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> HumanConfig:
    empty = {"status": None, "entries": []}
    rows = [snapshot_row(step=number, split="dev") for number in (1, 2, 3)]
    write_snapshots(tmp_path / "s", [*rows, snapshot_row(step=9), snapshot_row(step=4, split="dev", bank_before=empty)])
    return HumanConfig(snapshots=tmp_path / "s", sheet=tmp_path / request.param, out=tmp_path / "l")


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream)) if path.suffix == ".csv" else [json.loads(line) for line in stream]


def fill(path: Path, *answers: dict[str, str]) -> None:
    rows = [{**row, **answer} for row, answer in zip(read(path), answers)]
    with path.open("w", newline="") as stream:
        if path.suffix == ".csv":
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        else:
            stream.writelines(json.dumps(row) + "\n" for row in rows)


def test_the_round_trip_keeps_what_people_wrote(config: HumanConfig) -> None:
    assert export(config) == 3
    shown = read(config.sheet)[0]
    assert "[tm-k-4] knowledge: semicolons" in shown["bank"] and "1. ls -> ok: a.txt | Next: read." in shown["recent_steps"]
    fill(
        config.sheet,
        {"verdict": "Need", "reminder": "Use  semicolons [tm-k-4].", "labeller": "ann"},
        {"verdict": "not needed"},
        {},
    )
    collect(config)
    rows = list(read_labels(config.out))
    assert sorted(row["verdict"] for row in rows) == ["need", "need", "not_needed"]
    (said,) = [row for row in rows if row["candidate_id"]]
    assert (said["reminder_text"], said["cited_ids"], said["agent"]) == ("Use semicolons [tm-k-4].", ["tm-k-4"], "ann")
    assert {row["label_kind"] for row in rows} == {"human"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"verdict": "maybe"}, "verdict 'maybe' is none of need"),
        ({"verdict": "need", "reminder": "Use semicolons"}, r"cites no entry of its bank; add one, such as \[tm-k-4\]"),
        ({"verdict": "need", "snapshot_id": "zz"}, "snapshot 'zz' is not in the snapshots file"),
        ({}, "no verdict is filled in"),
    ],
)
def test_what_cannot_be_used_is_named(answer: dict[str, str], words: str, config: HumanConfig) -> None:
    export(config)
    fill(config.sheet, answer)
    with pytest.raises(UserError, match=words):
        collect(config)


def test_a_sheet_is_never_overwritten_and_must_be_one(config: HumanConfig, tmp_path: Path) -> None:
    export(config)
    with pytest.raises(UserError, match="may hold somebody's work"):
        export(config)
    config.sheet.write_text("a,b\n1,2\n" if config.sheet.suffix == ".csv" else "[1]\n")
    with pytest.raises(UserError, match=r"column 'snapshot_id' is missing|not a JSON object"):
        collect(config)
    config.sheet.write_bytes(b"\x00\xff\xfe\x81")
    with pytest.raises(UserError, match="is not a sheet in UTF-8 text"):
        collect(config)
    with pytest.raises(UserError, match=r"must end in \.csv or \.jsonl"):
        HumanConfig(sheet=tmp_path / "sheet.xlsx")
