"""Trajectories of a published memory agent, parsed from rendered pages: `{task, variant, header, steps[…]}`, calls as text.

The reminders of the memory agent stand in its own decisions file (see `data.teacher`), not in these steps.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.effects import reads_like_error
from data.importers.events import EventLog, plain_text
from data.importers.reading import need
from pmem.rollout import Rollout

_HEADER = re.compile(r"Tool Call:\s*([\w.\-]+)(?:\s*\(([\w.\-]+)\))?")
TASK_MARK = "Task Description:"


def detects(peek: Peek) -> bool:
    """The note of the parser, the variant and the steps."""
    return peek.has("task", "variant", "header", "steps")


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One page -> one rollout. The harness's instructions before the task description are left out."""
    log = EventLog()
    for step in need(record, "steps", list):
        if step["source"] == "user":
            log.user(_task(plain_text(step.get("message"))))
        elif step["source"] == "agent":
            _agent(log, step)
    variant = str(record["variant"])
    model = str((record.get("header") or {}).get("Model") or "unknown")
    yield rollout(
        log,
        document,
        family="terminal-bench-memory",
        task_id=str(record["task"]),
        agent=model,
        record=f"{record['task']}#{variant}",
        params={"variant": variant},
    )


def _agent(log: EventLog, step: dict[str, Any]) -> None:
    calls = step.get("tool_calls") or []
    (log.thought if calls else log.assistant)(step.get("message"))
    batch = f"step-{step['step_id']}" if len(calls) > 1 else None
    ids = []
    for call in calls:
        found = _HEADER.search(plain_text(call.get("header")))
        name, call_id = (found.group(1), found.group(2)) if found else ("unknown", None)
        ids.append(log.call(name, _arguments(call.get("args")), call_id=call_id, batch_id=batch))
    text = plain_text(step.get("observation"))
    for call_id in ids[:-1]:
        log.result(call_id, "", is_error=False)
    if ids:
        log.result(ids[-1], text, is_error=reads_like_error(text))


def _arguments(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return {"input": plain_text(text)}


def _task(text: str) -> str:
    return text.partition(TASK_MARK)[2].strip() or text


FORMAT = Format(name="memory-pages", detects=detects, convert=convert)
