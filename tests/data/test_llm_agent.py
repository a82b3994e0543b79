"""The LLM agent against a real local server that plays a script: moves, results, compaction, user turns, and bad endpoints."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data import simulate
from data.bank_writer import WriterConfig, writer_for
from data.envs import make_task
from data.llm_agent import NO_CALL, LlmAgent, LlmConfig, read_move
from data.llm_episode import LlmEpisode, work_list
from data.replay import replay_rollout, restore_ref
from pmem.delivery import as_block
from pmem.errors import UserError
from pmem.rollout import read_rollouts
from tests.pmem.fake_server import FakeServer, Say, Seen, Status


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def config(server: FakeServer, **changes: Any) -> LlmConfig:
    return LlmConfig(**{"url": server.url, "model": "memory", "max_acts": 60, **changes})


def bash(command: str, thought: str = "Now this. Next that.") -> Say:
    return Say(f"{thought}\n```bash\n{command}\n```")


def solver(seed: int, family: str = "files", num_acts: int = 12) -> Any:
    """A server script that carries the task out by its list of works, with the right values; DONE at its end."""
    task = make_task(family, seed, num_acts)

    def answer(seen: Seen) -> Say:
        results = sum(
            message["content"].count("Result:\n") + message["content"].count("Failed:\n") for message in seen.json["messages"]
        )
        if results >= len(task.acts):
            return Say("DONE")
        act = task.acts[results]
        command = act.command
        if act.kind is not None:
            value = task.facts[act.fact].stages[-1].value if act.fact else act.kind.words[0]
            if act.fact and len(task.facts[act.fact].stages) > 1 and act.name.rpartition("use")[2].isdigit():
                place = int(act.name.rpartition("use")[2])
                value = task.facts[act.fact].stages[min(place, len(task.facts[act.fact].stages) - 1)].value
            command = command.replace("<V>", act.kind.code(value))
        return bash(command)

    return answer


@pytest.mark.parametrize(
    ("answer", "tool", "args"),
    [
        ("Look.\n```bash\nls -l\n```", "bash", {"cmd": "ls -l"}),
        ("```\nls\n```", "bash", {"cmd": "ls"}),
        ('Book it.\n```json\n{"tool": "record", "args": {"case": "x"}}\n```', "record", {"case": "x"}),
        ("```json\nnot json\n```", None, {}),
        ("I do not know.", None, {}),
    ],
)
def test_an_answer_is_one_call(answer: str, tool: str | None, args: dict[str, Any]) -> None:
    move = read_move(answer)
    assert move is not None and move.tool == tool and move.args == args


def test_done_alone_ends_the_run_and_a_word_among_others_does_not() -> None:
    assert read_move("DONE") is None and read_move("All is well.\n**DONE**") is None
    assert read_move("What is DONE is done.") is not None


def test_a_solved_task_passes_the_real_check(server: FakeServer) -> None:
    server.play(solver(3))
    chosen = config(server)
    episode = LlmEpisode("files", 3, chosen, chosen.open(), 7, num_acts=12)
    try:
        while not episode.done:
            episode.advance()
        rollout = episode.rollout()
    finally:
        episode.close()
    assert rollout.outcome.success, rollout.outcome
    kinds = [event.kind for event in rollout.events]
    assert kinds.count("user") == 2 and kinds[-1] == "turn_end" and rollout.agent.name == "llm:memory"
    assert "url" not in rollout.agent.params and restore_ref(rollout, 3) is None
    rows = list(replay_rollout(rollout, writer_for(WriterConfig(), rollout).operations, split="train"))
    assert len(rows) == kinds.count("tool_result") and any(row["bank_before"]["entries"] for row in rows)


def test_the_model_sees_task_works_results_turns_and_reminders(server: FakeServer) -> None:
    server.play(bash("echo hello"), bash("cat nothing"), Say("no block"), Say("DONE"), Say("DONE"))
    chosen = config(server)
    episode = LlmEpisode("files", 3, chosen, chosen.open(), 7, num_acts=12)
    try:
        episode.advance()
        episode.advance("Mind the separator. [tm-k-1]")
        while not episode.done:
            episode.advance()
    finally:
        episode.close()
    said = [[message["content"] for message in request.json["messages"]] for request in server.requests]
    assert work_list(episode.task) in said[0][1] and "<V> = " in said[0][1]
    assert "Result:\nhello" in said[1][-1] and said[1][-1].endswith(as_block("Mind the separator. [tm-k-1]"))
    assert said[2][-1].startswith("Failed:\ncat: nothing") and NO_CALL in said[3][-1]
    roles = [message["role"] for message in server.requests[3].json["messages"]]
    assert roles == ["system", *(["user", "assistant"] * len(roles))][: len(roles)], "roles take turns"
    reminders = [event for event in episode.events if event.own_reminder]
    assert [event.text for event in reminders] == ["Mind the separator. [tm-k-1]"]


def test_who_stops_too_early_is_told_the_rest(server: FakeServer) -> None:
    server.play(Say("DONE"))
    chosen = config(server)
    episode = LlmEpisode("files", 3, chosen, chosen.open(), 7, num_acts=12)
    try:
        episode.advance()
        assert not episode.done and episode.events[-1].text == next(iter(episode.task.turns.values()))
        episode.advance()
        assert episode.done
    finally:
        episode.close()
    assert server.requests[1].json["messages"][-1]["content"] == next(iter(episode.task.turns.values()))


def test_a_full_context_is_compacted_by_the_model_itself(server: FakeServer) -> None:
    def answer(seen: Seen) -> Say:
        text = json.dumps(seen.json["messages"])
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 10}
        if "context is nearly full" in text:
            return Say("- the separator is pipes", usage=usage)
        return Say("Go on.\n```bash\nseq 300\n```", usage=usage)

    server.play(answer)
    agent = LlmAgent(config(server, context_tokens=2_000, max_tokens=100, keep_messages=2), config(server).open(), task="Count.")
    compacted = []
    for _ in range(8):
        compacted.append(agent.compact())
        agent.decide()
        agent.observe("x" * 1_500, is_error=False)
    assert agent.num_compactions == sum(compacted) >= 1
    last = server.requests[-1].json["messages"]
    assert "- the separator is pipes" in last[1]["content"] and last[1]["content"].startswith("Count.")
    sizes = [sum(len(message["content"]) for message in request.json["messages"]) for request in server.requests]
    assert max(sizes) <= 2_000 * 4


def test_simulate_writes_rollouts_of_a_model(server: FakeServer, tmp_path: Path) -> None:
    server.play(bash("ls"), Say("DONE"))
    made, processes = simulate.simulate(
        simulate.SimulateConfig(
            out=tmp_path / "r.jsonl", strengths=("llm",), llm=config(server), families=("files",), num_tasks=2, num_heldout=0,
            num_workers=1,
        )
    )  # fmt: skip
    assert len(made) == 2 and processes >= 1 and all(rollout.agent.name == "llm:memory" for rollout in made)
    assert not any(rollout.outcome.success for rollout in made)
    simulate.write_rollouts(tmp_path / "r.jsonl", made)
    assert [rollout.rollout_id for rollout in read_rollouts(tmp_path / "r.jsonl")] == [rollout.rollout_id for rollout in made]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"url": ""}, "needs llm.url="),
        ({"api_key_file": Path("no/such")}, "does not exist"),
        ({"model": "another"}, "llm.model"),
    ],
)
def test_a_wrong_endpoint_is_one_sentence(server: FakeServer, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        config(server, **changes).open()


def test_a_server_that_fails_in_the_middle_is_one_sentence(server: FakeServer) -> None:
    server.play(Status(503))
    agent = LlmAgent(config(server), config(server).open(), task="Count.")
    with pytest.raises(UserError, match="does not answer"):
        agent.decide()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(UserError, match="leaves no room"):
        LlmConfig(context_tokens=100, max_tokens=100)
