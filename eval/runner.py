"""Who works on which tasks in live trials: the simulated environments, or anybody's own through a function of ten lines.

    def mine(config: AbConfig) -> Runner:                       # python -m eval.ab runner=my_tasks:mine bank_writer=policy
        specs = [TrialSpec("mine", index, "my-agent", config.seed + index) for index in range(config.num_tasks)]
        return Runner(specs=specs, open_episode=MyEpisode)      # MyEpisode(spec): the members of eval.live.LiveEpisode

docs/evaluation.md has the whole of it; `eval.tau2` is one for τ²-bench.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from data.simulate import LLM
from eval.live import LiveEpisode, TrialSpec, Writer
from pmem.errors import UserError

if TYPE_CHECKING:
    from eval.ab import AbConfig

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """The matched trials, and how one is opened. `writer_for`: the bank writer of `bank_writer: scripted`, where there is one."""

    specs: Sequence[TrialSpec]
    open_episode: Callable[[TrialSpec], LiveEpisode]
    writer_for: Callable[[TrialSpec], Writer] | None = None
    knows_truth: bool = False
    """Whether `truth()` tells what the agent has lost, so that the oracle arm means something."""
    threads: int = 1
    """Episodes that may act side by side: more than one for agents that wait for a server."""


def open_runner(config: "AbConfig") -> Runner:
    """The runner that the config names. Raises UserError when there is none, or when the arms ask more than it can give."""
    runner = simulated(config) if config.runner == SIMULATED else _imported(config)
    if not runner.specs:
        raise UserError(f"zero trials: runner {config.runner} offers no task")
    if config.bank_writer == "scripted" and runner.writer_for is None:
        raise UserError(f"runner {config.runner} has no scripted bank writer; set bank_writer=policy")
    if "oracle" in config.arms and not runner.knows_truth:
        raise UserError("arm oracle needs an agent whose lapses are known, the simulated one; take oracle out of arms")
    return runner


def simulated(config: "AbConfig") -> Runner:
    """Tasks of data.envs, worked on by the decaying agent, by a model behind an endpoint, or by both in turn."""
    open_episode = _open_simulated(config)
    return Runner(
        specs=task_specs(config), open_episode=open_episode, writer_for=partial(scripted_writer, num_acts=config.num_acts),
        knows_truth=LLM not in config.agents, threads=config.threads if set(config.agents) == {LLM} else 1,
    )  # fmt: skip


def task_specs(config: "AbConfig") -> list[TrialSpec]:
    """The matched trials of the simulated environments, the same for every arm."""
    from data.envs import FAMILIES, require_family

    families = config.families or tuple(sorted(FAMILIES))
    for family in families:
        require_family(family)
    specs = []
    for index in range(config.num_tasks):
        family, rest = families[index % len(families)], index // len(families)
        agent = config.agents[rest % len(config.agents)]
        specs.append(TrialSpec(family, config.first_seed + rest, agent, config.seed + index))
    return specs


def scripted_writer(spec: TrialSpec, num_acts: int) -> Writer:
    """The bank writer of replay, with the same stated miss and error rates."""
    from data.bank_writer import WriterConfig, task_writer

    key = f"ab:{spec.family}:{spec.seed}:{spec.agent_seed}"
    return task_writer(WriterConfig(), key, spec.family, spec.seed, num_acts).operations


def _open_simulated(config: "AbConfig") -> Callable[[TrialSpec], LiveEpisode]:
    from data.agent import STRENGTHS
    from data.episode import Episode
    from data.llm_episode import LlmEpisode

    unknown = sorted(set(config.agents) - {*STRENGTHS, LLM})
    if unknown:
        raise UserError(f"unknown agent {unknown[0]!r}; known are {', '.join([*STRENGTHS, LLM])}")
    backend = config.llm.open() if LLM in config.agents else None

    def open_episode(spec: TrialSpec) -> LiveEpisode:
        if spec.agent == LLM:
            assert backend is not None
            return LlmEpisode(spec.family, spec.seed, config.llm, backend, spec.agent_seed, num_acts=config.num_acts)
        return Episode(spec.family, spec.seed, STRENGTHS[spec.agent], spec.agent_seed, num_acts=config.num_acts)

    return open_episode


def _imported(config: "AbConfig") -> Runner:
    module, colon, name = config.runner.partition(":")
    if not colon:
        raise UserError(f"runner is {config.runner!r}; use {SIMULATED}, or module:function of a function that returns a Runner")
    try:
        make: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"runner {config.runner}: {error}; it must be importable from this folder") from None
    runner = make(config)
    if not isinstance(runner, Runner):
        raise UserError(f"runner {config.runner} returned {type(runner).__name__}, not an eval.runner.Runner")
    return runner
