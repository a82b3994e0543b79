"""Every family: its script runs, shows its facts and passes its check; wrong values fail it; executions repeat."""

from collections.abc import Iterator

import pytest

from data.envs import FAMILIES, make_task
from data.envs.base import SLOT, Act, Fact, Task, ToolResult, call_args
from data.envs.bash import BashEnvironment
from data.envs.memo import MemoEnvironment, RealPlace
from data.sandbox import Sandbox
from pmem.errors import UserError

SEEDS = range(3)


@pytest.fixture(scope="module")
def place() -> Iterator[RealPlace]:
    with Sandbox() as sandbox:
        yield RealPlace(BashEnvironment(sandbox), audit_share=1.0)


def right_value(task: Task, act: Act, stages: dict[str, int]) -> str | None:
    if act.kind is None:
        return None
    return task.facts[act.fact].stages[stages[act.fact]].value if act.fact else act.kind.words[0]


def command(act: Act, value: str | None) -> str:
    return act.command.replace(SLOT, act.kind.code(value)) if act.kind and value else act.command


def learn(task: Task, act: Act, result: ToolResult, stages: dict[str, int]) -> None:
    for fact in task.facts.values():
        for index, stage in enumerate(fact.stages):
            seen = stage.source == "result" and stage.text in result.text
            if seen or (stage.source == "user" and stage.act == act.name):
                stages[fact.key] = max(index, stages[fact.key])


def run_script(task: Task, environment: MemoEnvironment, *, spoil: str | None = None) -> list[tuple[str, ToolResult]]:
    """Carry the script out with the right values, or with a wrong one for the fact `spoil`."""
    stages = {key: 0 if fact.stages[0].source == "task" else -1 for key, fact in task.facts.items()}
    done = []
    for act in task.acts:
        value = right_value(task, act, stages)
        if spoil and act.fact == spoil:
            value = wrong_value(task.facts[spoil], value)
        result = environment.step(act.tool, call_args(act.tool, command(act, value)), act.reads)
        learn(task, act, result, stages)
        done.append((act.name, result))
        assert spoil or result.is_error == act.fails, (task.task_id, act, result)
    assert spoil or all(stages[key] == len(fact.stages) - 1 for key, fact in task.facts.items()), (task.task_id, stages)
    return done


def wrong_value(fact: Fact, value: str | None) -> str:
    return next(word for word in fact.kind.words if word not in {stage.value for stage in fact.stages} and word != value)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("num_acts", [12, 20])
def test_the_right_values_pass_the_check_and_show_every_fact(place: RealPlace, family: str, num_acts: int) -> None:
    for seed in SEEDS:
        task = make_task(family, seed, num_acts)
        environment = place.open(task)
        run_script(task, environment)
        found = environment.check()
        assert found.success, (task.task_id, found.failed)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_one_wrong_value_fails_the_check_or_the_command(place: RealPlace, family: str) -> None:
    for seed in SEEDS:
        task = make_task(family, seed, 16)
        for key, fact in task.facts.items():
            environment = place.open(task)
            done = run_script(task, environment, spoil=key)
            uses = {act.name for act in task.acts if act.fact == key}
            refused = any(result.is_error for name, result in done if name in uses)
            assert refused or not environment.check().success, (task.task_id, fact)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_two_real_places_give_the_same_results(family: str) -> None:
    task = make_task(family, 3, 16)
    runs = []
    for _ in range(2):
        with Sandbox() as sandbox:
            environment = RealPlace(BashEnvironment(sandbox)).open(task)
            runs.append((run_script(task, environment), environment.at.digest))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_snapshot_and_restore(place: RealPlace, family: str) -> None:
    task = make_task(family, 4, 12)
    real = place.environment
    real.reset(task)
    start = real.snapshot()
    for act in task.acts[:4]:
        real.step(act.tool, call_args(act.tool, command(act, act.kind.words[0] if act.kind else None)))
    real.restore(start)
    assert real.snapshot().digest == start.digest
    place._standing = None


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_tasks_differ_by_seed_and_are_the_same_for_one(family: str) -> None:
    assert make_task(family, 1, 16).text == make_task(family, 1, 16).text
    assert len({make_task(family, seed, 16).text for seed in range(20)}) == 20


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_long_scripts_exist(family: str) -> None:
    assert 70 <= len(make_task(family, 1, 80).acts) <= 90


def test_an_unknown_tool_is_an_error_result_and_an_unknown_family_a_sentence(place: RealPlace) -> None:
    environment = place.open(make_task("files", 0, 12))
    assert environment.step("browser", {"url": "x"}).is_error
    with pytest.raises(UserError, match="unknown family 'nope'"):
        make_task("nope", 0, 12)
