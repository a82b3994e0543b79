"""mini-swe-agent trajectories: chat messages with one ```bash block an answer; results come as the next user message.

Version 1: `{info, messages, trajectory_format, instance_id}`; early files are the bare list of messages.
"""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.outcomes import beside
from data.importers.reading import BadRecord, Record, values, whole
from pmem.rollout import Rollout

_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n?```", re.DOTALL)
_RESULT = re.compile(r"\s*<returncode>(-?\d+)</returncode>\s*", re.DOTALL)
_OUTPUT = re.compile(r"<output>\n?(.*?)\n?</output>\s*\Z", re.DOTALL)
_ONE_ACTION = ("exactly one bash", "exactly one action")


def detects(peek: Peek) -> bool:
    """The format's own name, or a system prompt that asks for exactly one bash command."""
    info = peek.first.get("info")
    if str(peek.first.get("trajectory_format", "")).startswith("mini-swe-agent") or (
        isinstance(info, dict) and "mini_version" in info
    ):
        return True
    first = plain_text(peek.first.get("content")).lower()
    return peek.layout == "array" and peek.first.get("role") == "system" and any(words in first for words in _ONE_ACTION)


def records(document: Document) -> Iterator[Record]:
    """A bare list of messages is one record; anything else is read record by record."""
    if document.peek.layout == "array" and "role" in document.peek.first:
        yield Record("record 1", {"messages": whole(document), "instance_id": document.stem})
    else:
        yield from values(document)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One trajectory -> one rollout. The first user message is the task; every later one answers a command."""
    messages = record["messages"]
    task_id = str(record.get("instance_id") or document.stem)
    info = record.get("info") or {}
    log = EventLog()
    for message in messages:
        text = plain_text(message["content"])
        if message["role"] == "assistant":
            _assistant(log, text, message)
        elif message["role"] in {"user", "tool"}:
            _user(log, text)
    if not log.events:
        raise BadRecord("no messages")
    model = (((info.get("config") or {}).get("model") or {}).get("model_name")) or "mini-swe-agent"
    yield rollout(
        log,
        document,
        family="mini-swe-agent",
        task_id=task_id,
        agent=str(model),
        record=task_id,
        params={"exit_status": info.get("exit_status")} if info.get("exit_status") else None,
        outcome=beside(document, task_id),
    )


def _assistant(log: EventLog, text: str, message: dict[str, Any]) -> None:
    found = _BLOCK.search(text)
    thought = text if found is None else text[: found.start()] + text[found.end() :]
    log.thought(thought.replace("THOUGHT:", "", 1))
    if found:
        log.call("bash", {"command": found.group(1)})


def _user(log: EventLog, text: str) -> None:
    waiting = log.unanswered()
    if not waiting:
        log.user(text)
        return
    head = _RESULT.match(text)
    body = text[head.end() :] if head else text
    output = _OUTPUT.search(body)
    failed = int(head.group(1)) != 0 if head else "timed out" in text[:300]
    log.result(waiting[-1], output.group(1) if output else body, is_error=failed)


FORMAT = Format(name="mini-swe-agent", detects=detects, convert=convert, records=records)
