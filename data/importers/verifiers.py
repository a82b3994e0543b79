"""verifiers results: a line a rollout, `{prompt[messages], completion[messages], reward, answer, info}`."""

import json
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, slug, success_of
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from data.importers.reading import need
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """Prompt, completion and reward in one record."""
    return peek.has("prompt", "completion", "reward")


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One line -> one rollout."""
    log = EventLog()
    prompt = record["prompt"]
    add_messages(log, prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}])
    add_messages(log, map(_with_parsed_calls, need(record, "completion", list)))
    name = document.stem.split("--")[0]
    task_id = f"{slug(name)}-{record.get('example_id', record.get('id'))}"
    yield rollout(
        log,
        document,
        family=f"verifiers-{slug(name)}",
        task_id=task_id,
        agent=_model(document),
        record=task_id,
        outcome=success_of(record.get("reward"), "reward"),
    )


def _with_parsed_calls(message: dict[str, Any]) -> dict[str, Any]:
    """Some versions store each call as JSON text."""
    calls = [json.loads(call) if isinstance(call, str) else call for call in message.get("tool_calls") or []]
    return {**message, "tool_calls": calls}


def _model(document: Document) -> str:
    """Results do not name the model; their file or folder does (`environment--model`)."""
    for part in (document.stem, document.path.parent.name, document.path.parent.parent.name):
        if "--" in part:
            return part.split("--", 1)[1].split(".results")[0]
    return "unknown"


FORMAT = Format(name="verifiers", detects=detects, convert=convert)
