"""Kimi Code wire files: lines of `{type, …}`; the conversation stands in appended messages and in the agent loop's events."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import session
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """A metadata line with a protocol version, or a message or loop event appended to the context."""
    return any(
        isinstance(sample, dict)
        and (
            ("protocol_version" in sample and sample.get("type") == "metadata")
            or str(sample.get("type", "")).startswith("context.append_")
        )
        for sample in peek.samples
    )


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One file -> one rollout."""
    log = EventLog()
    model = "kimi"
    for line in lines:
        model = str(line.get("modelAlias") or model)
        kind = line.get("type")
        if kind == "context.append_message":
            _message(log, line["message"])
        elif kind == "context.append_loop_event":
            _loop_event(log, line["event"])
        elif kind == "context.apply_compaction":
            log.mark("compaction")
        elif kind == "turn.cancel":
            log.mark("turn_end", aborted=True)
    yield rollout(log, document, family="kimi-code", task_id=document.stem, agent=model, record=document.stem)


def _message(log: EventLog, message: dict[str, Any]) -> None:
    origin = (message.get("origin") or {}).get("kind", "user")
    if message.get("role") == "user" and origin == "user":
        log.user(message.get("content"))
    elif message.get("role") == "assistant":
        log.assistant(message.get("content"))


def _loop_event(log: EventLog, event: dict[str, Any]) -> None:
    kind = event.get("type")
    if kind == "content.part":
        part = event.get("part") or {}
        if part.get("type") == "think":
            log.thought(part.get("think"))
        else:
            log.assistant(part.get("text"))
    elif kind == "tool.call":
        log.call(
            plain_text(event.get("name")), event.get("args"), call_id=event.get("toolCallId"), batch_id=event.get("stepUuid")
        )
    elif kind == "tool.result":
        result = event.get("result") or {}
        failed = bool(result.get("isError") or result.get("is_error") or result.get("error"))
        log.result(event.get("toolCallId"), result.get("output", result.get("error")), is_error=failed)


FORMAT = Format(name="kimi-code", detects=detects, convert=convert, records=session)
