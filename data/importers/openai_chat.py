"""OpenAI chat messages: `{"messages": […]}` a line, a bare list of messages a line, one such object, or one bare list.

Optional keys of a record: `id` or `task_id`, `family`, `model`, `reward` or `success`, `split_key`.
"""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, success_of
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from data.importers.reading import BadRecord, Record, values, whole
from pmem.canonical import content_id
from pmem.rollout import Rollout

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def detects(peek: Peek) -> bool:
    """Messages with a role, in a record or bare."""
    return any(_is_messages(_messages(sample)) for sample in peek.samples) or (
        peek.layout == "array" and _is_messages(peek.samples)
    )


def records(document: Document) -> Iterator[Record]:
    """A bare list of messages is one record; anything else is read record by record."""
    if document.peek.layout == "array" and _is_messages(document.peek.samples):
        yield Record("record 1", whole(document))
    else:
        yield from values(document)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One conversation -> one rollout. Without an id the task is the first user message."""
    messages = _messages(record)
    if not isinstance(messages, list) or not _is_messages(messages):
        raise BadRecord("key 'messages' must be a list of messages with a role")
    fields = record if isinstance(record, dict) else {}
    log = EventLog()
    add_messages(log, messages)
    first = next((event.text for event in log.events if event.kind == "user"), "")
    task_id = str(
        next((fields[key] for key in ("task_id", "id", "instance_id") if fields.get(key) is not None), content_id(first))
    )
    outcome = next((fields[key] for key in ("success", "reward", "score") if fields.get(key) is not None), None)
    yield rollout(
        log,
        document,
        family=str(fields.get("family") or "openai-chat"),
        task_id=task_id,
        split_key=str(fields["split_key"]) if fields.get("split_key") else None,
        agent=str(fields.get("model") or "unknown"),
        record=task_id,
        outcome=success_of(outcome, "given with the record"),
    )


def _messages(record: Any) -> Any:
    return record.get("messages") if isinstance(record, dict) else record


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and item.get("role") in ROLES for item in value)


FORMAT = Format(name="openai-chat", detects=detects, convert=convert, records=records)
