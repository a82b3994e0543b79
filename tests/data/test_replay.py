"""Replay: a snapshot after every tool step, what the runtime's session shows, the same bytes every time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data import replay as stage
from data.bank_writer import WriterConfig
from data.near_duplicates import NearDuplicates, shingles
from data.replay import ReplayConfig, replay, replay_rollout, restore_ref
from data.snapshots import read_snapshots, to_policy_snapshot, trajectory_steps
from data.splits import SplitConfig
from pmem.config import load_config
from pmem.envelope import Operation
from pmem.errors import UserError, exit_code
from pmem.rollout import Agent, write_rollouts
from pmem.snapshot import Snapshot
from tests.data.make import rollout, tool

TASK = {"kind": "user", "text": "You must write the report with semicolons. Put it into out/."}
RUN = rollout(
    TASK,
    *tool("ls", "a.txt", thought="Look first. Next: read a.txt."),
    *tool("cat a.txt", "1;2", thought="Read it. Next: write the report."),
    {"kind": "turn_end"},
    {"kind": "user", "text": "Name it r.csv."},
    *tool("make", "make: *** no rule", is_error=True),
)


def no_writes(snapshot: Snapshot) -> list[Operation]:
    return []


def rows_of(run: Any = RUN, writer: Any = no_writes, **settings: Any) -> list[dict[str, Any]]:
    return list(replay_rollout(run, writer, split="train", **settings))


def test_one_snapshot_a_tool_step_with_what_was_known_then() -> None:
    rows = rows_of()
    assert [(row["boundary_index"], row["step"]) for row in rows] == [(0, 1), (1, 2), (2, 3)]
    assert [len(row["task_messages"]) for row in rows] == [1, 1, 2]
    assert [len(row["window"]) for row in rows] == [1, 2, 3]
    newest = rows[1]["window"][-1]
    assert newest["thought"].endswith("Next: write the report.") and newest["digest"] == "1;2"
    assert rows[2]["window"][-1]["outcome"] == "error" and rows[2]["triggers"] == ["interval"]


def test_the_writer_writes_after_the_snapshot_so_its_entries_show_in_the_next() -> None:
    def writer(snapshot: Snapshot) -> list[Operation]:
        return [Operation("save_knowledge", f"seen {len(snapshot.window)}")]

    rows = rows_of(writer=writer)
    contents = [[entry["content"] for entry in row["bank_before"]["entries"] if entry["kind"] == "knowledge"] for row in rows]
    assert contents == [[], ["seen 1"], ["seen 1", "seen 2"]]
    assert [entry["created"] for entry in rows[2]["bank_before"]["entries"] if entry["kind"] == "knowledge"] == [1.0, 2.0]


def test_the_rules_tier_keeps_failures_in_the_bank() -> None:
    entries = rows_of()[2]["bank_before"]["entries"]
    assert [entry["kind"] for entry in entries] == ["procedural"] and "no rule" in entries[0]["content"]


def test_a_window_of_one_step_and_a_slower_cadence() -> None:
    assert [len(row["window"]) for row in rows_of(trajectory_steps=1)] == [1, 1, 1]
    assert [row["step"] for row in rows_of(cadence=2)] == [2]


def test_only_simulated_rollouts_can_be_restored() -> None:
    assert rows_of()[0]["restore_ref"] is None
    params = {"agent_seed": 3, "mechanisms": ["progress"]}
    simulated = RUN.model_copy(update={"seed": 5, "agent": Agent(name="weak", params=params)})
    assert json.loads(restore_ref(simulated, 2) or "") == {
        "family": "demo", "seed": 5, "step": 2, "agent": {"name": "weak", "params": {"agent_seed": 3}}}  # fmt: skip
    assert [row["mechanism"] for row in rows_of(simulated)] == ["progress", None, None]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    runs = [
        rollout(TASK, *tool(f"echo {word} {number}", f"{word} out"), task_id=f"task-{number}")
        for number, word in enumerate(["alder", "birch", "cedar", "elm", "fir", "holly", "juniper", "larch", "maple", "oak"])
    ]
    write_rollouts(tmp_path / "rollouts.jsonl", [*runs, runs[0], rollout(TASK, task_id="empty")])
    return tmp_path


def config(folder: Path, **changes: Any) -> ReplayConfig:
    values: dict[str, Any] = {
        "rollouts": (folder / "rollouts.jsonl",),
        "out": folder / "s.parquet",
        "near_duplicate_jaccard": 2.0,
    }
    return ReplayConfig(**{**values, **changes})


def test_the_stage_writes_the_same_bytes_and_counts_what_it_passed_over(files: Path) -> None:
    counts = replay(config(files))
    first = (files / "s.parquet").read_bytes()
    assert (counts.rollouts, counts.too_short, counts.repeated) == (10, 1, 1)
    replay(config(files))
    assert (files / "s.parquet").read_bytes() == first
    assert sum(counts.snapshots.values()) == 10 == len(list(read_snapshots(files / "s.parquet")))


def test_tasks_fall_into_splits_and_heldout_families_go_whole(files: Path) -> None:
    replay(config(files, splits=SplitConfig(weights={"train": 1, "test": 1})))
    assert {row["split"] for row in read_snapshots(files / "s.parquet")} == {"train", "test"}
    replay(config(files, splits=SplitConfig(heldout_families=("demo",))))
    assert {row["split"] for row in read_snapshots(files / "s.parquet")} == {"heldout"}


def test_the_window_length_travels_with_the_file(files: Path) -> None:
    replay(config(files, trajectory_steps=3, writer=WriterConfig(miss_rate=0.5)))
    assert trajectory_steps(files / "s.parquet") == 3
    assert trajectory_steps(files / "absent") == 8


def test_near_duplicates_do_not_straddle_splits(files: Path) -> None:
    counts = replay(config(files, near_duplicate_jaccard=0.5, splits=SplitConfig(weights={"train": 1, "test": 1})))
    assert counts.near_duplicates == 0 or set(counts.snapshots) <= {"train", "test"}
    index = NearDuplicates(0.8)
    text = " ".join(f"word{number}" for number in range(200))
    index.add("a", "train", text)
    index.add("b", "test", text + " more")
    index.add("c", "train", "something else entirely, not like the others at all")
    index.add("d", "test", text)
    assert index.straddling() == {"a"}
    assert shingles("") == [] and len(shingles("one two")) == 1


def test_unusable_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no rollouts given"):
        replay(ReplayConfig())
    write_rollouts(tmp_path / "rollouts.jsonl", [rollout(TASK)])
    with pytest.raises(UserError, match="no rollout has a completed tool step"):
        replay(config(tmp_path))
    (tmp_path / "rollouts.jsonl").write_text('{"format": "pmem.rollout/1", "task_id": "x"')
    assert exit_code(lambda: replay(config(tmp_path)) and 0) == 2
    assert "line 1: not valid JSON" in capsys.readouterr().err
    write_rollouts(tmp_path / "rollouts.jsonl", [rollout(TASK, *tool("ls", "a"))])
    with pytest.raises(UserError, match="no rollout is of family 'nope'"):
        replay(replace(config(tmp_path), splits=SplitConfig(heldout_families=("nope",))))
    assert not (tmp_path / "s.parquet").exists()


def test_rows_read_back_render_as_the_session_saw_them(files: Path) -> None:
    replay(config(files))
    snapshot = to_policy_snapshot(next(read_snapshots(files / "s.parquet")))
    assert snapshot.task_messages == (TASK["text"],) and snapshot.window[0].tool == "bash"
    assert next(read_snapshots(files / "s.parquet"))["prompt_version"] == stage.PROMPT_VERSION


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("splits.wights=3", "splits.wights"),
        ("writer.miss=3", "writer.miss"),
        ("writer.miss_rate=3", "miss_rate"),
        ("cadence=0", "cadence is 0"),
        ("trajectory_steps=65", "trajectory_steps is 65"),
        ("splits.weights={train: .nan}", "weights is .*nan"),
    ],
)
def test_unusable_settings_are_one_sentence(override: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_config(ReplayConfig, None, [override])
