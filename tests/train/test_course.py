"""A course: lessons in their order, each until it is learned or used up, and the same batches again after a stop."""

import dataclasses
import shutil
from itertools import islice
from pathlib import Path

import pytest

from data.rows import write_lesson, write_sft
from pmem.errors import UserError
from tests.tiny import tiny_model
from tests.train.contradictions import contradiction_rows
from tests.train.test_sft import config_of, lines, losses
from train.batches import LengthBuckets
from train.course import Course
from train.run_state import RECENT_BATCHES, RunState
from train.sft import run


def buckets(num_rows: int) -> LengthBuckets:
    return LengthBuckets([10] * num_rows, [index % 2 == 0 for index in range(num_rows)], ["a"] * num_rows, batch_size=4, seed=1)


def course(state: RunState, num_batches: int = 80) -> Course:
    """A lesson of 200 rows (50 batches), one of 40 (10), and 20 ordinary rows."""
    return Course([buckets(200), buckets(40)], buckets(20), run=state, until=0.4, num_batches=num_batches)


def lesson_of(batch: list[int]) -> int:
    (found,) = {0 if index < 200 else 1 if index < 240 else 2 for index in batch}
    return found


def drawn(state: RunState, decision_nll: float, stop_after: int = 80) -> list[list[int]]:
    batches = []
    for batch in islice(course(state), stop_after):
        batches.append(batch)
        state.saw_batch(len(batch), decision_nll)
    return batches


def test_a_lesson_that_is_not_learned_is_used_up_and_one_that_is_ends_early() -> None:
    state = RunState(num_steps=80, num_lessons=2)
    batches = drawn(state, decision_nll=0.6)
    assert [lesson_of(batch) for batch in batches] == [0] * 50 + [1] * 10 + [2] * 20
    assert state.lesson_ends == [50, 60] and not state.in_course
    assert len({index for batch in batches[60:65] for index in batch}) == 20, "ordinary rows come once an epoch"
    quick = RunState(num_steps=80, num_lessons=2)
    learned = [lesson_of(batch) for batch in drawn(quick, decision_nll=0.3)]
    assert learned == [0] * RECENT_BATCHES + [1] * 10 + [2] * (80 - 10 - RECENT_BATCHES)


@pytest.mark.parametrize("stopped", [5, RECENT_BATCHES - 1, RECENT_BATCHES, RECENT_BATCHES + 3, 60])
def test_a_resumed_course_draws_the_same_batches(stopped: int, tmp_path: Path) -> None:
    whole = drawn(RunState(num_steps=80, num_lessons=2), decision_nll=0.3)
    first = RunState(num_steps=80, num_lessons=2)
    drawn(first, decision_nll=0.3, stop_after=stopped)
    first.save(tmp_path)
    again = RunState(num_steps=80, num_lessons=2)
    again.load(tmp_path)
    batches = iter(course(again))
    seen = [next(batches) for _ in range(stopped)]  # the Trainer draws what it has seen, and trains nothing
    for batch in batches:
        seen.append(batch)
        again.saw_batch(len(batch), 0.3)
    assert seen == whole


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    tiny_model(folder)
    write_sft(
        folder / "sft.parquet", [*contradiction_rows(24, seed=1, split="train"), *contradiction_rows(8, seed=2, split="dev")]
    )
    write_lesson(folder / "sft.parquet", 1, contradiction_rows(8, seed=3, split="train"))
    return folder


def test_a_course_is_trained_first_and_resumes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(place, "whole", course=(1,), max_steps=None, num_epochs=1.0, eval_every=2)
    done = run(config)
    assert done["steps"] == 8 and done["best_step"] > 2, "no step of the course is kept as the best"
    assert [line["step"] for line in lines(config.out) if "dev_auroc" in line] == [2, 4, 6, 8]
    again = dataclasses.replace(config, out=place / "again")

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("train.sft_run.write", die)
        with pytest.raises(KeyboardInterrupt):
            run(again)
    (again.out / "checkpoints" / "checkpoint-8" / "pmem_run.json").unlink()
    run(again)
    assert losses(again.out) == losses(config.out)


def test_a_lesson_that_was_not_built_with_these_rows_is_one_sentence(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sft\.bank2\.parquet, the lesson with banks of 2, does not exist; .* course=\[2\]"):
        run(config_of(place, "none", course=(2,)))
    for path in place.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    write_sft(tmp_path / "sft.parquet", contradiction_rows(12, seed=9, split="train"))
    with pytest.raises(UserError, match=r"bank1\.parquet was not built together with"):
        run(config_of(place, "stale", rows=tmp_path / "sft.parquet", course=(1,)))
