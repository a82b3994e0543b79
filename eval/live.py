"""Live trials in lockstep: all episodes of an arm take one act, then every boundary is decided in one batch.

An episode is anything with the six members of `LiveEpisode`; `data.episode.Episode` is one, and a person's own task runner
becomes one in ten lines (docs/evaluation.md). Sessions are the runtime's own, fed through `pmem.replay.feed`; a trial of arm
`never` has none at all.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from eval.arms import BatchPolicy
from pmem.delivery import CLOSE, LABEL, OPEN
from pmem.envelope import Operation
from pmem.replay import feed
from pmem.rollout import Event, Outcome
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.snapshot import DETERMINISTIC_TRIGGERS, Snapshot
from pmem.step import StepResult
from pmem.telemetry import Ledger


class LiveEpisode(Protocol):
    """One task being worked on. `advance` delivers a reminder, if given, and takes exactly one act of the agent."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def done(self) -> bool: ...

    def advance(self, reminder: str | None = None) -> Sequence[Event]: ...

    def finish(self) -> Outcome: ...

    def truth(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, order=True)
class TrialSpec:
    """What makes a trial: arms run the same specs, so trials are matched one to one."""

    family: str
    seed: int
    agent: str
    agent_seed: int

    @property
    def task(self) -> str:
        """The cluster of intervals."""
        return f"{self.family}/{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What one trial came to. `num_reminders`: what really reached the agent, annotations of the rules tier included."""

    family: str
    seed: int
    agent: str
    agent_seed: int
    success: bool
    score: float | None
    num_acts: int
    num_boundaries: int
    num_reminders: int
    num_annotations: int
    num_cited: int
    num_rows: int
    tokens_in: int
    tokens_out: int
    model_ms: float
    outcomes: dict[str, int]


Open = Callable[[TrialSpec], LiveEpisode]
Writer = Callable[[Snapshot], Sequence[Operation]]


@dataclass(slots=True)
class Trial:
    """A running trial: episode, session, what waits to be said, what was counted."""

    spec: TrialSpec
    episode: LiveEpisode
    session: MemorySession | None
    ledger: Ledger
    writer: Writer | None
    cadence: int
    acts: int = 0
    boundaries: int = 0
    asked: int = 0
    reminders: int = 0
    annotations: int = 0
    cited: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model_ms: float = 0.0
    waiting: list[str] = field(default_factory=list)
    fed: int = 0

    def act(self) -> Snapshot | None:
        """Deliver what waits, take one act, feed what happened; the snapshot of a boundary where the policy is due."""
        reminder = "\n".join(self.waiting) or None
        self.waiting.clear()
        self.acts += 1
        self.episode.advance(reminder)
        return self.observe()

    def observe(self) -> Snapshot | None:
        """Feed the session the events it has not seen; the snapshot if a boundary is due."""
        if self.session is None:
            return None
        snapshot = None
        for event in self.episode.events[self.fed :]:
            self.fed += 1
            fed = feed(self.session, event)
            if fed.annotation:
                self.annotations += 1
                self._deliver(bare_text(fed.annotation), cited=1)
            if fed.boundary and snapshot is None:  # at once, as replay does: a user turn that follows belongs to the next one
                snapshot = self.session.prepare()
        if snapshot is None or self.episode.done:
            return None
        index, self.boundaries = self.boundaries, self.boundaries + 1
        due = index % self.cadence == self.cadence - 1 or any(t in DETERMINISTIC_TRIGGERS for t in snapshot.triggers)
        if not due:
            self._write(snapshot)
        return snapshot if due else None

    def settle(self, snapshot: Snapshot, result: StepResult, share_ms: float) -> None:
        """The policy's answer: bank edited, reminder taken up for delivery before the next act."""
        assert self.session is not None
        self.asked += 1
        self.tokens_in += result.tokens_in
        self.tokens_out += result.tokens_out
        self.model_ms += share_ms if result.tokens_in else 0.0
        self.session.complete(snapshot, replace(result, operations=()) if self.writer else result)
        self._write(snapshot)
        reminder = self.session.peek()
        if reminder is not None:
            self.session.commit(reminder)
            self._deliver(reminder.text, cited=len(reminder.cited))

    def _write(self, snapshot: Snapshot) -> None:
        if self.writer is not None and self.session is not None:
            self.session.apply_operations(self.writer(snapshot))

    def _deliver(self, text: str, *, cited: int) -> None:
        self.waiting.append(text)
        self.reminders += 1
        self.cited += cited > 0

    def result(self) -> TrialResult:
        """Run the real check and close everything."""
        try:
            outcome = self.episode.finish()
        finally:
            self.episode.close()
            if self.session is not None:
                self.session.close()
        rows = Counter(f"{row.decision}/{row.reason}" for row in self.ledger.steps)
        return TrialResult(
            family=self.spec.family, seed=self.spec.seed, agent=self.spec.agent, agent_seed=self.spec.agent_seed,
            success=bool(outcome.success), score=outcome.score, num_acts=self.acts, num_boundaries=self.boundaries,
            num_reminders=self.reminders, num_annotations=self.annotations, num_cited=self.cited, num_rows=len(self.ledger.steps),
            tokens_in=self.tokens_in, tokens_out=self.tokens_out, model_ms=round(self.model_ms, 1),
            outcomes=dict(sorted(rows.items())),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArm:
    """How an arm runs live. `policy` None: the rules tier alone; `memory` False: no session; `oracle`: the environment's
    truth speaks.
    """

    name: str
    policy: BatchPolicy | None = None
    memory: bool = True
    oracle: bool = False


def run_trials(
    arm: LiveArm, specs: Sequence[TrialSpec], open_episode: Open, *, width: int, cadence: int, settings: Settings,
    writer_for: Callable[[TrialSpec], Writer] | None = None, threads: int = 1,
) -> Iterator[TrialResult]:  # fmt: skip
    """Yield results in the order of `specs`; `width` episodes run at once. Workspaces are isolated by the episodes themselves.

    `threads`: so many episodes act side by side, for agents that wait for a server.
    """
    for start in range(0, len(specs), width):
        batch: list[Trial] = []
        try:
            for spec in specs[start : start + width]:
                batch.append(_open(arm, spec, open_episode(spec), cadence, settings, writer_for))
            _lockstep(arm, batch, threads)
            yield from [trial.result() for trial in batch]
        finally:
            for trial in batch:
                trial.episode.close()


def _open(
    arm: LiveArm, spec: TrialSpec, episode: LiveEpisode, cadence: int, settings: Settings,
    writer_for: Callable[[TrialSpec], Writer] | None,
) -> Trial:  # fmt: skip
    ledger = Ledger()
    session = None
    writer = writer_for(spec) if writer_for and arm.memory else None
    trial = Trial(spec=spec, episode=episode, session=None, ledger=ledger, writer=writer, cadence=cadence)
    if arm.memory:
        session = MemorySession(
            settings, policy=_one_step(arm.policy), clock=lambda: float(trial.acts), telemetry=ledger, session_id="ab"
        )
    trial.session = session
    return trial


def _one_step(policy: BatchPolicy | None) -> Any:
    """What the session needs to know of a policy that is asked in batches: its name."""
    return _Named(policy.name, getattr(policy, "threshold_id", None)) if policy is not None else None


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    threshold_id: str | None

    def step(self, snapshot: Snapshot) -> StepResult:
        raise AssertionError("a lockstep session is completed from outside")


def _acts(live: Sequence[Trial], threads: int) -> list[Snapshot | None]:
    """One act of each trial, in order; side by side where the episodes allow it."""
    if threads == 1:
        return [trial.act() for trial in live]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(Trial.act, live))


def _lockstep(arm: LiveArm, batch: Sequence[Trial], threads: int = 1) -> None:
    for trial in batch:
        trial.observe()
    while live := [trial for trial in batch if not trial.episode.done]:
        due = [(trial, snapshot) for trial, snapshot in zip(live, _acts(live, threads)) if snapshot is not None]
        if arm.oracle:
            _tell_truth(trial for trial in live if not trial.episode.done)
        if not due:
            continue
        if arm.policy is None:
            for trial, snapshot in due:
                trial._write(snapshot)
            continue
        started = time.perf_counter()
        results = arm.policy.step_many([snapshot for _, snapshot in due])
        share_ms = (time.perf_counter() - started) * 1000 / len(due)
        for (trial, snapshot), result in zip(due, results):
            trial.settle(snapshot, result, share_ms)


def _tell_truth(trials: Iterable[Trial]) -> None:
    """The oracle says exactly the lost facts that the next acts depend on, and nothing otherwise."""
    for trial in trials:
        truth = trial.episode.truth()
        for text in needed_texts(truth):
            trial._deliver(text, cited=1)


def needed_texts(truth: dict[str, Any]) -> list[str]:
    """Texts of the lost facts that the coming acts need, from `Episode.truth()`."""
    wanted = set(truth["lost"]) & set(truth["depends"]) if truth["need_true"] else set()
    return [fact["text"] for fact in truth["facts"] if fact["key"] in wanted]


def bare_text(block: str) -> str:
    """A reminder block without its tags and label."""
    return block.replace(OPEN, "").replace(CLOSE, "").strip().removeprefix(LABEL).strip()
