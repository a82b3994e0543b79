"""One way to play a scripted agent through any adapter, so that one suite can ask the same of all.

A `Turn` is a user's prompt and the `Act`s the scripted model answers with; commands are real shell commands, run by the agent's
own tool. A rig says what the model saw at each call (`requests`), and what is left of the conversation (`history`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pmem.delivery import Delivered, Opening, as_block
from pmem.envelope import Operation
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.snapshot import Snapshot
from pmem.step import StepResult
from pmem.telemetry import Ledger
from tests.pmem.hosts import wait_for
from tests.pmem.policies import PlayedPolicy

FACT = Operation("save_knowledge", "The report is JSON.")
REMIND = "The report must be JSON [tm-k-1]"
BLOCK = as_block(REMIND)
FAILS = "echo kaboom >&2; exit 3"
Answer = Callable[[Snapshot], StepResult] | Exception


@dataclass(frozen=True)
class Act:
    """One answer of the scripted model. `kind`: `bad_args` and `unknown_tool` are calls that cannot run."""

    commands: tuple[str, ...]
    thought: str = ""
    kind: str = "run"


@dataclass(frozen=True)
class Turn:
    prompt: str
    acts: Sequence[Act]


@dataclass
class Played:
    """What happened. `requests`: text of each model call, whole. `history`: what stays of the conversation."""

    requests: list[str] = field(default_factory=list)
    history: str = ""
    answer: str = ""

    def carried(self, text: str) -> list[int]:
        """How often each model call held the text."""
        return [request.count(text) for request in self.requests]


def run(*commands: str, thought: str = "") -> Act:
    return Act(commands, thought)


def turn(*acts: Act, prompt: str = "Build the report.") -> Turn:
    return Turn(prompt, acts)


class Rig:
    """Sessions of one test: each with its own played policy (the same answers), its own books, a bank with one fact."""

    name: ClassVar[str] = ""
    transient: ClassVar[bool]
    sees_errors: ClassVar[bool]
    sees_compaction: ClassVar[bool]
    has_async_twin: ClassVar[bool] = False
    block: ClassVar[str] = BLOCK
    """The reminder as the model sees it."""

    def __init__(self, *answers: Answer, hang: threading.Event | None = None, cadence: int = 1) -> None:
        self.answers = answers
        self.hang = hang
        self.gate = threading.Event()
        self.settings = Settings(cadence_tool_calls=cadence, telemetry=False)
        self.kind: type[MemorySession] = MemorySession
        self.clock: Callable[[], float] = time.time
        self.sessions: list[MemorySession] = []
        self.policies: list[PlayedPolicy] = []
        self.delivered: list[Delivered] = []
        self.opening: Opening | None = None

    def open_session(self) -> MemorySession:
        policy = PlayedPolicy(*self.answers, gate=self.hang or self.gate)
        session = self.kind(
            self.settings,
            policy=policy if self.answers or self.hang else None,
            clock=self.clock,
            telemetry=Ledger(),
            on_delivered=self.delivered.append,
        )
        session.opening = self.opening
        session.apply_operations([FACT])
        self.sessions.append(session)
        self.policies.append(policy)
        return session

    @property
    def session(self) -> MemorySession:
        (session,) = self.sessions
        return session

    def settle(self) -> None:
        """Memory steps end here and nowhere else, so that a test knows when: while the agent's model thinks."""
        if self.hang is None:
            self.gate.set()
            wait_for(lambda: not any(session.inspect().get("in_flight") for session in self.sessions))
            self.gate.clear()

    def play(self, *turns: Turn, thread: str = "one") -> Played:
        """Play turns on a conversation; a thread that was played before goes on."""
        raise NotImplementedError

    def play_with_failing_call(self, *turns: Turn) -> Played:
        """The same; the second model call (or delivery) fails once and is tried again."""
        raise NotImplementedError

    def play_interrupted(self) -> Played:
        """A batch is interrupted by the person and resumed: `echo one`, then the interrupted `echo two`."""
        raise NotImplementedError

    def play_compaction(self) -> Played:
        """A turn in which the context is compacted after a tool ran."""
        raise NotImplementedError

    def play_subagent(self) -> Played:
        """A main agent that runs `echo main`, and its subagent, `echo sub`."""
        raise NotImplementedError

    def num_faults(self) -> int:
        """Everything that was caught, wherever."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop what the rig started."""


class Clockless:
    """A clock that fails: the core's own code raises in the middle of its work."""

    def __init__(self) -> None:
        self.broken = False

    def __call__(self) -> float:
        if self.broken:
            raise RuntimeError("the clock is gone")
        return time.time()


def window(session: MemorySession) -> list[dict[str, Any]]:
    return [step.model_dump() for step in session.window()]


def outcomes(session: MemorySession) -> list[str]:
    return [f"{row['decision']}/{row['reason']}" for row in session.inspect()["history"]]


class BrokenSession(MemorySession):
    """A core whose every method raises at the host, which must never happen and must not matter."""

    def _boom(self, *args: Any, **kwargs: Any) -> Any:
        self.num_faults += 1
        raise RuntimeError("the core is broken")

    on_user_message = on_agent_text = on_tool_call = on_tool_result = on_batch_end = _boom
    on_turn_start = on_turn_end = on_compaction = evaluate = peek = commit = _boom
