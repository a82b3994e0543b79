"""A simulated task worked on by a real model: the same environments, checks and events as data.episode, another agent.

    config = LlmConfig(url="http://127.0.0.1:8000/v1", model="qwen")
    episode = LlmEpisode("files", seed=3, config=config, backend=config.open(), agent_seed=7)
    while not episode.done:
        events = episode.advance(reminder=None)

Every episode has a sandbox of its own: what a model runs is not a script's, so nothing is shared or remembered. Such a rollout
cannot be rebuilt; its labels are hindsight, teacher or human.
"""

import dataclasses
from typing import Any

from data.envs import make_task
from data.envs.base import SLOT, Act, Task, ToolResult
from data.envs.bash import BashEnvironment
from data.episode import DEFAULT_NUM_ACTS
from data.llm_agent import JSON_TOOLS, NO_CALL, LlmAgent, LlmConfig, Move
from data.sandbox import Sandbox
from pmem.backend import Backend
from pmem.delivery import as_block
from pmem.rollout import Event, Outcome, Rollout

PRIVATE = frozenset({"url", "api_key_file"})
"""Settings that stay out of rollouts."""


class LlmEpisode:
    """A run in progress. The list of works stands behind the task's text; the values in it are the model's to remember."""

    def __init__(
        self, family: str, seed: int, config: LlmConfig, backend: Backend, agent_seed: int, *, num_acts: int = DEFAULT_NUM_ACTS
    ) -> None:
        self.task = make_task(family, seed, num_acts)
        self.num_acts = num_acts
        self.config = config
        self.environment = BashEnvironment(Sandbox())
        self.environment.reset(self.task)
        self.events: list[Event] = []
        self.agent_seed = agent_seed
        text = f"{self.task.text}\n\n{work_list(self.task)}"
        self.agent = LlmAgent(config, backend, task=text, tools=other_tools(self.task), seed=agent_seed)
        self._turns = [
            (place, self.task.turns[act.name]) for place, act in enumerate(self.task.acts, 1) if act.name in self.task.turns
        ]
        self._num_results = 0
        self._append(kind="user", text=text)

    @property
    def done(self) -> bool:
        """The model has finished, or may not go on."""
        return self.agent.finished

    def advance(self, reminder: str | None = None) -> list[Event]:
        """Deliver a reminder if given, take one answer of the model and run its call; returns what happened."""
        first_new = len(self.events)
        if self.agent.compact():
            self._append(kind="compaction")
        if reminder is not None:
            self._append(kind="user", text=reminder, own_reminder=True)
            self.agent.hear(as_block(reminder))
        move = self.agent.decide()
        if move is None:
            self._append(kind="assistant", text="DONE")
            self._append(kind="turn_end")
            self._say_what_is_left()
        else:
            self._act(move)
        return self.events[first_new:]

    def finish(self) -> Outcome:
        """The real check of what stands in the folder now."""
        return self.environment.check().outcome()

    def close(self) -> None:
        """End the sandbox."""
        self.environment.close()

    def truth(self) -> dict[str, Any]:
        """Nobody knows what a model has forgotten: no lost facts are claimed."""
        return {"act": self.agent.num_acts, "lost": {}, "depends": [], "need_true": False, "mechanism": None, "facts": []}

    def rollout(self) -> Rollout:
        """The record as a `pmem.rollout/1`."""
        params = {key: value for key, value in dataclasses.asdict(self.config).items() if key not in PRIVATE}
        params |= {"num_acts": self.num_acts, "compactions": self.agent.num_compactions}
        params |= {"tokens_in": self.agent.tokens_in, "tokens_out": self.agent.tokens_out}
        return Rollout.model_validate(
            {
                "task_id": self.task.task_id,
                "family": self.task.family,
                "split_key": self.task.task_id,
                "seed": self.task.seed,
                "agent": {"name": self.config.name(), "params": params},
                "source": {"name": "simulate", "licence": "Apache-2.0"},
                "outcome": self.finish().model_dump(),
                "events": [event.model_dump() for event in self.events],
            }
        ).with_id()

    def _act(self, move: Move) -> None:
        call_id = f"c{self.agent.num_acts}"
        tool, args = move.tool or "answer", dict(move.args)
        before = self.environment.snapshot().digest
        result = self.environment.step(tool, args) if move.tool else ToolResult(NO_CALL, True)
        changed = self.environment.snapshot().digest != before
        self._append(kind="thought", text=move.thought)
        self._append(kind="tool_call", call_id=call_id, tool=tool, args=args)
        self._append(
            kind="tool_result", call_id=call_id, tool=tool, text=result.text, is_error=result.is_error,
            changes_workspace=changed, is_probe=False,
        )  # fmt: skip
        self.agent.observe(result.text, is_error=result.is_error)
        self._num_results += 1
        if self._turns and self._num_results >= self._turns[0][0]:
            self._append(kind="turn_end")
            self._speak()

    def _say_what_is_left(self) -> None:
        """A model that stops before the user has said everything is told the rest, and goes on."""
        if self._turns:
            self.agent.has_finished = False
            self._speak()

    def _speak(self) -> None:
        _, text = self._turns.pop(0)
        self._append(kind="user", text=text)
        self.agent.hear(text)

    def _append(self, **values: Any) -> None:
        self.events.append(Event(i=len(self.events), **values))


def work_list(task: Task) -> str:
    """The acts of the task in order, each as its call with `<V>` where a value belongs, and what may stand there."""
    lines = [f"{number}. {_work(act)}" for number, act in enumerate(task.acts, 1)]
    return "\n".join([f"Do these works in this order. Put the right value in place of {SLOT}.", *lines])


def _work(act: Act) -> str:
    call = act.command if act.tool == "bash" else f'{{"tool": "{act.tool}", "args": {act.command}}}'
    if act.kind is None:
        return f"{act.goal}: {call}"
    options = ", ".join(word if word == act.kind.code(word) else f"{act.kind.code(word)} ({word})" for word in act.kind.words)
    return f"{act.subject}: {call}   {SLOT} = {act.kind.noun}, one of: {options}"


def other_tools(task: Task) -> str:
    """What the system prompt says of tools beside bash."""
    return JSON_TOOLS.format(names=", ".join(sorted(task.tools))) if task.tools else ""
