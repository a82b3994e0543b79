"""Gemini CLI sessions: one object with `messages`, or lines of them after a head line; answers carry their tool calls."""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import Record, session, whole
from pmem.rollout import Rollout

_EXIT_CODE = re.compile(r"Exit Code: (-?\d+)")


def detects(peek: Peek) -> bool:
    """The head names the project by its hash."""
    return "projectHash" in peek.first and "sessionId" in peek.first


def records(document: Document) -> Iterator[Record]:
    """Both shapes as one list: the head, then the messages."""
    if document.peek.layout == "lines":
        yield from session(document)
    else:
        value = whole(document)
        yield Record("record 1", [value, *value["messages"]])


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One session -> one rollout."""
    log = EventLog()
    name = str(lines[0].get("sessionId") or document.stem)
    model = "gemini"
    for message in lines[1:]:
        if message.get("type") == "user":
            log.user(message.get("content") or message.get("parts"))
        elif message.get("type") in {"gemini", "model"}:
            model = str(message.get("model") or model)
            _answer(log, message)
    yield rollout(log, document, family="gemini-cli", task_id=name, agent=model, record=name)


def _answer(log: EventLog, message: dict[str, Any]) -> None:
    calls = message.get("toolCalls") or []
    log.thought([thought.get("description") or thought.get("subject") for thought in message.get("thoughts") or []])
    (log.thought if calls else log.assistant)(message.get("content") or message.get("parts"))
    batch = str(message.get("id")) if len(calls) > 1 else None
    ids = [log.call(plain_text(call.get("name")), call.get("args"), call_id=call.get("id"), batch_id=batch) for call in calls]
    for call_id, call in zip(ids, calls):
        text, failed = _result(call)
        log.result(call_id, text, is_error=failed)


def _result(call: dict[str, Any]) -> tuple[str, bool]:
    responses = [
        part.get("functionResponse", {}).get("response", {}) for part in call.get("result") or [] if isinstance(part, dict)
    ]
    text = "\n".join(plain_text(response.get("output", response.get("error"))) for response in responses)
    text = text or plain_text(call.get("resultDisplay"))
    code = _EXIT_CODE.search(text)
    failed = call.get("status") in {"error", "cancelled"} or any("error" in response for response in responses)
    return text, failed or bool(code and int(code.group(1)) != 0)


FORMAT = Format(name="gemini-cli", detects=detects, convert=convert, records=records)
