"""Twins: several runs of one task, and the labelled snapshots of them that differ by little more than what the plan says."""

from collections import defaultdict
from pathlib import Path

import pytest

from data.label import LabelConfig, units_of
from data.replay import ReplayConfig, replay
from data.simulate import SimulateConfig, jobs, simulate
from data.snapshots import read_snapshots
from data.splits import SplitConfig
from data.tables import Row
from data.twins import MIN_SHARED, twin_of
from pmem.errors import UserError
from pmem.rollout import write_rollouts


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of each of six tasks by a weak agent, all in split train."""
    folder = tmp_path_factory.mktemp("twins")
    rollouts, _ = simulate(
        SimulateConfig(families=("files", "cleaning"), num_tasks=6, num_heldout=0, attempts=3, strengths=("weak",), num_workers=1)
    )
    write_rollouts(folder / "rollouts.jsonl", rollouts)
    train = SplitConfig(weights={"train": 1.0})
    replay(ReplayConfig(rollouts=(folder / "rollouts.jsonl",), out=folder / "s.parquet", splits=train, trajectory_steps=1))
    return folder / "s.parquet"


def chosen(snapshots: Path, **changes: object) -> list[Row]:
    settings = {"per_episode": {"train": 6}, "need_share": {"train": 0.5}, **changes}
    units, _ = units_of(LabelConfig(snapshots=snapshots, **settings))  # type: ignore[arg-type]
    return [row for unit in units for row in unit.rows]


def test_the_first_attempt_is_the_run_that_there_was_and_the_others_forget_other_things() -> None:
    once, thrice = jobs(SimulateConfig(num_tasks=9, num_heldout=3)), jobs(SimulateConfig(num_tasks=9, num_heldout=3, attempts=3))
    assert thrice[::3] == once
    assert len({job.agent_seed for job in thrice}) == 36 and thrice[1].seed == thrice[0].seed
    with pytest.raises(UserError, match="attempts"):
        SimulateConfig(attempts=0)


def test_every_needed_snapshot_comes_with_its_twin_where_there_is_one(snapshots: Path) -> None:
    rows = list(read_snapshots(snapshots))
    plain, twinned = chosen(snapshots), chosen(snapshots, twins=True)
    needed = {row["snapshot_id"] for row in plain if row["mechanism"]}
    assert needed == {row["snapshot_id"] for row in twinned if row["mechanism"]}
    ids = {row["snapshot_id"] for row in twinned}
    last = {name: max(row["step"] for row in rows if row["rollout_id"] == name) for name in {row["rollout_id"] for row in rows}}
    alive = [row for row in rows if row["step"] < last[row["rollout_id"]]]
    pairs = [(row, twin_of(row, alive)) for row in rows if row["snapshot_id"] in needed]
    found = [(row, twin) for row, twin in pairs if twin]
    assert len(found) >= 0.8 * len(pairs) > 0
    for row, twin in found:
        assert twin["snapshot_id"] in ids and twin["mechanism"] is None
        assert twin["task_id"] == row["task_id"] and twin["rollout_id"] != row["rollout_id"]


def test_another_act_is_no_twin(snapshots: Path) -> None:
    rows = list(read_snapshots(snapshots))
    needed = next(row for row in rows if row["mechanism"] and twin_of(row, rows))
    twin = twin_of(needed, rows)
    assert twin is not None
    far = {**twin, "window": [{**twin["window"][-1], "call": "bash ls"}]}
    assert twin_of(needed, [far]) is None and twin_of(needed, [{**twin, "task_id": "other"}]) is None and 0 < MIN_SHARED < 1


def test_so_many_rollouts_of_a_task_are_measured_as_its_split_says(snapshots: Path) -> None:
    runs: dict[str, set[str]] = defaultdict(set)
    for row in chosen(snapshots, rollouts_per_task={"train": 2}):
        runs[row["task_id"]].add(row["rollout_id"])
    assert [len(found) for found in runs.values()] == [2] * 6
    with pytest.raises(UserError, match="rollouts_per_task"):
        LabelConfig(rollouts_per_task={"nope": 1})
