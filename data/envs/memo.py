"""Never run the same command on the same files twice: an environment that remembers what real executions gave.

    result = memo[(digest of the files, tool, arguments)]

Branches from one snapshot mostly repeat each other; equal files and equal actions give equal results (which the tests check for every
family), so they share one real execution. Reads leave the files as they are, so even different orders of reading share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from data.envs.base import CheckResult, Task, ToolResult
from data.envs.bash import BashEnvironment
from data.envs.filestate import FileState
from pmem.canonical import canonical_json


@dataclass(slots=True, weakref_slot=True, eq=False)
class Memory:
    """What one task's executions gave. `num_steps` counts the steps asked for, `num_real` those really run."""

    task: Task
    start: bytes
    states: dict[bytes, FileState]
    steps: dict[tuple[bytes, str], tuple[ToolResult, bytes]] = field(default_factory=dict)
    checks: dict[bytes, CheckResult] = field(default_factory=dict)
    num_steps: int = 0
    num_real: int = 0


class RealPlace:
    """The one real environment of a worker. Tasks take turns in it; a task's memory lives as long as somebody works on the task."""

    def __init__(self, environment: BashEnvironment) -> None:
        self.environment = environment
        self._memories: WeakValueDictionary[tuple[str, int], Memory] = WeakValueDictionary()
        self._standing: tuple[Memory, bytes] | None = None

    def open(self, task: Task) -> "MemoEnvironment":
        """The start of a task."""
        key = (task.task_id, len(task.acts))
        memory = self._memories.get(key)
        if memory is None:
            self.environment.reset(task)
            start = self.environment.snapshot()
            memory = self._memories[key] = Memory(task, start.digest, {start.digest: start})
            self._standing = (memory, start.digest)
        return MemoEnvironment(self, memory, memory.start)

    def execute(self, memory: Memory, at: bytes, tool: str, args: Mapping[str, Any]) -> tuple[ToolResult, bytes]:
        """Really run one step on the files `at`; returns the result and the digest of the files after it."""
        self._go_to(memory, at)
        self._standing = None
        result = self.environment.step(tool, args)
        after = self.environment.snapshot()
        memory.num_real += 1
        memory.states.setdefault(after.digest, after)
        self._standing = (memory, after.digest)
        return result, after.digest

    def check(self, memory: Memory, at: bytes) -> CheckResult:
        """Really check the files `at`. Probes only read."""
        self._go_to(memory, at)
        return self.environment.check()

    def _go_to(self, memory: Memory, at: bytes) -> None:
        if self._standing != (memory, at):
            self.environment.enter(memory.task)
            self.environment.restore(memory.states[at])
            self._standing = (memory, at)


class MemoEnvironment:
    """A position in a task's memory; forks share it."""

    def __init__(self, place: RealPlace, memory: Memory, at: bytes) -> None:
        self._place = place
        self.memory = memory
        self.at = at

    def fork(self) -> "MemoEnvironment":
        """Another position, at the same files."""
        return MemoEnvironment(self._place, self.memory, self.at)

    def reset(self, task: Task) -> None:
        fresh = self._place.open(task)
        self.memory, self.at = fresh.memory, fresh.at

    def step(self, tool: str, args: Mapping[str, Any]) -> ToolResult:
        key = (self.at, f"{tool} {canonical_json(dict(args))}")
        self.memory.num_steps += 1
        known = self.memory.steps.get(key)
        if known is None:
            known = self.memory.steps[key] = self._place.execute(self.memory, self.at, tool, args)
        result, self.at = known
        return result

    def snapshot(self) -> FileState:
        return self.memory.states[self.at]

    def restore(self, state: FileState) -> None:
        self.memory.states.setdefault(state.digest, state)
        self.at = state.digest

    def check(self) -> CheckResult:
        if self.at not in self.memory.checks:
            self.memory.checks[self.at] = self._place.check(self.memory, self.at)
        return self.memory.checks[self.at]

    def close(self) -> None:
        """The place belongs to the worker; nothing to close here."""
