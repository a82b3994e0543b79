"""Runners of eval.ab: the LLM agent over a real local server, and somebody's own tasks named by module:function."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval import ab
from eval.runner import Runner
from pmem.errors import UserError
from tests.eval.test_ab import SPECS, ToyEpisode
from tests.pmem.fake_server import FakeServer, Say, Seen


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def mine(config: ab.AbConfig) -> Runner:
    """Somebody's own tasks: ten lines with the episode."""
    return Runner(specs=SPECS[: config.num_tasks], open_episode=ToyEpisode, knows_truth=True)


def nothing(config: ab.AbConfig) -> Any:
    return "no runner"


def test_own_tasks_run_by_name(tmp_path: Path) -> None:
    run = [f"run={tmp_path}", "runner=tests.eval.test_runner:mine", "num_tasks=4", "arms=[rules,oracle]", "cadence=1"]
    assert ab.main([*run, "bank_writer=policy"]) == 0
    content = json.loads((tmp_path / "ab.json").read_text())
    assert content["arms"]["never"]["num_trials"] == 4 and content["config"]["runner"].endswith(":mine")
    assert content["arms"]["oracle"]["figures"]["pass_rate"]["value"] > content["arms"]["never"]["figures"]["pass_rate"]["value"]
    with pytest.raises(UserError, match="no scripted bank writer"):
        ab.main(run)


@pytest.mark.parametrize(
    ("runner", "sentence"),
    [("mine", "module:function"), ("no.such:thing", "No module"), ("tests.eval.test_runner:nothing", "returned str")],
)
def test_a_wrong_runner_is_one_sentence(tmp_path: Path, runner: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        ab.main([f"run={tmp_path}", f"runner={runner}", "bank_writer=policy", "arms=[rules]"])


def test_a_model_behind_an_endpoint_is_an_agent(server: FakeServer, tmp_path: Path) -> None:
    """It fails twice the same way: the rules tier's advisory reaches it as a reminder, the baseline's run holds none."""

    def answer(seen: Seen) -> Say:
        answers = sum(message["role"] == "assistant" for message in seen.json["messages"])
        return Say("DONE") if answers >= 4 else Say("Try.\n```bash\nrmdir data\n```")

    server.play(answer)
    run = [f"run={tmp_path}", "arms=[rules]", "agents=[llm]", f"llm.url={server.url}", "llm.model=memory", "families=[files]"]
    assert ab.main([*run, "num_tasks=3", "threads=3"]) == 0
    content = json.loads((tmp_path / "ab.json").read_text())
    assert {row["agent"] for row in content["trials"]["rules"]} == {"llm"}
    assert content["arms"]["rules"]["figures"]["reminders_per_task"]["value"] >= 1
    assert content["arms"]["never"]["figures"]["reminders_per_task"]["value"] == 0 == content["arms"]["never"]["num_rows"]
    told = ["Memory: " in json.dumps(request.json["messages"]) for request in server.requests]
    assert any(told) and not told[0]
    count = len(server.requests)
    assert ab.main([*run, "num_tasks=3", "threads=3"]) == 0 and len(server.requests) == count, "kept trials ask nobody"


def test_the_oracle_needs_an_agent_whose_lapses_are_known(server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="take oracle out"):
        ab.main([f"run={tmp_path}", "agents=[llm]", f"llm.url={server.url}", "llm.model=memory", "arms=[oracle]"])
