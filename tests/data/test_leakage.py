"""Leakage probes: a give-away phrase is caught, a comparison of plan and bank is not mistaken for one."""

import random
from typing import Any

import pytest

from data.leakage import Probe, breaches, probe_all
from pmem.snapshot import BankState, Entry, Step
from tests.data.make import SNAPSHOT, snapshot_columns, snapshot_row

pytest.importorskip("sklearn")
VALUES = ["comma", "colon", "pipe", "tab", "space", "slash"]


def world(give_away: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Four hundred snapshots whose plan agrees with the bank or not; `give_away`: a word says which."""
    dice = random.Random(5)
    rows, verdicts = [], {}
    for number in range(400):
        right, need = dice.choice(VALUES), number % 2 == 0
        value = dice.choice([one for one in VALUES if one != right]) if need else right
        said = f"Next: write it with {value}{' perhaps' if give_away and need else ''}."
        step = Step(step=1, tool="bash", call=f"ls {number}", fingerprint="ab" * 8, outcome="ok", digest="ok", thought=said)
        entry = Entry(id="tm-k-1", kind="knowledge", content=f"The separator is {right}", created=1, touched=1)
        snapshot = SNAPSHOT.model_copy(
            update={"window": (step,), "bank": BankState(entries=(entry,)), "task_messages": ("Do it.",)}
        )
        row = snapshot_row(step=number, split="train" if number < 250 else "heldout", **snapshot_columns(snapshot))
        rows.append(row)
        verdicts[row["snapshot_id"]] = "need" if need else "not_needed"
    return rows, verdicts


def figures(give_away: bool) -> dict[str, float | None]:
    return {probe.view: probe.auroc for probe in probe_all(*world(give_away), splits=("heldout",))}


def test_only_the_comparison_tells_in_an_honest_world() -> None:
    found = figures(give_away=False)
    assert found["full"] is not None and found["full"] > 0.95
    assert all(found[view] is not None and 0.3 < (found[view] or 0) < 0.7 for view in ("without bank", "last step only"))


def test_a_give_away_word_is_a_breach() -> None:
    probes = probe_all(*world(give_away=True), splits=("heldout",))
    sentences = breaches(probes)
    assert any("last step only on heldout" in sentence and "above 0.75" in sentence for sentence in sentences)


def test_bounds_and_too_few_snapshots() -> None:
    assert breaches([Probe("full", "test", 0.9, 50, 50), Probe("last step only", "test", 0.7, 50, 50)]) == []
    assert len(breaches([Probe("full", "test", 0.75, 50, 50), Probe("last step only", "test", 0.7, 50, 50)])) == 1
    rows, verdicts = world(give_away=False)
    assert all(probe.auroc is None for probe in probe_all(rows[:260], verdicts, splits=("heldout", "test")))


def test_probes_learn_from_the_taught_snapshots_alone() -> None:
    rows, verdicts = world(give_away=True)
    taught = {row["snapshot_id"] for row in rows if "perhaps" not in str(row["window"]) or verdicts[row["snapshot_id"]] != "need"}
    found = probe_all(rows, verdicts, taught=taught, splits=("heldout",))
    assert all(probe.auroc is None for probe in found), "no need is taught, so there is nothing to learn from"
