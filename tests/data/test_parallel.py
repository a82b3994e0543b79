"""Work over processes and over a Ray cluster of this machine: the same results in the same order."""

from functools import partial
from pathlib import Path

import pytest

from data.label import LabelConfig, label
from data.parallel import ordered_map
from data.replay import ReplayConfig, replay
from data.simulate import SimulateConfig, simulate
from pmem.errors import UserError
from pmem.rollout import write_rollouts


def power(base: int, exponent: int) -> int:
    return base**exponent


def test_order_is_that_of_the_items() -> None:
    work = partial(power, 2)
    assert list(ordered_map(work, range(20), 1)) == list(ordered_map(work, range(20), 2)) == [2**n for n in range(20)]


def test_without_ray_the_sentence_says_so() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="Ray is not installed"):
            list(ordered_map(partial(power, 2), [1], ray_address="local"))
    else:
        with pytest.raises(UserError, match="no cluster could be reached"):
            list(ordered_map(partial(power, 2), [1], ray_address="nowhere"))


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_labels(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    chosen = {"families": ("files", "sql"), "num_tasks": 6, "num_heldout": 0, "min_acts": 12, "max_acts": 12}
    here, _ = simulate(SimulateConfig(**chosen, num_workers=1))
    there, processes = simulate(SimulateConfig(**chosen, ray_address="local"))
    assert here == there and processes > 0
    write_rollouts(tmp_path / "r.jsonl", here)
    replay(ReplayConfig(rollouts=(tmp_path / "r.jsonl",), out=tmp_path / "s.parquet"))
    per_episode = dict.fromkeys(("train", "dev", "fit", "certify", "test"), 2)
    for name, spread in {"here": {"num_workers": 1}, "there": {"ray_address": "local"}}.items():
        label(
            LabelConfig(snapshots=tmp_path / "s.parquet", out=tmp_path / name, num_branches=4, per_episode=per_episode, **spread)
        )
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()
