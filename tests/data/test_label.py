"""Labels: the same file on one worker and two and after a kill, divergence voids, and hindsight for what cannot be rebuilt."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from data.episode import rebuild
from data.label import LabelConfig, choose_rows, diverged, label, label_unit, units_of
from data.labels import group_labels, read_labels
from data.live_values import LiveValues
from data.replay import ReplayConfig, replay
from data.simulate import SimulateConfig, simulate
from data.snapshots import read_snapshots, write_snapshots
from pmem.errors import UserError
from pmem.rollout import write_rollouts

COUNTS = dict.fromkeys(("train", "dev", "fit", "certify", "test", "heldout"), 3)


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("label")
    rollouts, _ = simulate(
        SimulateConfig(families=("files", "git"), num_tasks=8, num_heldout=0, min_acts=12, max_acts=12, num_workers=1)
    )
    write_rollouts(folder / "rollouts.jsonl", rollouts)
    replay(ReplayConfig(rollouts=(folder / "rollouts.jsonl",), out=folder / "snapshots.parquet"))
    return folder / "snapshots.parquet"


def config(snapshots: Path, out: Path, **changes: object) -> LabelConfig:
    return LabelConfig(
        **{"snapshots": snapshots, "out": out, "num_branches": 4, "per_episode": COUNTS, "num_workers": 1, **changes}
    )


def test_one_worker_and_two_give_the_same_file(snapshots: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        label(config(snapshots, tmp_path / f"{workers}.parquet", num_workers=workers))
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
    assert list(tmp_path.glob("*.partial")) == []


def test_rows_hold_what_calibration_defines(snapshots: Path, tmp_path: Path) -> None:
    rows, units = label(config(snapshots, tmp_path / "l.parquet"))
    groups = group_labels(read_labels(tmp_path / "l.parquet"))
    assert len(groups) == 24 and sum(unit.num_real for unit in units) < sum(unit.num_steps for unit in units) / 4
    for (group,) in groups.values():
        assert group.silence is not None and group.silence["num_branches"] == 4 and group.silence["cost"] == 0
        assert not group.voided
        for row in group.candidates:
            assert row["verdict"] == group.verdict and row["paired_diff"] == pytest.approx(row["value"] - group.silence["value"])
            assert row["reminder_text"].endswith(f"[{row['cited_ids'][0]}]") and row["cost"] > 0.01
    assert {row["label_kind"] for row in rows} == {"counterfactual"}


def test_a_stopped_run_goes_on_and_ends_with_the_same_bytes(snapshots: Path, tmp_path: Path) -> None:
    label(config(snapshots, tmp_path / "whole.parquet"))
    first = config(snapshots, tmp_path / "cut.parquet")
    units, _ = units_of(first)
    journal = tmp_path / "cut.parquet.partial"
    lines = [json.dumps(asdict(label_unit(unit, first))) for unit in units[:3]]
    journal.write_text("\n".join(lines) + '\n{"key": "cut o')
    label(first)
    assert (tmp_path / "cut.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_prefix_that_differs_voids_the_snapshot(snapshots: Path, tmp_path: Path) -> None:
    rows = [row for row in read_snapshots(snapshots) if row["step"] in (4, 5)]
    good = next(row for row in rows if row["step"] == 4)
    events = rebuild(json.loads(good["restore_ref"])).events
    assert not diverged(good, events)
    for row in rows:
        row["window"][-1]["digest"] = "something else"
    assert diverged(good, events)
    write_snapshots(tmp_path / "bad.parquet", rows)
    labels, _ = label(config(tmp_path / "bad.parquet", tmp_path / "l.parquet"))
    assert labels and all(row["divergence"] and row["verdict"] == "unknown" and row.get("value") is None for row in labels)


def test_the_choice_prefers_need_where_asked_and_leaves_the_end_out(snapshots: Path, tmp_path: Path) -> None:
    rows = list(read_snapshots(snapshots))
    by_rollout = {row["rollout_id"]: [other for other in rows if other["rollout_id"] == row["rollout_id"]] for row in rows}
    shares = dict.fromkeys(COUNTS, 1.0)
    for members in by_rollout.values():
        last = max(row["step"] for row in members)
        chosen = choose_rows(members, config(snapshots, tmp_path / "x", need_share=shares))
        needed = [row for row in members if row["mechanism"] and row["step"] < last]
        assert len(chosen) == 3 and all(row["step"] < last for row in chosen)
        assert sum(row["mechanism"] is not None for row in chosen) == min(3, len(needed))


def test_a_reminder_measured_on_demand_has_the_value_of_its_label(snapshots: Path, tmp_path: Path) -> None:
    label(config(snapshots, tmp_path / "l.parquet"))
    measured = [row for row in read_labels(tmp_path / "l.parquet") if row["candidate_id"] is not None][:4]
    live = LiveValues(snapshots, {row["snapshot_id"] for row in measured}, num_branches=4)
    for row in (*measured, *measured):
        assert live.value(row["snapshot_id"], row["reminder_text"]) == row["value"]
    assert live.num_measured == len({(row["snapshot_id"], row["reminder_text"]) for row in measured})
    assert live.value("unknown", "Anything. [tm-k-1]") is None


def test_nothing_to_label_is_one_sentence(snapshots: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no snapshot of the splits"):
        label(config(snapshots, tmp_path / "l.parquet", per_episode={}))
    with pytest.raises(UserError, match="unknown split 'nope'"):
        config(snapshots, tmp_path / "l.parquet", per_episode={"nope": 3})
    with pytest.raises(UserError, match="ray_address"):
        label(config(snapshots, tmp_path / "l.parquet", ray_address="nowhere"))
    assert not (tmp_path / "l.parquet.partial").exists()
    with pytest.raises(UserError, match="num_branches"):
        config(snapshots, tmp_path / "l.parquet", num_branches=1)


def test_only_train_may_have_fewer_branches(snapshots: Path, tmp_path: Path) -> None:
    rows, _ = label(config(snapshots, tmp_path / "l.parquet", train_branches=2))
    split_of = {row["snapshot_id"]: row["split"] for row in read_snapshots(snapshots)}
    assert {(split_of[row["snapshot_id"]] == "train", row["num_branches"]) for row in rows} == {(True, 2), (False, 4)}
