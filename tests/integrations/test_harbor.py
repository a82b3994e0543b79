"""Harbor's real Terminus 2 with memory, in a real tmux on this machine, its model played by a real local server.

Needs harbor (Python 3.12) and tmux; skipped elsewhere. What needs Docker (a whole `harbor run`) is not tried here.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor", reason="needs harbor, which needs Python 3.12")
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from pmem.envelope import Operation
from pmem.integrations.harbor import MemoryTerminus2
from pmem.session import MemorySession
from pmem.settings import Settings
from tests.pmem.fake_server import FakeServer, Say
from tests.pmem.policies import PlayedPolicy, says

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")]
WORD = (Operation("save_knowledge", "The word is hello."),)
TASK = "Write the word hello into out.txt. Tests may not be edited."


class HereEnvironment(BaseEnvironment):
    """Harbor's environment on this very machine, in a folder: commands and tmux are real, nothing is contained."""

    @staticmethod
    def type() -> str:
        return "here"

    def _validate_definition(self) -> None:
        """Nothing to build."""

    async def start(self, force_build: bool) -> None:
        """Nothing to start."""

    async def stop(self, delete: bool) -> None:
        """Nothing to stop."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: Any = None,
    ) -> ExecResult:
        ran = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", command], cwd=cwd or self.environment_dir, env={**os.environ, **(env or {})},
            capture_output=True, text=True, timeout=timeout_sec or 60,
        )  # fmt: skip
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr, return_code=ran.returncode)

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        shutil.copy(source_path, target_path)

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        shutil.copytree(source_dir, target_dir, dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Any) -> None:
        shutil.copy(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        shutil.copytree(source_dir, target_dir, dirs_exist_ok=True)


def commands(*lines: str, done: bool = False, plan: str = "Then check it.") -> Say:
    """An answer in Terminus 2's own JSON."""
    keys = [{"keystrokes": f"{line}\n", "duration": 0.3} for line in lines]
    return Say(json.dumps({"analysis": "I see a prompt.", "plan": plan, "commands": keys, "task_complete": done}))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("TMUX", raising=False)
    yield tmp_path
    subprocess.run(["tmux", "kill-server"], env={**os.environ, "TMUX_TMPDIR": str(tmp_path)}, capture_output=True)


Opens = Callable[..., MemorySession]


def opener(policy: Any, cadence: int = 1) -> Opens:
    def open_memory(*, on_delivered: Any, also: Any) -> MemorySession:
        settings = Settings(cadence_tool_calls=cadence, telemetry=False)
        return MemorySession(settings, policy=policy, telemetry=also, on_delivered=on_delivered)

    return open_memory


def play(folder: Path, server: FakeServer, open_memory: Opens, **options: Any) -> tuple[MemoryTerminus2, AgentContext]:
    (folder / "env").mkdir()
    trial = TrialPaths(folder / "trial")
    trial.agent_dir.mkdir(parents=True)
    environment = HereEnvironment(
        environment_dir=folder / "env", environment_name="t", session_id="t__1__env", trial_paths=trial,
        task_env_config=EnvironmentConfig(),
    )  # fmt: skip
    agent = MemoryTerminus2(
        logs_dir=trial.agent_dir, model_name="openai/memory", api_base=server.url, record_terminal_session=False,
        model_info={"max_input_tokens": 30_000, "max_output_tokens": 2_000}, open_memory=open_memory, max_turns=12,
        environment_logs_dir=trial.agent_dir, **options,
    )  # fmt: skip
    context = AgentContext()

    async def whole() -> None:
        await agent.setup(environment)
        await agent.run(TASK, environment, context)

    asyncio.run(whole())
    return agent, context


def prompts(server: FakeServer) -> list[str]:
    return [request.json["messages"][-1]["content"] for request in server.requests]


def test_a_reminder_rides_in_one_prompt_and_is_booked_apart(folder: Path) -> None:
    with FakeServer() as server:
        slow = [Say(one.text, wait_s=0.5) for one in (commands("echo one"), commands("echo two"), commands("echo three"))]
        server.play(*slow, commands(f"cd {folder} && echo hello > out.txt"), commands(done=True), commands(done=True))
        agent, context = play(folder, server, opener(PlayedPolicy(says("The word is hello. [tm-k-1]", operations=WORD))))
    assert (folder / "out.txt").read_text() == "hello\n"
    told = [index for index, prompt in enumerate(prompts(server)) if "The word is hello." in prompt]
    assert told, prompts(server)
    for index in told:
        later = [message["content"] for request in server.requests[index + 1 :] for message in request.json["messages"][:-1]]
        assert not any("The word is hello." in text for text in later), "it leaves no trace in the chat"
    assert agent.guard.num_faults == 0 and agent.memory.num_faults == 0
    assert context.model_usage and "openai/memory" in context.model_usage
    assert context.model_usage["openai/memory"].n_input_tokens == context.n_input_tokens
    memory = {name: used for name, used in context.model_usage.items() if name.startswith("pmem/")}
    assert memory and all(used.n_input_tokens > 0 for used in memory.values()), context.model_usage
    assert context.metadata and context.metadata["pmem"]["delivered"][0]["entries"] == ["tm-k-1"]


def test_rules_alone_cost_nothing_and_the_steps_are_seen(folder: Path) -> None:
    with FakeServer() as server:
        server.play(commands("echo one", plan="Next: write out.txt."), Say("not JSON"), commands(done=True), commands(done=True))
        agent, context = play(folder, server, opener(None))
    steps = agent.memory.window()
    assert (steps[0].thought and "Next: write out.txt." in steps[0].thought) or "Next: write out.txt." in str(steps)
    assert [step.outcome for step in steps][:2] == ["ok", "error"]
    assert not any(name.startswith("pmem/") for name in context.model_usage or {})
    assert agent.guard.num_faults == 0
