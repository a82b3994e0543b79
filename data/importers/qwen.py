"""Qwen Code sessions: lines like Claude Code's, but messages hold `parts` with function calls, and a rewind leaves a dead branch.

The rollout is the active chain: from the last message back through `parentUuid`.
"""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import session
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """Lines with a uuid whose message holds parts."""
    return any(
        isinstance(sample, dict) and "uuid" in sample and isinstance(sample.get("message"), dict) and "parts" in sample["message"]
        for sample in peek.samples
    )


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One session -> one rollout."""
    chain = active_chain(lines)
    log = EventLog()
    for line in chain:
        parts = line["message"].get("parts") or []
        if line["message"].get("role") == "user":
            _user(log, parts)
        else:
            _model(log, parts)
    name = str(next((line["sessionId"] for line in lines if line.get("sessionId")), document.stem))
    model = next((line["model"] for line in reversed(chain) if line.get("model")), "qwen-code")
    yield rollout(log, document, family="qwen-code", task_id=name, agent=str(model), record=name)


def active_chain(lines: list[Any]) -> list[dict[str, Any]]:
    """Message lines on the way from the first line to the last message; lines that share a uuid stay together, in order."""
    parents = {line["uuid"]: line.get("parentUuid") for line in lines if line.get("uuid")}
    spoken = [line for line in lines if isinstance(line.get("message"), dict)]
    alive: set[str] = set()
    at = spoken[-1]["uuid"] if spoken else None
    while at and at not in alive:
        alive.add(at)
        at = parents.get(at)
    return [line for line in spoken if line["uuid"] in alive]


def _user(log: EventLog, parts: list[Any]) -> None:
    for part in parts:
        response = part.get("functionResponse")
        if response:
            value = response.get("response") or {}
            log.result(response.get("id"), value.get("output", value.get("error")), is_error="error" in value)
        else:
            log.user(part.get("text"))


def _model(log: EventLog, parts: list[Any]) -> None:
    calls = [part["functionCall"] for part in parts if part.get("functionCall")]
    for part in parts:
        if "text" in part:
            (log.thought if part.get("thought") or calls else log.assistant)(part["text"])
    batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
    for call in calls:
        log.call(plain_text(call.get("name")), call.get("args"), call_id=call.get("id"), batch_id=batch)


FORMAT = Format(name="qwen-code", detects=detects, convert=convert, records=session)
