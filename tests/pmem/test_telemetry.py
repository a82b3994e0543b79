"""Rows without anybody's text, written in the background, whole lines or none, one old generation."""

import json
import multiprocessing
import os
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from pmem.journal import MAX_BYTES, Journal
from pmem.outcomes import REASONS
from pmem.settings import Settings
from pmem.telemetry import FileTelemetry, Rows, StepRow, UsageRow, read_rows, timestamp

AT = timestamp(1_700_000_000.5)
KEYS = """at format triggers tier bank_delta decision reason num_operations num_dropped num_cited tokens_in tokens_out
tokens_total latency_ms prob_speak label_mass threshold_id route model"""
USAGE_KEYS = "at format label route model tokens_in tokens_out cached_tokens duration_ms outcome"


def row(**changes: object) -> StepRow:
    return StepRow.model_validate(
        {"at": AT, "triggers": ["interval"], "tier": "llm", "decision": "silent", "reason": "model_silent", **changes}
    )


def test_the_row_has_exactly_these_keys() -> None:
    value = row().model_dump(mode="json")
    assert set(value) == set(KEYS.split()) and value["format"] == "pmem.step/1"
    assert set(value["bank_delta"]) == {"status", "knowledge", "procedural"}
    assert set(value["bank_delta"]["status"]) == {"added", "updated", "deleted"}
    usage = UsageRow(at=AT, route="r", model="m", outcome="silent/model_silent").model_dump()
    assert set(usage) == set(USAGE_KEYS.split())
    assert usage["label"] == "background-memory"


@pytest.mark.parametrize(
    "bad",
    [
        {"triggers": []},
        {"triggers": ["interval", "manual", "loop_signal", "tool_error_streak"]},
        {"triggers": ["boredom"]},
        {"tokens_in": 3},
        {"reason": "intervened"},
        {"latency_ms": -1},
        {"text": "leak"},
        {"format": "pmem.step/2"},
    ],
)
def test_a_row_that_breaks_the_schema_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        row(**bad)


def test_every_outcome_fits_a_row() -> None:
    for decision, reasons in REASONS.items():
        for reason in reasons:
            assert row(decision=decision, reason=reason).reason == reason


def test_timestamps_are_canonical_and_total() -> None:
    assert AT == "2023-11-14T22:13:20.500Z"
    assert timestamp(float("inf")) == timestamp(-1e30) == "1970-01-01T00:00:00.000Z"


def test_rows_are_written_in_the_background_and_read_back(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    telemetry = FileTelemetry(settings)
    for number in range(50):
        telemetry.step(row(tokens_in=number, tokens_total=number))
    telemetry.usage(UsageRow(at=AT, route="r", model="m", outcome="silent/model_silent"))
    telemetry.close()
    rows = list(read_rows(settings.steps_file, StepRow))
    assert [found.tokens_in for found in rows] == list(range(50)) and rows[0] == row(tokens_in=0)
    assert len(list(read_rows(settings.usage_file, UsageRow))) == 1 and telemetry.lost == 0


def test_nothing_is_written_on_the_callers_thread(tmp_path: Path) -> None:
    """The thread that queues a row opens, writes and syncs nothing: an audit of its own events shows it."""
    import sys

    host, seen = threading.get_ident(), []

    def hook(event: str, args: object) -> None:
        if watching and threading.get_ident() == host and event.startswith(("open", "os.", "socket")):
            seen.append((event, args))

    watching = False
    sys.addaudithook(hook)
    telemetry = FileTelemetry(Settings(state_dir=tmp_path))
    watching = True
    for _ in range(100):
        telemetry.step(row())
    watching = False
    telemetry.close()
    assert seen == []


def test_rotates_at_one_mebibyte_and_keeps_one_generation(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    journal = Journal(path)
    line = row().model_dump_json()
    for _ in range(3 * (2 * MAX_BYTES // (len(line) * 200)) + 3):
        journal.write([line] * 200)
    assert path.with_name("steps.jsonl.1").exists() and not path.with_name("steps.jsonl.2").exists()
    assert path.stat().st_size <= MAX_BYTES + 200 * (len(line) + 1)
    assert len(list(read_rows(path, StepRow))) > 1000


def test_a_line_cut_off_by_a_crash_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    whole = row().model_dump_json()
    path.write_text(whole + "\n" + whole[:40], encoding="utf-8")
    Journal(path).write([whole])
    skipped = Rows()
    assert len(list(read_rows(path, StepRow, skipped))) == 2 and skipped.num_skipped == 1


def test_broken_and_foreign_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(
        b'{"format":"other/1"}\n\xff\xfe\n[]\nnull\n' + b"[" * 5000 + b"\n\n" + row().model_dump_json().encode() + b"\n"
    )
    skipped = Rows()
    assert len(list(read_rows(path, StepRow, skipped))) == 1 and skipped.num_skipped == 5


def _write_many(path: str, name: int) -> None:
    journal = Journal(Path(path), max_bytes=20_000)
    for number in range(200):
        journal.write([json.dumps({"writer": name, "number": number, "pad": "x" * 50})])


def test_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(path), name)) for name in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    for file in (path, path.with_name("steps.jsonl.1")):
        for line in file.read_text(encoding="utf-8").splitlines():
            assert len(json.loads(line)["pad"]) == 50


def test_a_held_lock_delays_no_one_for_long(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "steps.jsonl"
    with (tmp_path / "steps.jsonl.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Journal(path).write(["{}"])
    assert path.read_text() == "{}\n"


def test_a_forked_child_writes_too(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    path = tmp_path / "steps.jsonl"
    journal = Journal(path)
    journal.append('{"from":"parent"}')
    assert journal.flush()
    child = os.fork()
    if child == 0:
        journal.append('{"from":"child"}')
        os._exit(0 if journal.flush() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.read_text().splitlines() == ['{"from":"parent"}', '{"from":"child"}']
