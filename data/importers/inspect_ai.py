"""Inspect logs: `.eval` (a zip with a member a sample) and `.json` (one object with `samples`).

Messages carry `tool_calls[{id, function, arguments}]`; a tool message has its error apart. Long texts may be kept as attachments.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import ijson

from data.importers.base import Format, rollout, slug
from data.importers.documents import Document, Peek
from data.importers.effects import reads_like_error
from data.importers.events import EventLog, plain_text
from data.importers.reading import Record, items, need
from pmem.rollout import Outcome, Rollout

_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")


def detects(peek: Peek) -> bool:
    """An archive with a header and samples, or an object with the eval's description."""
    names = peek.first.get("members") if peek.layout == "archive" else None
    if names:
        return any(name.startswith("samples/") for name in names)
    described = peek.first.get("eval")
    return isinstance(described, dict) and "task" in described and "model" in described


def records(document: Document) -> Iterator[Record]:
    """Samples one at a time, each with the task and the model."""
    if document.peek.layout != "archive":
        with document.open() as stream:
            described: dict[str, Any] = next(ijson.items(stream, "eval", use_float=True), {})
        for record in items(document, "samples.item"):
            yield Record(record.where, {"sample": record.value, "eval": described})
        return
    with zipfile.ZipFile(document.path) as archive:
        described = _described(archive)
        for name in sorted(archive.namelist()):
            if name.startswith("samples/") and name.endswith(".json"):
                yield _member(archive, name, described)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One sample -> one rollout."""
    sample, described = record["sample"], record["eval"]
    attachments = sample.get("attachments") or {}
    log = EventLog()
    for message in need(sample, "messages", list):
        _message(log, message, attachments)
    task = slug(str(described.get("task") or document.stem).split("/")[-1])
    task_id = f"{task}-{sample['id']}"
    yield rollout(
        log,
        document,
        family=f"inspect-{task}",
        task_id=task_id,
        agent=str(described.get("model") or "unknown"),
        record=f"{task_id}#{sample.get('epoch', 1)}",
        outcome=_outcome(sample.get("scores") or {}),
    )


def _described(archive: zipfile.ZipFile) -> dict[str, Any]:
    for name in ("header.json", "_journal/start.json"):
        if name in archive.namelist():
            found = json.loads(archive.read(name)).get("eval")
            return found if isinstance(found, dict) else {}
    return {}


def _member(archive: zipfile.ZipFile, name: str, described: dict[str, Any]) -> Record:
    try:
        return Record(name, {"sample": json.loads(archive.read(name)), "eval": described})
    except (ValueError, zipfile.BadZipFile) as error:
        return Record(name, error=f"not valid JSON ({error})")


def _message(log: EventLog, message: dict[str, Any], attachments: dict[str, str]) -> None:
    text = _ATTACHMENT.sub(lambda found: attachments.get(found.group(1), found.group(0)), plain_text(message.get("content")))
    role = message["role"]
    if role == "user":
        log.user(text)
    elif role == "assistant":
        _assistant(log, message, text)
    elif role == "tool":
        error = message.get("error")
        body = text or plain_text((error or {}).get("message"))
        failed = error is not None or reads_like_error(body)
        log.result(
            message.get("tool_call_id"),
            body,
            is_error=failed,
            tool=plain_text(message.get("function")) or "unknown",
            error_kind=(error or {}).get("type"),
        )


def _assistant(log: EventLog, message: dict[str, Any], text: str) -> None:
    calls = message.get("tool_calls") or []
    log.thought(message.get("reasoning"))
    (log.thought if calls else log.assistant)(text)
    batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
    for call in calls:
        log.call(plain_text(call.get("function")), call.get("arguments"), call_id=call.get("id"), batch_id=batch)


def _outcome(scores: dict[str, Any]) -> Outcome:
    """`C` correct, `I` incorrect, `P` partial, or a number; the first scorer counts."""
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else None
        if value in ("C", "I", "P", "N"):
            return Outcome(success=value == "C", score={"C": 1.0, "P": 0.5}.get(str(value), 0.0), kind=name)
        if isinstance(value, int | float):
            return Outcome(success=value >= 1, score=float(value), kind=name)
    return Outcome()


FORMAT = Format(name="inspect-ai", detects=detects, convert=convert, records=records)
