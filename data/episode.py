"""One simulated run: an agent works on a task in a real environment, one act at a time, with reminders when somebody gives them.

    episode = Episode("files", seed=3, agent=STRENGTHS["weak"], agent_seed=7)
    while not episode.done:
        events = episode.advance(reminder=None)
    outcome = episode.finish()

Deterministic in (family, seed, num_acts, agent, agent_seed, reminders): rebuilding a state is replaying to it.
"""

from dataclasses import asdict, fields
from functools import cache
from typing import Any

from data.agent import AgentParams, DecayingAgent, Move
from data.envs import make_task
from data.envs.base import Fact, ToolResult, call_args
from data.envs.bash import BashEnvironment
from data.envs.memo import MemoEnvironment, RealPlace
from data.sandbox import Sandbox
from pmem.errors import UserError
from pmem.rollout import Event, Outcome, Rollout

DEFAULT_NUM_ACTS = 16


class Episode:
    """A run in progress. Several may be open at once; by default they share this process's one sandbox."""

    def __init__(
        self,
        family: str,
        seed: int,
        agent: AgentParams,
        agent_seed: int,
        *,
        num_acts: int = DEFAULT_NUM_ACTS,
        place: RealPlace | None = None,
    ) -> None:
        self.task = make_task(family, seed, num_acts)
        self.num_acts = num_acts
        self.environment: MemoEnvironment = (place or process_place()).open(self.task)
        self.agent = DecayingAgent(self.task, agent, agent_seed)
        self.agent.start()
        self.events: list[Event] = []
        self.mechanisms: list[str | None] = []
        """After each act: the mechanism under which memory is needed, None where it is not."""
        self._append(kind="user", text=self.task.text)

    @property
    def done(self) -> bool:
        """No act is left, or the agent's budget is used up."""
        return self.agent.finished

    @property
    def num_done(self) -> int:
        """Acts done so far."""
        return self.agent.num_done

    def advance(self, reminder: str | None = None) -> list[Event]:
        """Deliver a reminder if given, do one act, let the user speak if it is time; returns what happened."""
        first_new = len(self.events)
        if reminder is not None:
            self._append(kind="user", text=reminder, own_reminder=True)
        before = self.environment.at.digest
        move, result, turn = self.act(reminder)
        call_id = f"c{self.agent.num_done}"
        args = call_args(move.planned.act.tool, move.command)
        self._append(kind="thought", text=move.thought)
        self._append(kind="tool_call", call_id=call_id, tool=move.planned.act.tool, args=args)
        self._append(
            kind="tool_result",
            call_id=call_id,
            tool=move.planned.act.tool,
            text=result.text,
            is_error=result.is_error,
            changes_workspace=self.environment.at.digest != before,
            is_probe=False,
        )
        if turn is not None:
            self._append(kind="turn_end")
            self._append(kind="user", text=turn)
        self.mechanisms.append(self.agent.need()[1])
        return self.events[first_new:]

    def act(self, reminder: str | None = None) -> tuple[Move, ToolResult, str | None]:
        """`advance` without the record: the move, its real result, and the user turn that follows."""
        move = self.agent.decide(reminder)
        act = move.planned.act
        result = self.environment.step(act.tool, call_args(act.tool, move.command), act.reads)
        self.agent.observe(result)
        return move, result, self.agent.hear_user(act.name)

    def fork(self, seed: int) -> "Episode":
        """A branch from here whose future is drawn with `seed`. It records no events of the past."""
        twin = object.__new__(Episode)
        twin.task, twin.num_acts, twin.events, twin.mechanisms = self.task, self.num_acts, [], []
        twin.environment, twin.agent = self.environment.fork(), self.agent.fork(seed)
        return twin

    def run_to_end(self, reminder: str | None = None) -> Outcome:
        """Go on without a record and without any further memory, then check."""
        while not self.done:
            self.act(reminder)
            reminder = None
        return self.finish()

    def finish(self) -> Outcome:
        """The real check of what stands in the folder now."""
        return self.environment.check().outcome()

    def close(self) -> None:
        """Nothing to give back: the sandbox belongs to the process."""

    def truth(self) -> dict[str, Any]:
        """The structural truth at this point: what is lost, what the next acts depend on, whether that is need."""
        need, mechanism = self.agent.need()
        return {
            "act": self.agent.num_done,
            "lost": self.agent.lost(),
            "depends": list(self.agent.depends()),
            "need_true": need,
            "mechanism": mechanism,
            "facts": [self._fact(fact) for fact in self.task.facts.values() if self.agent.stage_of(fact) >= 0],
        }

    def rollout(self) -> Rollout:
        """The record so far as a `pmem.rollout/1`; `agent.params` holds what rebuilding needs."""
        params = {
            **asdict(self.agent.params),
            "agent_seed": self.agent.seed,
            "num_acts": self.num_acts,
            "mechanisms": self.mechanisms,
        }
        name = params.pop("name")
        return Rollout.model_validate(
            {
                "task_id": self.task.task_id,
                "family": self.task.family,
                "split_key": self.task.task_id,
                "seed": self.task.seed,
                "agent": {"name": name, "params": params},
                "source": {"name": "simulate", "licence": "Apache-2.0"},
                "outcome": self.finish().model_dump(),
                "events": [event.model_dump() for event in self.events],
            }
        ).with_id()

    def _fact(self, fact: Fact) -> dict[str, Any]:
        stage = fact.stages[self.agent.stage_of(fact)]
        return {
            "key": fact.key,
            "mechanism": fact.mechanism,
            "subject": fact.subject,
            "value": stage.value,
            "text": stage.text,
            "pool": list(fact.kind.words),
        }

    def _append(self, **values: Any) -> None:
        self.events.append(Event(i=len(self.events), **values))


def start(ref: dict[str, Any], *, place: RealPlace | None = None) -> Episode:
    """The episode behind a snapshot's `restore_ref` ({family, seed, agent{name, params}, step}), at its start."""
    try:
        params = dict(ref["agent"]["params"])
        agent_seed, num_acts = params.pop("agent_seed"), params.pop("num_acts")
        known = {field.name for field in fields(AgentParams)}
        agent = AgentParams(name=ref["agent"]["name"], **{key: value for key, value in params.items() if key in known})
        return Episode(ref["family"], ref["seed"], agent, agent_seed, num_acts=num_acts, place=place)
    except (KeyError, TypeError) as error:
        raise UserError(f"restore_ref lacks {error}; run data.simulate and data.replay again with this version") from None


def rebuild(ref: dict[str, Any], *, place: RealPlace | None = None) -> Episode:
    """The episode behind a `restore_ref`, replayed to its step."""
    episode = start(ref, place=place)
    while episode.num_done < ref["step"] and not episode.done:
        episode.advance()
    return episode


@cache
def process_place() -> RealPlace:
    """The one real environment of this process. Its folder goes when the process ends, even when it is killed."""
    return RealPlace(BashEnvironment(Sandbox()))
