"""What the policy sees at one boundary. The runtime makes it, replay stores it, evaluation feeds it back: one shape for all."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

EntryKind = Literal["status", "knowledge", "procedural"]
Trigger = Literal["interval", "tool_error_streak", "loop_signal", "repeated_failure", "post_compaction", "manual"]
DETERMINISTIC_TRIGGERS: frozenset[str] = frozenset(
    {"tool_error_streak", "loop_signal", "repeated_failure", "post_compaction", "manual"}
)


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Frozen):
    """One knowledge or procedural entry. `created` and `touched` are readings of the bank's injected clock (seconds or step counts)."""

    id: str
    kind: EntryKind
    content: str
    created: float
    touched: float
    injections: int = 0


class BankState(_Frozen):
    """A detached copy of a bank; `next_number` is the counter from which the next id is made (ids are never reused)."""

    status: str | None = None
    entries: tuple[Entry, ...] = ()
    next_number: int = 1


class Step(_Frozen):
    """One completed tool call, redacted and cut (docs/design/runtime.md section 7)."""

    step: int
    tool: str
    call: str
    fingerprint: str
    outcome: Literal["ok", "error"]
    digest: str
    provenance: str = "code"
    thought: str | None = None


class Snapshot(_Frozen):
    """Input of one policy step. `task_messages`: first user message, then the newest later ones in order of arrival."""

    snapshot_id: str | None = None
    task_messages: tuple[str, ...]
    window: tuple[Step, ...]
    bank: BankState = Field(default_factory=BankState)
    triggers: tuple[Trigger, ...] = ("interval",)
    last_reminder: str | None = None
