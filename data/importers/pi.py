"""Pi coding agent sessions: a `session` line, then `message` lines (user, assistant, toolResult) and compactions."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import session
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """A session line with a version, and message lines that wrap their message."""
    return any(
        isinstance(sample, dict) and sample.get("type") == "session" and "version" in sample and "cwd" in sample
        for sample in peek.samples
    )


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One session -> one rollout."""
    log = EventLog()
    model = "pi"
    for line in lines:
        model = str(line.get("modelId") or model)
        if line.get("type") == "compaction":
            log.mark("compaction")
        elif line.get("type") == "message":
            _message(log, line["message"])
    name = str(next((line["id"] for line in lines if line.get("type") == "session"), document.stem))
    yield rollout(log, document, family="pi", task_id=name, agent=model, record=name)


def _message(log: EventLog, message: dict[str, Any]) -> None:
    role, content = message.get("role"), message.get("content")
    if role == "user":
        log.user(content)
    elif role == "toolResult":
        log.result(
            message.get("toolCallId"), content, is_error=bool(message.get("isError")), tool=plain_text(message.get("toolName"))
        )
    elif role == "assistant":
        _assistant(log, content if isinstance(content, list) else [{"type": "text", "text": content}])


def _assistant(log: EventLog, parts: list[dict[str, Any]]) -> None:
    calls = [part for part in parts if part.get("type") == "toolCall"]
    for part in parts:
        if part.get("type") == "thinking":
            log.thought(part.get("thinking"))
        elif part.get("type") == "text":
            (log.thought if calls else log.assistant)(part.get("text"))
    batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
    for call in calls:
        log.call(plain_text(call.get("name")), call.get("arguments"), call_id=call.get("id"), batch_id=batch)


FORMAT = Format(name="pi", detects=detects, convert=convert, records=session)
