"""GitHub Copilot CLI session events: lines of `{type: "user.message" | "assistant.message" | "tool.execution_…", data}`."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import session
from pmem.rollout import Rollout

TYPES = frozenset({"session.start", "user.message", "assistant.message", "tool.execution_start", "tool.execution_complete"})
COMPACTIONS = frozenset({"session.truncation", "session.compaction_complete"})


def detects(peek: Peek) -> bool:
    """Lines with one of the event types and a data object."""
    return any(
        isinstance(sample, dict) and sample.get("type") in TYPES and isinstance(sample.get("data"), dict)
        for sample in peek.samples
    )


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One file -> one rollout."""
    log = EventLog()
    name, model = document.stem, "copilot"
    for line in lines:
        data = line.get("data") or {}
        if line["type"] == "session.start":
            name = str(data.get("sessionId") or name)
        model = str(data.get("model") or model) if line["type"] == "assistant.message" else model
        _event(log, str(line["type"]), data)
    yield rollout(log, document, family="copilot", task_id=name, agent=model, record=name)


def _event(log: EventLog, kind: str, data: dict[str, Any]) -> None:
    if kind == "user.message":
        log.user(data.get("content"))
    elif kind == "assistant.reasoning":
        log.thought(data.get("content"))
    elif kind == "assistant.message":
        calls = data.get("toolRequests") or []
        (log.thought if calls else log.assistant)(data.get("content"))
        batch = str(data.get("messageId")) if len(calls) > 1 else None
        for call in calls:
            log.call(plain_text(call.get("name")), call.get("arguments"), call_id=call.get("toolCallId"), batch_id=batch)
    elif kind == "tool.execution_complete" and not data.get("parentToolCallId"):
        result = data.get("result") or data.get("error") or {}
        log.result(data.get("toolCallId"), result.get("content", result.get("message")), is_error=data.get("success") is False)
    elif kind in COMPACTIONS:
        log.mark("compaction")
    elif kind == "abort":
        log.mark("turn_end", aborted=True)


FORMAT = Format(name="copilot", detects=detects, convert=convert, records=session)
