"""The decaying agent: lapses show before they happen, reminders are read as text, draws are common to branches."""

from dataclasses import replace

import pytest

from data.agent import STRENGTHS, DecayingAgent
from data.envs import make_task
from data.envs.base import Task, ToolResult
from data.reminders import states

SURE = replace(STRENGTHS["weak"], loose=60.0, ceiling=1.0, firm=1.0, decay_acts=0.01, obey=1.0, redundant_cost=0.0, review=0.0)
FIRM = replace(STRENGTHS["strong"], ceiling=0.0)


def lapsed(seed: int = 0) -> tuple[Task, DecayingAgent]:
    """An agent that has just announced an act with a wrong value."""
    task = make_task("files", seed, 16)
    agent = DecayingAgent(task, SURE, 5)
    agent.start()
    while not (agent.plan and agent.plan.act.fact in agent.lost()):
        agent.decide()
        agent.observe(ToolResult("", False))
    return task, agent


def test_a_lapse_shows_in_the_plan_before_the_act() -> None:
    task = make_task("files", 0, 16)
    agent = DecayingAgent(task, SURE, 5)
    agent.start()
    announced = ""
    while not agent.finished:
        move = agent.decide()
        value = move.planned.value
        if move.planned.act.fact and agent.num_done > 1 and not move.planned.act.awaits:
            assert value is not None and value in announced
        announced = move.thought
        agent.observe(ToolResult("", False))
        agent.hear_user(move.planned.act.name)


def test_a_sentence_that_states_the_fact_mends_the_plan_whatever_it_cites() -> None:
    task, agent = lapsed()
    assert agent.plan is not None and agent.plan.act.fact is not None
    fact = task.facts[agent.plan.act.fact]
    right = fact.stages[agent.stage_of(fact)]
    wrong = agent.plan.value
    agent.decide(f"{right.text} [tm-k-99]")
    assert agent.plan.value == right.value != wrong


@pytest.mark.parametrize(
    "text", ["[tm-k-1]", "Remember what the user said. [tm-k-1]", "Mind the {subject}. [tm-k-1]", "{wrong} [tm-k-1]"]
)
def test_ids_vague_words_and_wrong_values_do_not_help_and_cost_an_act(text: str) -> None:
    task, agent = lapsed()
    assert agent.plan is not None and agent.plan.act.fact is not None
    fact, before = task.facts[agent.plan.act.fact], agent.plan
    sentence = f"The {fact.subject} must be {before.value}."
    agent.decide(text.format(subject=fact.subject, wrong=sentence))
    assert agent.plan.act is task.look
    assert agent.lost()[fact.key] == before.value


def test_a_dump_of_everything_is_followed_less_often() -> None:
    followed = {"one": 0, "all": 0}
    for seed in range(40):
        for way in followed:
            task, agent = lapsed(seed)
            agent.params = replace(SURE, obey=0.9)
            assert agent.plan is not None and agent.plan.act.fact is not None
            fact = task.facts[agent.plan.act.fact]
            others = [
                other.stages[0].text.rstrip(".") + ". Keep going. Stay careful."
                for other in task.facts.values()
                if other is not fact
            ]
            text = fact.stages[agent.stage_of(fact)].text
            agent.decide(text if way == "one" else "\n".join([text, *others]))
            followed[way] += fact.key not in agent.lost()
    assert followed["one"] > followed["all"]


def test_an_agent_that_forgets_nothing_needs_nothing() -> None:
    task = make_task("git", 2, 16)
    agent = DecayingAgent(task, FIRM, 1)
    agent.start()
    while not agent.finished:
        name = agent.decide().planned.act.name
        agent.observe(ToolResult("", False))
        agent.hear_user(name)
        assert agent.need() == (False, None)


def test_forks_with_one_seed_have_one_future() -> None:
    _, agent = lapsed()
    thoughts = []
    for fork in (agent.fork(9), agent.fork(9)):
        said = []
        while not fork.finished:
            said.append(fork.decide().thought)
            fork.observe(ToolResult("", False))
        thoughts.append(said)
    assert thoughts[0] == thoughts[1]


POOL = ("commas", "pipes", "--fast", "ledger_a")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("Write the summary with commas. [tm-k-1]", "commas", True),
        ("WRITE THE SUMMARY WITH COMMAS", "commas", True),
        ("Write the summary with pipes, not commas.", "commas", False),
        ("Write the summary with pipes, not commas.", "pipes", True),
        ("The summary has commas or pipes.", "commas", False),
        ("Write the index with commas.", "commas", False),
        ("Write the summary. Use commas.", "commas", False),
        ("summary: --fast failed here; commas work for the summary", "commas", True),
        ("summary from ledger_ab", "ledger_a", False),
        ("", "commas", False),
    ],
)
def test_reading_a_sentence(text: str, value: str, expected: bool) -> None:
    assert states(text, "summary", value, POOL) is expected
