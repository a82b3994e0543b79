"""What is mini-swe-agent's own: batches that end early, the person's words, the trajectory that is saved."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("minisweagent") is None:
    pytest.skip("mini-swe-agent is not installed", allow_module_level=True)

from minisweagent.agents.interactive import InteractiveAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.test_models import DeterministicModel, make_output, make_response_api_output

from pmem.integrations.mini_swe_agent import MemoryAgent, WithMemory, stated
from tests.integrations.rig import BLOCK, FAILS, REMIND, run, turn, window
from tests.integrations.rig_mini import MiniRig
from tests.pmem.policies import says

CONFIG: dict[str, Any] = {"system_template": "You run commands.", "instance_template": "{{task}}", "cost_limit": 0}
SUBMIT = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"}


def agent_of(rig: MiniRig, *batches: list[dict[str, Any]], env: Any = None, **config: Any) -> MemoryAgent:
    model = DeterministicModel(outputs=[make_output("", actions) for actions in batches])
    return MemoryAgent(model, env or LocalEnvironment(), memory=rig.open_session(), **{**CONFIG, **config})


def test_a_batch_that_submits_loses_no_observation() -> None:
    rig = MiniRig()
    agent = agent_of(rig, [{"command": "echo one"}, {"command": FAILS}, SUBMIT, {"command": "echo never"}])
    assert agent.run("go")["exit_status"] == "Submitted"
    assert [step["outcome"] for step in window(rig.session)] == ["ok", "error"]


def test_an_environment_that_raises_is_observed_and_left_in_place() -> None:
    class Broken(LocalEnvironment):
        def execute(self, action: dict[str, Any], cwd: str = "", **kwargs: Any) -> dict[str, Any]:
            raise ConnectionError("the container is gone")

    rig = MiniRig()
    env = Broken()
    agent = agent_of(rig, [{"command": "ls"}], env=env)
    with pytest.raises(ConnectionError):
        agent.run("go")
    assert agent.env is env
    (step,) = window(rig.session)
    assert step["outcome"] == "error" and "the container is gone" in step["digest"]


def test_a_timeout_is_an_error() -> None:
    rig = MiniRig()
    agent = agent_of(rig, [{"command": "sleep 5"}], [SUBMIT], env=LocalEnvironment(timeout=1))
    agent.run("go")
    assert window(rig.session)[0]["outcome"] == "error" and "timed out" in window(rig.session)[0]["digest"]


def test_the_saved_trajectory_is_as_without_memory(tmp_path: Path) -> None:
    rig = MiniRig(says(REMIND))
    agent = agent_of(
        rig, [{"command": "echo one"}], [{"command": "echo two"}], [{"command": "echo three"}], [SUBMIT],
        output_path=tmp_path / "t.json",
    )  # fmt: skip
    query = agent.model.query

    def slow(messages: Any, **kwargs: Any) -> Any:
        rig.settle()
        return query(messages, **kwargs)

    agent.model.query = slow
    agent.run("go")
    assert len(rig.delivered) == 1 and REMIND not in (tmp_path / "t.json").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["info"]["exit_status"] == "Submitted"


def test_limits_end_a_run_and_keep_the_reminder() -> None:
    rig = MiniRig(says(REMIND))
    agent = agent_of(rig, [{"command": "echo one"}], [{"command": "echo two"}], step_limit=1)
    assert agent.run("go")["exit_status"] == "LimitsExceeded"
    assert rig.delivered == [] and BLOCK not in str(agent.messages)


def test_the_interactive_agent_and_the_persons_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(WithMemory, InteractiveAgent):
        pass

    rig = MiniRig(cadence=100)
    said = iter(["use EUR", "", ""])
    monkeypatch.setattr("minisweagent.agents.interactive.prompt_session.prompt", lambda *_: next(said))
    model = DeterministicModel(outputs=[make_output("", [{"command": "rm x"}]), make_output("", [{"command": FAILS}]),
                                        make_output("", [SUBMIT])])  # fmt: skip
    agent = Mine(model, LocalEnvironment(), memory=rig.open_session(), mode="confirm", confirm_exit=False, **CONFIG)
    agent.run("the task")
    assert [step["outcome"] for step in window(rig.session)] == ["error"], "a rejected command did not run"
    rig.session.on_manual()
    snapshot = rig.session.prepare()
    assert snapshot is not None and snapshot.task_messages[0] == "the task" and "use EUR" in snapshot.task_messages[1]


def test_what_stands_in_fences_is_the_command_and_no_thought() -> None:
    plain = make_output("I list. Next: build.\n```mswea_bash_command\nls\n```\n", [])
    assert stated(plain).split() == ["I", "list.", "Next:", "build."]
    native = make_response_api_output("I list.", [{"command": "ls", "tool_call_id": "1"}])
    assert stated(native).split() == ["I", "list."]
    assert stated({"role": "assistant", "content": None}) == ""


def test_thoughts_reach_the_window() -> None:
    rig = MiniRig()
    rig.play(turn(run("echo one", thought="First.\n```bash\necho one\n```")))
    assert window(rig.session)[0]["thought"] == "First."
