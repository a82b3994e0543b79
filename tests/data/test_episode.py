"""Episodes: events as the contract says, rebuilding, forks that differ only by the reminder."""

from itertools import takewhile

import pytest

from data.agent import STRENGTHS
from data.envs import FAMILIES
from data.episode import Episode, rebuild, start
from pmem.errors import UserError


def finished(family: str = "files", seed: int = 1, strength: str = "weak", agent_seed: int = 3) -> Episode:
    episode = Episode(family, seed, STRENGTHS[strength], agent_seed, num_acts=12)
    while not episode.done:
        episode.advance()
    return episode


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_act_is_a_thought_a_call_and_a_result(family: str) -> None:
    episode = finished(family)
    events = episode.events
    assert [event.i for event in events] == list(range(len(events)))
    assert events[0].kind == "user" and events[0].text == episode.task.text
    results = [event for event in events if event.kind == "tool_result"]
    assert len(results) == episode.num_done == len(episode.mechanisms)
    for event in events:
        if event.kind == "tool_call":
            assert events[event.i - 1].kind == "thought"
            assert events[event.i + 1].kind == "tool_result" and events[event.i + 1].call_id == event.call_id
    turns = [event for event in events if event.kind == "user"]
    assert len(turns) == 2 and turns[1].text == next(iter(episode.task.turns.values()))


def test_the_same_key_gives_the_same_rollout_and_another_seed_another() -> None:
    assert finished().rollout() == finished().rollout()
    assert finished().rollout().rollout_id != finished(agent_seed=4).rollout().rollout_id


def test_rebuilding_gives_the_same_prefix() -> None:
    whole = finished("sql")
    agent = whole.rollout().agent.model_dump()
    for step in (0, 1, 5, whole.num_done):
        again = rebuild({"family": "sql", "seed": 1, "agent": agent, "step": step})
        assert again.num_done == step
        assert again.events == whole.events[: len(again.events)]


def test_a_reminder_is_recorded_as_our_own_and_comes_before_the_act() -> None:
    episode = Episode("files", 1, STRENGTHS["weak"], 3, num_acts=12)
    events = episode.advance("Write everything down. [tm-k-1]")
    assert events[0].own_reminder and events[0].kind == "user"
    assert [event.kind for event in events[1:4]] == ["thought", "tool_call", "tool_result"]


def test_forks_leave_the_original_alone_and_share_their_future() -> None:
    episode = Episode("git", 2, STRENGTHS["medium"], 3, num_acts=12)
    for _ in range(4):
        episode.advance()
    at, events = episode.environment.at.digest, len(episode.events)
    outcomes = [episode.fork(11).run_to_end() for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert (episode.environment.at.digest, len(episode.events), episode.num_done) == (at, events, 4)


def test_truth_names_need_and_what_would_mend_it() -> None:
    seen = 0
    for seed in range(12):
        episode = Episode("files", seed, STRENGTHS["weak"], seed, num_acts=12)
        while not episode.done:
            episode.advance()
            truth = episode.truth()
            assert truth["need_true"] == bool(set(truth["lost"]) & set(truth["depends"]))
            if truth["need_true"]:
                seen += 1
                assert truth["mechanism"] == episode.mechanisms[-1]
                assert set(truth["lost"]) <= {fact["key"] for fact in truth["facts"]}
    assert seen


def test_several_episodes_take_turns_in_one_place() -> None:
    alone = [finished("files", seed).finish() for seed in (1, 2)]
    both = [Episode("files", seed, STRENGTHS["weak"], 3, num_acts=12) for seed in (1, 2)]
    while not all(episode.done for episode in both):
        for episode in takewhile(lambda _: True, both):
            if not episode.done:
                episode.advance()
    assert [episode.finish() for episode in both] == alone


def test_a_ref_of_another_version_is_one_sentence() -> None:
    with pytest.raises(UserError, match="restore_ref lacks"):
        start({"family": "files", "seed": 1, "agent": {"name": "weak", "params": {}}, "step": 1})
