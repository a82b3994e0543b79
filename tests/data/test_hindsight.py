"""Hindsight: repeated failures, repeated looks and violated requirements are found, and nothing else is."""

from pathlib import Path
from typing import Any

import pytest

from data.bank_writer import BankWriter, WriterConfig
from data.check_hindsight import check_agentrx, check_mint
from data.hindsight import HindsightConfig, findings, hindsight_labels, label
from data.labels import read_labels
from data.replay import replay_rollout
from data.snapshots import write_snapshots
from pmem.errors import UserError
from pmem.rollout import write_rollouts
from tests.data.make import rollout, snapshot_row, tool

SHARED = Path(__file__).parents[3] / "shared" / "data"
TASK = {"kind": "user", "text": "Make the build pass. You must not edit tests/test_a.py in any way."}
FAIL = ("make", "make: *** No rule to make target")
LOOK = ("cat conf.ini", "port = 8080 and host = example.org and more of this kind")


def rows_of(*steps: list[dict[str, Any]], success: bool | None = False) -> list[dict[str, Any]]:
    run = rollout(TASK, *(event for step in steps for event in step), success=success)
    writer = BankWriter(WriterConfig(miss_rate=0.0, error_rate=0.0), "k")
    return list(replay_rollout(run, writer.operations, split="train"))


def fail(number: int) -> list[dict[str, Any]]:
    return tool(*FAIL, is_error=True, number=number)


def ok(command: str = "true", text: str = "fine", number: int = 0) -> list[dict[str, Any]]:
    return tool(command, text, number=number)


def found(*steps: list[dict[str, Any]], failed: bool = False) -> list[tuple[str, int, int]]:
    return [(one.mechanism, one.step, one.since) for one in findings(rows_of(*steps), failed)]


def test_a_failure_that_comes_again_with_nothing_changed_in_between() -> None:
    assert found(fail(1), ok("ls"), fail(2)) == [("failure_loop", 3, 1)]


def test_a_change_a_success_or_another_error_in_between_is_no_repeat() -> None:
    assert found(fail(1), ok("echo x > Makefile"), fail(2)) == []
    assert found(fail(1), ok(FAIL[0], "built", number=5), fail(2)) == []
    assert found(fail(1), tool("make", "make: disk full", is_error=True, number=2)) == []


def test_a_look_that_is_repeated_late_is_a_second_diagnosis() -> None:
    assert found(ok(*LOOK), ok("ls"), ok("pwd"), ok(*LOOK, number=2)) == [("diagnosis", 4, 1)]
    assert found(ok(*LOOK), ok(*LOOK, number=2)) == []
    assert found(ok(*LOOK), ok("rm x"), ok("ls"), ok("pwd"), ok(*LOOK, number=2)) == []


def test_a_forbidden_file_is_touched_before_a_failed_outcome() -> None:
    steps = (ok("ls"), ok("sed -i s/a/b/ tests/test_a.py"))
    assert found(*steps, failed=True) == [("requirement", 2, 0)]
    assert found(*steps, failed=False) == []


def test_labels_sit_before_the_act_and_cite_what_the_bank_holds() -> None:
    rows = rows_of(fail(1), ok("ls"), fail(2), success=None)
    made = list(hindsight_labels(rows))
    by_step = {row["snapshot_id"]: row["step"] for row in rows}
    verdicts = {by_step[row["snapshot_id"]]: row["verdict"] for row in made}
    assert verdicts == {1: "unknown", 2: "need", 3: "not_needed"}
    (said,) = [row for row in made if row["candidate_id"]]
    assert by_step[said["snapshot_id"]] == 2 and said["reminder_text"].startswith("bash make already failed")
    assert said["cited_ids"] == [said["candidate_id"]] and {row["label_kind"] for row in made} == {"hindsight"}


def test_a_violated_requirement_is_reminded_in_its_own_words() -> None:
    rows = rows_of(ok("ls"), ok("pwd"), ok("sed -i s/a/b/ tests/test_a.py"))
    (said,) = [row for row in hindsight_labels(rows, {rows[0]["rollout_id"]: False}) if row["candidate_id"]]
    assert "must not edit tests/test_a.py" in said["reminder_text"]


def test_the_stage_reads_outcomes_and_leaves_simulated_snapshots_alone(tmp_path: Path) -> None:
    rows = rows_of(fail(1), ok("ls"), fail(2))
    write_snapshots(tmp_path / "s", [*rows, snapshot_row(restore_ref="{}")])
    run = rollout(TASK, *fail(1), *ok("ls"), *fail(2), success=False)
    write_rollouts(tmp_path / "r", [run])
    label(HindsightConfig(snapshots=tmp_path / "s", rollouts=(tmp_path / "r",), out=tmp_path / "l"))
    assert {row["snapshot_id"] for row in read_labels(tmp_path / "l")} == {row["snapshot_id"] for row in rows}
    assert "not_needed" not in {row["verdict"] for row in read_labels(tmp_path / "l")}
    write_snapshots(tmp_path / "s", [snapshot_row(restore_ref="{}")])
    with pytest.raises(UserError, match="no snapshot of an imported rollout"):
        label(HindsightConfig(snapshots=tmp_path / "s", out=tmp_path / "l"))


@pytest.mark.skipif(not SHARED.exists(), reason="the collections are not here")
def test_the_checks_against_people_count_the_runs_they_should() -> None:
    folder = SHARED / "agentrx"
    shares = check_agentrx(folder / "tau_dataset_full.json", folder / "tau_ground_truth.json")
    assert [share.total for share in shares] == [27, 27, 73]
    folder = SHARED / "mint_alfworld"
    name = "gpt-3.5-turbo-0613__{}.results.jsonl"
    shares = check_mint(folder / name.format("no_feedback"), folder / name.format("gpt-4_feedback"))
    assert sum(share.total for share in shares) == 134
