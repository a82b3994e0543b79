"""What a task family is: one Protocol for its environment, and the plain data of a task.

A task is a script of acts that an able agent would carry out, each with at most one *slot*: a value that some fact fixes (the
summary is separated by semicolons) or that is free. The acting agent fills the slots from what it remembers; commands really
execute; the check reads the files that came out. docs/environments.md shows how to add a family.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from data.envs.filestate import FileState
from data.envs.finished import Finished
from data.phrasing import Kind
from pmem.rollout import Outcome

Mechanism = Literal["requirement", "grounding", "failure_loop", "diagnosis", "progress"]
SLOT = "<V>"
"""Stands for the slot's code in a command."""


Tool = Callable[[dict[str, Any], Mapping[str, Any]], str]
"""A tool of a family's own: (database, arguments) -> result text; it may change the database, and raises `Refused` to refuse."""


class Refused(Exception):
    """A tool of a family refuses; the text is what the agent is told."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One value of a fact for a while: from the first message, a user turn after act `act`, or the result of act `act`."""

    value: str
    text: str
    source: Literal["task", "user", "result"] = "task"
    act: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something the agent must still know when an act needs it. Later stages supersede earlier ones."""

    key: str
    mechanism: Mechanism
    subject: str
    kind: Kind
    stages: tuple[Stage, ...]
    rivals: tuple[str, ...] = ()
    """Values of the same pool that stand elsewhere in the task (another fact's, a failed one): likely confusions."""


@dataclass(frozen=True, slots=True)
class Act:
    """One step of the script. `command` (JSON for tools other than bash) holds `<V>` where the code of the slot's value goes."""

    name: str
    command: str
    tool: str = "bash"
    goal: str = ""
    """What the agent says it does, for acts without a slot."""
    subject: str = ""
    kind: Kind | None = None
    fact: str | None = None
    """Key of the fact that fixes the slot; None with a kind: the agent may choose."""
    awaits: str = ""
    """Name of the act whose result shows the value: right before it the plan can only be vague."""
    vague: str = ""
    """How the act is announced then."""
    fails: bool = False
    """The command is known to fail the first time: this is how the agent learns the fact."""
    reads: tuple[str, ...] | None = None
    """The only files (or folders, ending in `/`) that the command's result and changes depend on; None = all of them."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Part of the final check: what `found` reads from the finished files must equal `expected`."""

    name: str
    found: Callable[[Finished], str]
    expected: str


@dataclass(frozen=True, slots=True)
class Task:
    """One seeded task of a family."""

    task_id: str
    family: str
    seed: int
    wording: Literal["train", "other"]
    text: str
    files: Mapping[str, str]
    setup: str
    """A command that finishes the initial state (git init, sqlite3 < schema); may be empty."""
    facts: Mapping[str, Fact]
    acts: tuple[Act, ...]
    turns: Mapping[str, str]
    """User turns by the act after whose result they arrive."""
    look: Act
    """A harmless act for a detour."""
    probes: tuple[Probe, ...]
    volatile: tuple[str, ...] = ()
    """Paths kept but not compared between states (a path, or a folder ending in `/`)."""
    lasting: tuple[str, ...] = ()
    """Of these, folders whose files never change once written, named by their content: git's objects."""
    executable: tuple[str, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Tools beside bash; they work on the file `db.json`."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call gave."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The real check at the end: `success` when every probe holds, `score` the share that does."""

    success: bool
    score: float
    failed: tuple[str, ...] = ()

    def outcome(self) -> Outcome:
        """How a rollout notes it."""
        return Outcome(success=self.success, score=round(self.score, 6), kind="check")


def call_args(tool: str, command: str) -> dict[str, Any]:
    """The arguments of a tool call from an act's filled-in command."""
    return {"cmd": command} if tool == "bash" else dict(json.loads(command))


class Environment(Protocol):
    """A place where one task at a time really runs. Equal states and equal actions give equal results."""

    def reset(self, task: Task) -> None: ...

    def step(self, tool: str, args: Mapping[str, Any]) -> ToolResult: ...

    def snapshot(self) -> FileState: ...

    def restore(self, state: FileState) -> None: ...

    def check(self) -> CheckResult: ...

    def close(self) -> None: ...


def draw(*key: object) -> float:
    """A number in [0, 1) from the key alone: the same key gives the same number in every branch and on every machine."""
    raw = "\x1f".join(map(str, key)).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=7).digest(), "big") / 2**56


def choose(options: tuple[str, ...] | list[str], *key: object) -> str:
    """One of `options`, by `draw`."""
    return options[int(draw(*key) * len(options))]
