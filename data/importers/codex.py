"""Codex CLI rollout files: lines of `{timestamp, type, payload}`; `response_item` payloads are the conversation.

`event_msg` lines repeat what response items say, so only the aborted turn is read from them.
"""

import json
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import session
from pmem.rollout import Rollout

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_call", "web_search_call", "tool_search_call"})
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_result", "tool_search_output"})
HARNESS = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions", "<turn_aborted>")
"""How messages begin that the program, not the person, put into the conversation."""


def detects(peek: Peek) -> bool:
    """Lines whose payload has a type, the first of them the session's meta line."""
    return any(
        isinstance(sample, dict)
        and isinstance(sample.get("payload"), dict)
        and sample.get("type") in {"session_meta", "response_item", "event_msg"}
        for sample in peek.samples
    )


def convert(lines: list[Any], document: Document) -> Iterator[Rollout]:
    """One file -> one rollout."""
    log = EventLog()
    meta: dict[str, Any] = {}
    model = "codex"
    for line in lines:
        payload = line.get("payload") or {}
        if line["type"] == "session_meta":
            meta = meta or payload
        elif line["type"] == "turn_context":
            model = payload.get("model") or model
        elif line["type"] == "compacted":
            log.mark("compaction")
        elif payload.get("type") == "turn_aborted":
            log.mark("turn_end", aborted=True)
        elif line["type"] == "response_item":
            _item(log, payload)
    name = str(meta.get("id") or document.stem)
    yield rollout(log, document, family="codex", task_id=name, agent=str(model), record=name)


def _item(log: EventLog, item: dict[str, Any]) -> None:
    kind = item.get("type")
    if kind == "message":
        text = plain_text(item.get("content"))
        if item.get("role") == "user" and not text.startswith(HARNESS):
            log.user(text)
        elif item.get("role") == "assistant":
            log.assistant(text)
    elif kind == "reasoning":
        log.thought(item.get("summary"))
    elif kind in CALLS:
        _call(log, item)
    elif kind in OUTPUTS:
        _output(log, item)


def _call(log: EventLog, item: dict[str, Any]) -> None:
    stated = item.get("function")
    function = stated if isinstance(stated, dict) else {}
    name = item.get("name") or function.get("name") or str(item["type"]).removesuffix("_call")
    args = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), None)
    call_id = log.call(plain_text(name), args, call_id=item.get("call_id"))
    if item["type"] == "web_search_call":
        log.result(call_id, item.get("status"), is_error=item.get("status") == "failed")


def _output(log: EventLog, item: dict[str, Any]) -> None:
    waiting = log.unanswered()
    call_id = item.get("call_id") if item.get("call_id") in waiting or not waiting else waiting[0]
    value = next((item[key] for key in ("output", "result", "tools") if item.get(key) is not None), "")
    text, failed = _read_output(value)
    log.result(call_id, text, is_error=failed, tool=plain_text(item.get("name")) or "unknown")


def _read_output(value: Any) -> tuple[str, bool]:
    """Text and failure of an output in any of the shapes that versions have used."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return value, False
    if isinstance(value, dict) and {"stdout", "stderr"} & set(value):
        code = value.get("exitCode", value.get("exit_code", 0))
        return f"{value.get('stdout') or ''}{value.get('stderr') or ''}", bool(code)
    if isinstance(value, dict):
        code = (value.get("metadata") or {}).get("exit_code", 0)
        return plain_text(value.get("output", value)), bool(code) or value.get("success") is False
    text = plain_text(value)
    head = text[:200].lower()
    return text, head.startswith(("exit code: ", "process exited with code")) and not head.split("code", 1)[1].lstrip(
        ": "
    ).startswith("0")


FORMAT = Format(name="codex", detects=detects, convert=convert, records=session)
