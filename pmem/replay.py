"""The one driver that turns rollout events into session calls: `data.replay`, `eval.ab` and `pmem replay` all use it.

session = MemorySession(settings, telemetry=Ledger(), clock=clock)
for event in rollout.events:
    fed = feed(session, event)          # fed.annotation: block to append to that result
    if fed.boundary and (snapshot := session.prepare()): …
"""

from collections.abc import Callable
from dataclasses import dataclass

from pmem.rollout import Event
from pmem.session import MemorySession

ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Fed:
    """What one event led to. `boundary`: a batch or a turn has ended, so a step may be due here."""

    annotation: str | None = None
    boundary: bool = False


def feed(session: MemorySession, event: Event) -> Fed:
    """Give one event to the session. Raises the session's own faults: replay must not hide a defect that a host would survive."""
    before = session.num_faults
    fed = _FEEDERS[event.kind](session, event)
    if session.num_faults > before:
        raise session.faults[-1]
    return fed


def _user(session: MemorySession, event: Event) -> Fed:
    own = bool(event.own_reminder)
    session.on_user_message(event.text or "", own=own)
    if not own:
        session.on_turn_start()
    return Fed()


def _agent_text(session: MemorySession, event: Event) -> Fed:
    if not event.own_reminder:
        session.on_agent_text(event.text or "")
    return Fed()


def _tool_call(session: MemorySession, event: Event) -> Fed:
    session.on_tool_call(tool=event.tool or "tool", args=event.args or {}, call_id=event.call_id, batch_id=event.batch_id)
    return Fed()


def _tool_result(session: MemorySession, event: Event) -> Fed:
    call = session.pending_call(event.call_id)
    tool = event.tool or (call.tool if call else "tool")
    args = event.args if event.args is not None else (call.args if call else {})
    note = session.on_tool_result(
        tool=tool,
        args=args,
        text=event.text or "",
        is_error=bool(event.is_error),
        call_id=event.call_id,
        batch_id=event.batch_id,
        changes_workspace=event.changes_workspace,
        is_probe=bool(event.is_probe),
    )
    ended = not session.batch_open(event.batch_id)
    if ended:
        session.on_batch_end()
    return Fed(annotation=note, boundary=ended)


def _compaction(session: MemorySession, event: Event) -> Fed:
    session.on_compaction(committed=True)
    return Fed()


def _turn_end(session: MemorySession, event: Event) -> Fed:
    aborted = event.error_kind == ABORTED
    session.on_turn_end(aborted=aborted)
    return Fed(boundary=not aborted)


def _loop_signal(session: MemorySession, event: Event) -> Fed:
    session.on_loop_signal()
    return Fed()


_FEEDERS: dict[str, Callable[[MemorySession, Event], Fed]] = {
    "user": _user,
    "thought": _agent_text,
    "assistant": _agent_text,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "compaction": _compaction,
    "turn_end": _turn_end,
    "loop_signal": _loop_signal,
}
