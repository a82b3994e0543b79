"""Hermes sessions: one object with the platform, the model and OpenAI chat messages."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """The session's head beside its messages."""
    return peek.has("session_id", "platform", "messages")


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One session -> one rollout."""
    log = EventLog()
    add_messages(log, [message for message in record["messages"] if message.get("role") != "session_meta"])
    name = str(record["session_id"])
    yield rollout(log, document, family="hermes", task_id=name, agent=str(record.get("model") or "hermes"), record=name)


FORMAT = Format(name="hermes", detects=detects, convert=convert)
