"""mini-swe-agent with its own deterministic models and its own local environment."""

import os
from typing import Any, ClassVar

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import FormatError, UserInterruption
from minisweagent.models.test_models import (
    DeterministicModel,
    DeterministicToolcallModel,
    make_output,
    make_toolcall_output,
)

from pmem.integrations.mini_swe_agent import MemoryAgent
from tests.integrations.rig import Act, Played, Rig, Turn, run, turn

SUBMIT = run("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done")


class Asking(LocalEnvironment):
    """Stops once for the person at a command that starts with `ask`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asked = False

    def execute(self, action: dict[str, Any], cwd: str = "", **kwargs: Any) -> dict[str, Any]:
        command = action["command"]
        if command.startswith("ask "):
            if not self.asked:
                self.asked = True
                raise UserInterruption(
                    {"role": "user", "content": "Wait, use EUR.", "extra": {"interrupt_type": "UserInterruption"}}
                )
            action = {**action, "command": command.removeprefix("ask ")}
        return super().execute(action, cwd, **kwargs)


class MiniRig(Rig):
    """Actions in text; every observation is a user message."""

    name = "mini-swe-agent"
    transient = MemoryAgent.transient
    sees_errors = MemoryAgent.sees_errors
    sees_compaction = MemoryAgent.sees_compaction
    model_class: ClassVar[type[Any]] = DeterministicModel

    def __init__(self, *answers: Any, **options: Any) -> None:
        super().__init__(*answers, **options)
        self.agents: dict[str, MemoryAgent] = {}
        self.num_turns = 0

    def play(self, *turns: Turn, thread: str = "one") -> Played:
        return self._play(turns, thread=thread)

    def play_with_failing_call(self, *turns: Turn) -> Played:
        return self._play(turns, failing=1)

    def play_interrupted(self) -> Played:
        return self._play([turn(run("echo one", "ask echo two"), run("ask echo two"), prompt="Go on.")])

    def play_subagent(self) -> Played:
        main = self._play([turn(run("echo main"), prompt="the main task")], thread="main")
        self._play([turn(run("echo sub"), prompt="the sub task")], thread="sub")
        return main

    def num_faults(self) -> int:
        return sum(agent.guard.num_faults + agent.memory.num_faults for agent in self.agents.values())

    def _play(self, turns: Any, *, thread: str = "one", failing: int | None = None) -> Played:
        played = Played()
        for one in turns:
            agent = self._agent(thread)
            self.num_turns += 1
            outputs = [self._output(act, f"{self.num_turns}.{number}") for number, act in enumerate([*one.acts, SUBMIT])]
            if failing is not None:
                outputs.insert(failing, self._unreadable("no command found"))
            agent.model = Recording(self.model_class(outputs=outputs), played, self.settle)
            played.answer = agent.run(one.prompt)["submission"].strip()
            self.settle()
            played.history = "\n".join(str(message["content"]) for message in agent.messages)
        return played

    def _agent(self, thread: str) -> MemoryAgent:
        if thread not in self.agents:
            self.agents[thread] = MemoryAgent(
                self.model_class(outputs=[]), Asking(), memory=self.open_session(), system_template="You run commands.",
                instance_template="{{task}}", cost_limit=0, max_consecutive_format_errors=0,
            )  # fmt: skip
        return self.agents[thread]

    def _output(self, act: Act, prefix: str) -> dict[str, Any]:
        if act.kind == "bad_args":
            return self._unreadable("Missing 'command' argument in bash tool call.")
        if act.kind == "unknown_tool":
            return self._unreadable("Unknown tool 'nope'.")
        return make_output(act.thought, [{"command": command} for command in act.commands])

    def _unreadable(self, words: str) -> dict[str, Any]:
        told = {"role": "user", "content": words, "extra": {"interrupt_type": "FormatError", "model_response": "x"}}
        return make_output("", [{"raise": FormatError(told)}])


class MiniToolcallRig(MiniRig):
    """Actions as native tool calls with ids."""

    name = "mini-swe-agent-toolcall"
    model_class = DeterministicToolcallModel

    def _output(self, act: Act, prefix: str) -> dict[str, Any]:
        if act.kind != "run":
            return super()._output(act, prefix)
        actions = [{"command": command, "tool_call_id": f"{prefix}.{n}"} for n, command in enumerate(act.commands)]
        calls = [
            {"id": action["tool_call_id"], "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            for action in actions
        ]
        return make_toolcall_output(act.thought, calls, actions)


class Recording:
    """The scripted model, and a note of what it was asked. Memory steps end before it answers."""

    def __init__(self, model: Any, played: Played, settle: Any) -> None:
        self._model = model
        self._played = played
        self._settle = settle

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        self._played.requests.append("\n".join(str(message["content"]) for message in messages))
        self._settle()
        return self._model.query(messages, **kwargs)

    def serialize(self) -> dict[str, Any]:
        """The scripted answers hold exceptions, which the model itself cannot serialise."""
        return {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
