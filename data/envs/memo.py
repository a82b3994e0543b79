"""Never run the same command on the same files twice: an environment that remembers what real executions gave.

    (files the command reads, command) -> (its result, what it changed)

A family may state what an act reads (`Act.reads`); without that a command is taken to read everything. Branches from one
snapshot mostly repeat each other, so they share one real execution where they agree in what the command reads. `audit_share` of
the answers from memory are executed again on the exact files and compared; a difference is a defect of a family and stops the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from data.envs.base import CheckResult, Task, ToolResult, draw
from data.envs.bash import BashEnvironment
from data.envs.filestate import Change, FileState, is_under
from pmem.canonical import canonical_json

AUDIT_SHARE = 0.01


@dataclass(slots=True, weakref_slot=True, eq=False)
class Memory:
    """What one task's executions gave. `num_steps` counts steps asked for, `num_real` those executed, `num_audited` those of them
    executed again to check an answer from memory."""

    task: Task
    start: FileState
    states: dict[int, FileState] = field(default_factory=dict)
    steps: dict[tuple[int, str], tuple[ToolResult, int]] = field(default_factory=dict)
    effects: dict[tuple[int, str], tuple[ToolResult, Change]] = field(default_factory=dict)
    checks: dict[int, CheckResult] = field(default_factory=dict)
    num_steps: int = 0
    num_real: int = 0
    num_audited: int = 0

    def kept(self, state: FileState) -> FileState:
        """The first state seen with this digest."""
        return self.states.setdefault(state.digest, state)


class RealPlace:
    """The one real environment of a worker. Tasks take turns in it; a task's memory lives while somebody works on the task."""

    def __init__(self, environment: BashEnvironment, *, audit_share: float = AUDIT_SHARE) -> None:
        self.environment = environment
        self.audit_share = audit_share
        self._memories: WeakValueDictionary[tuple[str, int], Memory] = WeakValueDictionary()
        self._standing: FileState | None = None

    def open(self, task: Task) -> "MemoEnvironment":
        """The start of a task."""
        key = (task.task_id, len(task.acts))
        memory = self._memories.get(key)
        if memory is None:
            self._standing = None
            self.environment.reset(task)
            self._standing = self.environment.snapshot()
            memory = self._memories[key] = Memory(task, self._standing)
            memory.kept(self._standing)
        return MemoEnvironment(self, memory, memory.start)

    def execute(self, memory: Memory, at: FileState, tool: str, args: Mapping[str, Any]) -> tuple[ToolResult, FileState]:
        """Really run one step on the files `at`; returns the result and the files after it."""
        self.environment.enter(memory.task)
        if self._standing is not at:
            self.environment.restore(at, present=self._standing)
        self._standing = None
        result = self.environment.step(tool, args)
        memory.num_real += 1
        self._standing = self.environment.snapshot()
        return result, memory.kept(self._standing)

    def check(self, memory: Memory, at: FileState) -> CheckResult:
        """Really check the files `at`."""
        self.environment.enter(memory.task)
        if self._standing is not at:
            self.environment.restore(at, present=self._standing)
            self._standing = at
        return self.environment.check(at)


class MemoEnvironment:
    """A position in a task's memory; forks share it."""

    def __init__(self, place: RealPlace, memory: Memory, at: FileState) -> None:
        self._place = place
        self.memory = memory
        self.at = at

    def fork(self) -> "MemoEnvironment":
        """Another position, at the same files."""
        return MemoEnvironment(self._place, self.memory, self.at)

    def reset(self, task: Task) -> None:
        fresh = self._place.open(task)
        self.memory, self.at = fresh.memory, fresh.at

    def step(self, tool: str, args: Mapping[str, Any], reads: tuple[str, ...] | None = None) -> ToolResult:
        """One step. `reads`: the only files the result and the changes depend on; None = all."""
        call = f"{tool} {canonical_json(dict(args))}"
        self.memory.num_steps += 1
        known = self.memory.steps.get((self.at.digest, call))
        if known is None:
            result, after = self._answer(tool, args, call, reads)
            known = self.memory.steps[self.at.digest, call] = result, after.digest
        result, digest = known
        self.at = self.memory.states[digest]
        return result

    def snapshot(self) -> FileState:
        return self.at

    def restore(self, state: FileState) -> None:
        self.at = self.memory.kept(state)

    def check(self) -> CheckResult:
        if self.at.digest not in self.memory.checks:
            self.memory.checks[self.at.digest] = self._place.check(self.memory, self.at)
        return self.memory.checks[self.at.digest]

    def close(self) -> None:
        """The place belongs to the worker; nothing to close here."""

    def _answer(
        self, tool: str, args: Mapping[str, Any], call: str, reads: tuple[str, ...] | None
    ) -> tuple[ToolResult, FileState]:
        """The result and the files after the step, from memory where the files it reads are known."""
        key = (self.at.digest if reads is None else self.at.part(reads), call)
        effect = self.memory.effects.get(key)
        if effect is None:
            result, after = self._place.execute(self.memory, self.at, tool, args)
            lasting = {path: entry for path, entry in after.entries.items() if is_under(path, self.memory.task.lasting)}
            self.memory.effects[key] = result, {**lasting, **self.at.change_to(after)}
            return result, after
        result, change = effect
        after = self.memory.kept(self.at.changed(change))
        if draw("audit", self.memory.task.task_id, self.at.digest, call) < self._place.audit_share:
            self.memory.num_audited += 1
            again, really = self._place.execute(self.memory, self.at, tool, args)
            assert (again, really.digest) == (result, after.digest), (
                f"{self.memory.task.task_id}: {call} reads more than {reads}: {result} or {again}, "
                f"{sorted(after.change_to(really))[:6]}"
            )
        return result, after
