"""SWE-agent `.traj`: `{environment, trajectory[{action, observation, thought}], history[], info}`; some demos have history only.

The commands of its interface (`edit`, `open`, `search_dir` …) become tools of that name, everything else is `bash`.
Observations carry no exit code: an error is what reads like one.
"""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.effects import reads_like_error
from data.importers.events import EventLog, plain_text
from data.importers.outcomes import beside
from data.importers.reading import BadRecord
from pmem.rollout import Rollout

INTERFACE = frozenset(
    {
        "edit",
        "open",
        "create",
        "goto",
        "scroll_down",
        "scroll_up",
        "search_dir",
        "search_file",
        "find_file",
        "submit",
        "insert",
        "append",
        "str_replace_editor",
        "view",
        "decompile",
        "exit_forfeit",
        "connect_start",
        "connect_sendline",
    }
)
_STATE = re.compile(r"\n\(Open file: .*?\)\n\(Current directory: .*?\)\nbash-\$\s*\Z", re.DOTALL)


def detects(peek: Peek) -> bool:
    """A trajectory of action and observation, or a history whose messages carry an agent name and a message type."""
    steps = peek.first.get("trajectory")
    if isinstance(steps, list) and (not steps or {"action", "observation"} <= set(steps[0])):
        return "history" in peek.first or "info" in peek.first or bool(steps)
    history = peek.first.get("history")
    return isinstance(history, list) and bool(history) and isinstance(history[0], dict) and "message_type" in history[0]


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One trajectory -> one rollout."""
    history = record.get("history") or []
    log = EventLog()
    if record.get("trajectory"):
        log.user(_task(history))
        for step in record["trajectory"]:
            _step(log, step)
    else:
        add_messages(log, [_message(item) for item in history], is_error=lambda message, text: reads_like_error(text))
    if not log.has_calls:
        raise BadRecord("no action in it")
    info = record.get("info") or {}
    task_id = document.stem
    yield rollout(
        log,
        document,
        family="swe-agent",
        task_id=task_id,
        agent="swe-agent",
        record=task_id,
        params={"exit_status": info["exit_status"]} if info.get("exit_status") else None,
        outcome=beside(document, task_id),
    )


def _task(history: list[Any]) -> str:
    asked = (item["content"] for item in history if item.get("role") == "user" and not item.get("is_demo"))
    return plain_text(next(asked, None))


def _step(log: EventLog, step: Any) -> None:
    action = plain_text(step["action"]).strip()
    log.thought(step.get("thought"))
    first = action.split(maxsplit=1)[0] if action else ""
    if first in INTERFACE:
        call_id = log.call(first, {"input": action[len(first) :].strip()} if action != first else {})
    else:
        call_id = log.call("bash", {"command": action})
    text = plain_text(step["observation"])
    is_listing = first in {"open", "goto", "scroll_down", "scroll_up", "create"} and text.startswith("[File:")
    log.result(call_id, text, is_error=not is_listing and reads_like_error(text))


def _message(item: dict[str, Any]) -> dict[str, Any]:
    text = _STATE.sub("", plain_text(item.get("content")).replace("\r\n", "\n"))
    ids = item.get("tool_call_ids") or [None]
    return {**item, "content": text, "tool_call_id": ids[0]}


FORMAT = Format(name="swe-agent", detects=detects, convert=convert)
