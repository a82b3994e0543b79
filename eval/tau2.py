"""τ²-bench tasks as live trials: its own agents, users, tools and reward, with memory beside the agent.

    python -m eval.ab runner=eval.tau2:runner arms=[never,rules] bank_writer=policy num_tasks=20 \\
        'runner_options={domain: retail, agent_llm: openai/qwen, agent_args: {api_base: "http://127.0.0.1:8000/v1"}, user_llm: …}'

Each trial is tau2's own orchestrator on a thread of its own, which stops before every answer of the agent until the lockstep lets
it go on; a reminder stands at the end of the message that the agent is then given (tau2's record and reward do not see it).
Events come from what passes the agent, read as `data.importers.tau2` reads recorded runs. `agent: llm_agent_solo` needs no user.
Needs tau2-bench from source (github.com/sierra-research/tau2-bench; the PyPI package named tau2 is something else).
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from data.importers.events import EventLog
from data.importers.tau2 import add_message
from eval.live import TrialSpec
from eval.runner import Runner
from pmem.config import validate
from pmem.delivery import as_block
from pmem.errors import UserError
from pmem.rollout import Event, Outcome

if TYPE_CHECKING:
    from eval.ab import AbConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Tau2Options:
    """`runner_options` of this runner; names as tau2's own command line has them."""

    domain: str = "retail"
    """airline, retail, telecom or mock."""
    task_set: str | None = None
    """Task set of the registry; null: the domain's own."""
    agent: str = "llm_agent"
    """llm_agent, or llm_agent_solo for tasks with a ticket, which need no user."""
    agent_llm: str = ""
    """Model of the agent as litellm names it."""
    agent_args: dict[str, Any] = field(default_factory=dict)
    """Its arguments: api_base, temperature, …"""
    user: str = "user_simulator"
    """user_simulator, or dummy_user beside llm_agent_solo."""
    user_llm: str = ""
    """Model of the simulated user."""
    user_args: dict[str, Any] = field(default_factory=dict)
    """Its arguments."""
    max_steps: int = 100
    """Longest simulation, in tau2's steps."""


def runner(config: "AbConfig") -> Runner:
    """For `eval.ab runner=eval.tau2:runner`. Raises UserError when tau2 is not there or a model is not named."""
    options = validate(Tau2Options, config.runner_options, where="runner_options")
    tasks = load_tasks(options)[: config.num_tasks]
    specs = [TrialSpec(f"tau2-{options.domain}", index, options.agent_llm, config.seed + index) for index in range(len(tasks))]
    return Runner(
        specs=specs, open_episode=lambda spec: Tau2Episode(options, tasks[spec.seed], spec.agent_seed), threads=config.threads
    )


def load_tasks(options: Tau2Options) -> list[Any]:
    """The tasks of the set in tau2's order; for a solo agent those with a ticket."""
    registry = _tau2().registry
    if not options.agent_llm or (options.agent != "llm_agent_solo" and not options.user_llm):
        raise UserError("tau2: agent_llm and user_llm must name models (as litellm does); a solo agent needs no user_llm")
    try:
        tasks = list(registry.get_tasks_loader(options.task_set or options.domain)())
    except KeyError:
        raise UserError(f"tau2 has no task set {options.task_set or options.domain!r}; see `tau2 --help`") from None
    return [task for task in tasks if task.ticket] if options.agent == "llm_agent_solo" else tasks


class Tau2Episode:
    """One simulation. The members of `eval.live.LiveEpisode`."""

    def __init__(self, options: Tau2Options, task: Any, seed: int) -> None:
        build = _tau2()
        config = build.TextRunConfig(
            domain=options.domain, agent=options.agent, llm_agent=options.agent_llm, llm_args_agent=dict(options.agent_args),
            user="dummy_user" if options.agent == "llm_agent_solo" else options.user, llm_user=options.user_llm or options.agent_llm,
            llm_args_user=dict(options.user_args), max_steps=options.max_steps,
        )  # fmt: skip
        self.options, self.task, self.log = options, task, EventLog()
        self.orchestrator = build.build_text_orchestrator(config, task, seed=seed)
        self._gate = _Gate(self.orchestrator.agent, self.log)
        self._simulation: Any = None
        self._fault: BaseException | None = None
        if task.ticket and options.agent == "llm_agent_solo":
            self.log.user(task.ticket)
        self._thread = threading.Thread(target=self._run, name=f"tau2-{task.id}", daemon=True)
        self._thread.start()
        self._wait()

    @property
    def events(self) -> Sequence[Event]:
        return self.log.events

    @property
    def done(self) -> bool:
        return not self._thread.is_alive() and not self._gate.waiting.is_set()

    def advance(self, reminder: str | None = None) -> Sequence[Event]:
        """One answer of the agent, and what the tools or the user say to it."""
        before = len(self.log.events)
        if reminder:
            self.log.user(reminder, own_reminder=True)
        self._gate.let_go(reminder)
        self._wait()
        return self.log.events[before:]

    def finish(self) -> Outcome:
        """tau2's own reward."""
        if self._simulation is None:
            return Outcome(success=False, score=0.0, kind="reward")
        solo = self.options.agent == "llm_agent_solo"
        evaluation = _tau2()
        info = evaluation.evaluate_simulation(
            simulation=self._simulation, task=self.task, evaluation_type=evaluation.EvaluationType.ALL, solo_mode=solo,
            domain=self.options.domain,
        )  # fmt: skip
        return Outcome(success=info.reward >= 1.0 - 1e-6, score=float(info.reward), kind="reward")

    def truth(self) -> dict[str, Any]:
        """What a real model has forgotten nobody knows."""
        return {"need_true": False, "lost": {}, "depends": [], "facts": []}

    def close(self) -> None:
        """End the simulation wherever it stands."""
        self._gate.close()
        self._thread.join(timeout=30.0)

    def _run(self) -> None:
        try:
            self._simulation = self.orchestrator.run()
        except _Closed:
            pass
        except Exception as error:
            self._fault = error
        finally:
            self._gate.ended.set()
            self._gate.news.set()

    def _wait(self) -> None:
        """Until the agent is about to answer again, or the simulation has ended."""
        self._gate.news.wait()
        self._gate.news.clear()
        if self._gate.ended.is_set():
            self._thread.join()
            if self._fault is not None:
                raise UserError(f"tau2 task {self.task.id}: {type(self._fault).__name__}: {self._fault}") from self._fault


class _Closed(Exception):
    """The trial was closed while the simulation ran."""


class _Gate:
    """Stands before the agent: notes what it is given and what it answers, and holds it until it may go on."""

    def __init__(self, agent: Any, log: EventLog) -> None:
        self.news, self.ended, self.waiting = threading.Event(), threading.Event(), threading.Event()
        self._go, self._closed = threading.Event(), False
        self._reminder: str | None = None
        self._answer, self._log = agent.generate_next_message, log
        agent.generate_next_message = self._pass

    def let_go(self, reminder: str | None) -> None:
        """The agent may take its next answer, with this reminder."""
        self._reminder = reminder
        self._go.set()

    def close(self) -> None:
        """Whoever waits here, now or later, gives up."""
        self._closed = True
        self._go.set()

    def _pass(self, message: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if message is not None:
            add_message(self._log, message.model_dump())
        self.waiting.set()
        self.news.set()
        self._go.wait()
        self._go.clear()
        self.waiting.clear()
        if self._closed:
            raise _Closed
        answer, state = self._answer(with_reminder(message, self._reminder), state, *args, **kwargs)
        add_message(self._log, answer.model_dump())
        return answer, state


def with_reminder(message: Any, reminder: str | None) -> Any:
    """A copy of what the agent is given, the reminder at its end (of the last result, when there are several)."""
    if reminder is None or message is None:
        return message
    results = getattr(message, "tool_messages", None)
    if results:
        last = with_reminder(results[-1], reminder)
        return message.model_copy(update={"tool_messages": [*results[:-1], last]})
    return message.model_copy(update={"content": f"{message.content or ''}\n\n{as_block(reminder)}"})


class _Tau2:
    """The names of tau2 that are used here."""

    def __init__(self) -> None:
        from tau2.data_model.simulation import TextRunConfig
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
        from tau2.registry import registry
        from tau2.runner.build import build_text_orchestrator

        self.TextRunConfig, self.registry, self.EvaluationType = TextRunConfig, registry, EvaluationType
        self.evaluate_simulation, self.build_text_orchestrator = evaluate_simulation, build_text_orchestrator


def _tau2() -> _Tau2:
    try:
        return _Tau2()
    except ImportError as error:
        raise UserError(
            f"tau2-bench is not installed ({error}); install it from its repository, not the PyPI package tau2"
        ) from None
