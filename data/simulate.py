"""Simulated rollouts: the decaying agent works on seeded tasks with real execution, without any memory.

    python -m data.simulate out=runs/rollouts.jsonl num_tasks=260
    python -m data.simulate out=runs/llm.jsonl strengths=[llm] llm.url=http://127.0.0.1:8000/v1 llm.model=qwen num_tasks=40

The same configuration gives the same bytes on any number of cores; every rollout can be rebuilt from its family, seed and agent.
Strength `llm` is a real model behind an endpoint (data.llm_agent); what it does is its own and cannot be rebuilt.
"""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from data.agent import STRENGTHS
from data.envs import FAMILIES, HELDOUT, require_family
from data.envs.base import draw
from data.episode import Episode, process_place
from data.llm_agent import LlmConfig, endpoint
from data.llm_episode import LlmEpisode
from data.parallel import ordered_map
from data.progress import track
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import Rollout, write_rollouts

DEFAULT = Path("configs/simulate.yaml")
LLM = "llm"


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulateConfig:
    """Settings of the simulation."""

    out: Path = Path("runs/rollouts.jsonl")
    """The rollouts file to write."""
    families: tuple[str, ...] = ()
    """Families to draw tasks from; empty = all that are not held out."""
    heldout_families: tuple[str, ...] = HELDOUT
    """Families never trained on."""
    num_tasks: int = 260
    """Tasks over `families`, shared out evenly."""
    num_heldout: int = 50
    """Tasks over `heldout_families`."""
    attempts: int = 1
    """Rollouts a task, each by an agent that forgets other things at other times."""
    strengths: tuple[str, ...] = ("weak", "medium", "strong")
    """Agent strengths, or llm; each task gets one by hash."""
    llm: LlmConfig = field(default_factory=LlmConfig)
    """The acting model of strength llm."""
    min_acts: int = 12
    """Shortest script."""
    max_acts: int = 20
    """Longest script; up to 80."""
    seed: int = 17
    """First task seed and seed of every choice here."""
    num_workers: int = 0
    """Processes; 0 = one a core."""
    ray_address: str = ""
    """Ray cluster that runs the tasks instead: auto, local or ray://host:port; empty: this machine's cores."""

    def __post_init__(self) -> None:
        for name in (*self.families, *self.heldout_families):
            require_family(name)
        for name in self.strengths:
            if name not in {*STRENGTHS, LLM}:
                raise UserError(f"strengths: unknown strength {name!r}; known are {', '.join([*STRENGTHS, LLM])}")
        if not self.strengths or not 8 <= self.min_acts <= self.max_acts <= 80:
            raise UserError("simulate: needs at least one strength and 8 <= min_acts <= max_acts <= 80")
        if self.attempts < 1:
            raise UserError("simulate: attempts must be at least 1")
        if min(self.num_tasks, self.num_heldout, self.num_workers) < 0 or self.num_tasks + self.num_heldout == 0:
            raise UserError("simulate: num_tasks, num_heldout and num_workers are at least 0, and there must be one task")


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to make."""

    family: str
    seed: int
    num_acts: int
    strength: str
    agent_seed: int


def jobs(config: SimulateConfig) -> list[Job]:
    """Every rollout of a configuration, families in turn."""
    trained = config.families or tuple(name for name in FAMILIES if name not in config.heldout_families)
    made: list[Job] = []
    for families, count in ((trained, config.num_tasks), (config.heldout_families, config.num_heldout)):
        made += [
            _job(config, families[index % len(families)], config.seed * 100_000 + index // len(families), attempt)
            for index in range(count if families else 0)
            for attempt in range(config.attempts)
        ]
    return made


def _job(config: SimulateConfig, family: str, seed: int, attempt: int) -> Job:
    num_acts = config.min_acts + int(draw("acts", family, seed) * (config.max_acts - config.min_acts + 1))
    strength = config.strengths[int(draw("strength", family, seed) * len(config.strengths))]
    which = (attempt,) if attempt else ()
    return Job(family, seed, num_acts, strength, int(draw("agent", family, seed, config.seed, *which) * 2**31))


def run_job(job: Job, llm: LlmConfig) -> tuple[Rollout, int]:
    """The rollout of a job, and how many real processes it started."""
    if job.strength == LLM:
        return _run_llm(job, llm)
    before = process_place().environment.sandbox.num_processes
    episode = Episode(job.family, job.seed, STRENGTHS[job.strength], job.agent_seed, num_acts=job.num_acts)
    while not episode.done:
        episode.advance()
    return episode.rollout(), process_place().environment.sandbox.num_processes - before


def _run_llm(job: Job, llm: LlmConfig) -> tuple[Rollout, int]:
    episode = LlmEpisode(job.family, job.seed, llm, endpoint(llm), job.agent_seed, num_acts=job.num_acts)
    try:
        while not episode.done:
            episode.advance()
        return episode.rollout(), episode.environment.sandbox.num_processes
    finally:
        episode.close()


def simulate(config: SimulateConfig) -> tuple[list[Rollout], int]:
    """Every rollout sorted by id, and the number of real processes."""
    todo = jobs(config)
    if LLM in config.strengths:
        endpoint(config.llm)  # a wrong address is said before processes start
    work = partial(run_job, llm=config.llm)
    done = list(
        track(ordered_map(work, todo, config.num_workers, config.ray_address), "simulating", total=len(todo), unit="rollouts")
    )
    return sorted((rollout for rollout, _ in done), key=lambda rollout: rollout.rollout_id), sum(count for _, count in done)


def main() -> int:
    """Entry point of `python -m data.simulate`."""
    config = parse_stage(SimulateConfig, __doc__, DEFAULT)
    start = time.perf_counter()
    rollouts, num_processes = simulate(config)
    write_rollouts(config.out, rollouts)
    seconds = time.perf_counter() - start
    names = {rollout.rollout_id: LLM if rollout.agent.name == config.llm.name() else rollout.agent.name for rollout in rollouts}
    passed = Counter(names[rollout.rollout_id] for rollout in rollouts if rollout.outcome.success)
    total = Counter(names.values())
    rates = ", ".join(f"{name} {passed[name]}/{total[name]}" for name in config.strengths)
    print(
        f"simulated {len(rollouts)} rollouts in {seconds:.0f} s with {num_processes} real processes; "
        f"passed without memory: {rates} "
        f"-> {config.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
