"""Splits: by task alone, in the shares asked for, frozen."""

from collections import Counter

import pytest

from data.splits import SplitConfig, assign_split
from pmem.errors import UserError


def test_shares_come_out_and_heldout_families_go_whole() -> None:
    config = SplitConfig(weights={"train": 3, "test": 1}, heldout_families=("far",))
    counts = Counter(assign_split(f"task-{number}", "near", config) for number in range(4_000))
    assert set(counts) == {"train", "test"}
    assert counts["train"] / 4_000 == pytest.approx(0.75, abs=0.03)
    assert {assign_split(f"task-{number}", "far", config) for number in range(50)} == {"heldout"}


def test_the_assignment_is_frozen() -> None:
    """Golden: a change of the hash would leak test tasks into training of anybody who has both versions."""
    names = [assign_split(f"task-{number}", "demo", SplitConfig()) for number in range(8)]
    assert names == GOLDEN


def test_datasets_that_share_tasks_share_splits() -> None:
    for number in range(50):
        names = {assign_split(f"task-{number}", family, SplitConfig()) for family in ("one", "two", "three")}
        assert len(names) == 1


def test_wrong_weights_are_named() -> None:
    with pytest.raises(UserError, match="'validation'"):
        SplitConfig(weights={"validation": 1})
    with pytest.raises(UserError, match="not all 0"):
        SplitConfig(weights={"train": 0})


GOLDEN = ["dev", "test", "fit", "train", "certify", "train", "certify", "train"]
