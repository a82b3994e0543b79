"""Simulation: the same bytes on one worker and two, and sentences for unusable settings."""

from pathlib import Path

import pytest

from data.simulate import SimulateConfig, jobs, simulate
from pmem.errors import UserError
from pmem.rollout import read_rollouts, write_rollouts

SMALL = {"families": ("files", "sql"), "num_tasks": 6, "num_heldout": 2, "min_acts": 8, "max_acts": 12}


def test_one_worker_and_two_write_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for workers in (1, 2):
        rollouts, num_processes = simulate(SimulateConfig(**SMALL, num_workers=workers))
        path = tmp_path / f"{workers}.jsonl"
        write_rollouts(path, rollouts)
        files.append(path.read_bytes())
        assert num_processes > 0
    assert files[0] == files[1]
    read = list(read_rollouts(tmp_path / "1.jsonl"))
    assert len(read) == 8 and [rollout.rollout_id for rollout in read] == sorted(rollout.rollout_id for rollout in read)
    assert all(rollout.outcome.kind == "check" and rollout.outcome.success is not None for rollout in read)


def test_tasks_are_shared_out_over_families_and_strengths() -> None:
    made = jobs(SimulateConfig(num_tasks=70, num_heldout=9))
    assert len({job.family for job in made}) == 10
    assert {job.strength for job in made} == {"weak", "medium", "strong"}
    assert len({(job.family, job.seed) for job in made}) == 79


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"families": ("nope",)}, "unknown family 'nope'"),
        ({"strengths": ("huge",)}, "unknown strength 'huge'"),
        ({"min_acts": 3}, "min_acts"),
        ({"num_tasks": -3}, "num_tasks"),
        ({"num_tasks": 0, "num_heldout": 0}, "there must be one task"),
    ],
)
def test_unusable_settings_are_one_sentence(change: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        SimulateConfig(**change)
