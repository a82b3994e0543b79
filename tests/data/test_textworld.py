"""Family textworld: the engine's world and effects, the same rules as every family; without the package it is not offered."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from data import envs
from data.envs import FAMILIES, make_task, require_family, textworld
from data.envs.base import Refused, Task, ToolResult
from data.envs.bash import BashEnvironment
from data.envs.memo import MemoEnvironment, RealPlace
from data.episode import Episode, rebuild
from data.replay import restore_ref
from data.sandbox import Sandbox
from data.simulate import SimulateConfig, jobs, simulate
from data.strengths import STRENGTHS
from pmem.errors import UserError
from pmem.rollout import write_rollouts
from tests.data.test_envs import run_script

NAME = textworld.NAME


def test_it_is_drawn_only_when_it_is_named() -> None:
    assert NAME not in FAMILIES and NAME not in {job.family for job in jobs(SimulateConfig(num_tasks=40))}


def test_without_its_package_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textworld, "find_spec", lambda name: None)
    for ask in (lambda: SimulateConfig(families=(NAME,)), lambda: make_task(NAME, 0, 12), lambda: require_family(NAME)):
        with pytest.raises(UserError, match=r'needs the package textworld: pip install "pmem\[textworld\]"'):
            ask()
    assert make_task("files", 0, 12).acts


@pytest.fixture(scope="module")
def engine() -> None:
    pytest.importorskip("textworld", reason="the optional extra textworld is not installed")


@pytest.fixture(scope="module")
def place(engine: None) -> Iterator[RealPlace]:
    with Sandbox() as sandbox:
        yield RealPlace(BashEnvironment(sandbox), audit_share=1.0)


def say(environment: MemoEnvironment, command: str) -> ToolResult:
    return environment.step("game", {"cmd": command})


def bound(mechanism: str) -> Task:
    """A task in which the mechanism is bound."""
    tasks = (make_task(NAME, seed, 16) for seed in range(50))
    return next(task for task in tasks if any(fact.mechanism == mechanism for fact in task.facts.values()))


@pytest.mark.parametrize("num_acts", [12, 20, 80])
def test_the_right_values_win_every_quest(place: RealPlace, num_acts: int) -> None:
    for seed in range(4):
        environment = place.open(make_task(NAME, seed, num_acts))
        run_script(environment.memory.task, environment)
        assert environment.check().success, environment.check().failed


def test_one_wrong_value_is_refused_or_loses_a_quest(place: RealPlace) -> None:
    for seed in range(3):
        task = make_task(NAME, seed, 16)
        for key in task.facts:
            environment = place.open(task)
            done = run_script(task, environment, spoil=key)
            uses = {act.name for act in task.acts if act.fact == key}
            assert any(result.is_error for name, result in done if name in uses) or not environment.check().success


def test_the_world_obeys_the_constraints_of_the_engine(engine: None) -> None:
    from textworld.generator.maker import get_failing_constraints

    for seed in range(3):
        house = textworld.House(seed, frozenset(), 16)
        failing = get_failing_constraints(house.world.maker.state)
        assert {constraint.name for constraint in failing} <= {"k3", "k4"}  # one key for several gates, several for one


def test_effects_are_those_of_the_engine(place: RealPlace) -> None:
    environment = place.open(make_task(NAME, 3, 16))
    assert say(environment, "take apple").text.endswith("You see no apple here.")
    done = say(environment, "go to kitchen. take apple. put apple in crate. close crate")
    assert not done.is_error and done.text.endswith("You insert the apple into the crate. You close the crate.")
    assert say(environment, "take apple").is_error and "(shut)" in say(environment, "look").text
    assert "apple" not in say(environment, "look").text
    assert say(environment, "open crate. take apple from crate. inventory").text.count("apple") == 2
    assert say(environment, "dance").text == "Error: The game does not know the command 'dance'."


def test_no_command_is_a_fault_and_every_state_can_be_read_again(engine: None) -> None:
    verbs = (
        "take",
        "drop",
        "open",
        "close",
        "lock",
        "unlock",
        "insert",
        "put",
        "eat",
        "examine",
        "go",
        "go to",
        "look",
        "inventory",
        "",
    )
    names = (
        "apple",
        "the crate",
        "table",
        "old gate",
        "iron key",
        "kitchen",
        "old vault",
        "north",
        "",
        "in",
        "spoiled fish",
        "ünk",
    )
    house = textworld.House(7, frozenset({"failure_loop", "diagnosis"}), 16)
    database: dict[str, Any] = {"gone": [], "new": []}
    drawn = Random(5)
    for _ in range(400):
        parts = [drawn.choice(verbs), drawn.choice(names), drawn.choice(("into", "on", "with", "from", "")), drawn.choice(names)]
        with suppress(Refused):
            assert house.world.play(database, {"cmd": " ".join(parts) + ". look"})
        assert {fact.name for fact in house.world.state(database).facts} >= {"at", "in", "link"}
    with pytest.raises(KeyError):
        house.world.play(database, {})


def test_what_came_before_a_refusal_stays_done(place: RealPlace) -> None:
    environment = place.open(make_task(NAME, 3, 16))
    assert say(environment, "go to kitchen. take apple. put apple in vat").is_error
    assert "apple" in say(environment, "inventory").text
    assert say(environment, "take apple").text == "Error: You cannot take apple: you carry the apple."


def test_a_gate_refuses_the_wrong_key_and_names_the_right_one(place: RealPlace) -> None:
    task = bound("failure_loop")
    fact = next(fact for fact in task.facts.values() if fact.mechanism == "failure_loop")
    act = next(act for act in task.acts if act.name == "try gate")
    environment = place.open(task)
    result = environment.step(act.tool, json.loads(act.command))
    assert result.is_error and fact.stages[0].text in result.text and f"The {fact.rivals[0]} key failed" in result.text
    assert say(environment, "go to side vault").text == "Error: There is no open way to the side vault."


def test_a_thing_is_found_by_looking(place: RealPlace) -> None:
    task = bound("grounding")
    fact = next(fact for fact in task.facts.values() if fact.mechanism == "grounding")
    environment = place.open(task)
    for room in fact.kind.words:
        assert (fact.stages[0].text in say(environment, f"go to {room}. look").text) == (room == fact.stages[0].value)


def test_snapshot_and_restore(place: RealPlace) -> None:
    environment = place.open(make_task(NAME, 4, 16))
    start = environment.snapshot()
    say(environment, "go to study. look")
    assert environment.snapshot().digest != start.digest
    environment.restore(start)
    assert environment.snapshot().digest == start.digest and say(environment, "look").text.startswith("In the hall")


def test_the_same_seed_gives_the_same_bytes_on_one_worker_and_two(engine: None, tmp_path: Path) -> None:
    files = []
    for workers in (1, 2):
        config = SimulateConfig(families=(NAME,), num_tasks=4, num_heldout=0, min_acts=12, max_acts=16, num_workers=workers)
        rollouts, num_processes = simulate(config)
        write_rollouts(tmp_path / f"{workers}.jsonl", rollouts)
        files.append((tmp_path / f"{workers}.jsonl").read_bytes())
        assert num_processes == 0
    assert files[0] == files[1]


def test_a_run_is_rebuilt_from_its_reference(engine: None) -> None:
    episode = Episode(NAME, 2, STRENGTHS["weak"], 5, num_acts=16)
    while not episode.done:
        episode.advance()
    half = rebuild(json.loads(restore_ref(episode.rollout(), 8) or ""))
    assert half.events == episode.events[: len(half.events)] and half.num_done == 8


def test_ten_families_stand_as_they_did() -> None:
    assert len(FAMILIES) == 10 and set(envs.EXTRAS) == {NAME}
