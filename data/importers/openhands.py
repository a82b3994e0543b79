"""OpenHands: `output.jsonl` of its evaluations (event history), the resolver's older flat events, and stored LLM completions.

Completions (`{messages, response}`) hold the whole conversation up to the last call; without native tool calls the calls stand as
`<function=…>` in the text and results come back as user messages.
"""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, success_of
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.outcomes import beside
from data.importers.reading import Record, values, whole
from pmem.rollout import Outcome, Rollout

TOOLS = {
    "run": "execute_bash",
    "run_ipython": "execute_ipython_cell",
    "edit": "str_replace_editor",
    "read": "str_replace_editor",
    "write": "write_file",
    "browse": "browser",
    "browse_interactive": "browser",
}
ARGUMENTS = (
    "command",
    "code",
    "path",
    "old_str",
    "new_str",
    "file_text",
    "content",
    "insert_line",
    "view_range",
    "start",
    "end",
    "url",
    "browser_actions",
    "query",
)
_EXIT_CODE = re.compile(r"exit code[: ]+(-?\d+)", re.IGNORECASE)
_CALL = re.compile(r"<function=([\w.\-]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.\-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_RESULT = re.compile(r"\s*EXECUTION RESULT of \[[\w.\-]+\]:\n?")


def detects(peek: Peek) -> bool:
    """A history of actions and observations, or messages with the response that followed and its arguments."""
    history = peek.first.get("history")
    if isinstance(history, list) and any(_is_event(event) for event in history):
        return "instruction" in peek.first or "instance_id" in peek.first
    if peek.layout == "array" and _is_event(peek.first):
        return "source" in peek.first
    return peek.has("messages", "response") and ("kwargs" in peek.first or "args" in peek.first)


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and ("action" in value or "observation" in value)


def records(document: Document) -> Iterator[Record]:
    """A bare list of events is one record; anything else is read record by record."""
    if document.peek.layout == "array" and _is_event(document.peek.first):
        yield Record("record 1", {"history": whole(document), "instance_id": document.stem})
    else:
        yield from values(document)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One record -> one rollout."""
    log = EventLog()
    if "history" in record:
        for event in record["history"]:
            _event(log, event if isinstance(event, dict) else {})
        yield rollout(
            log,
            document,
            family="openhands",
            task_id=_task_id(record, document),
            agent=_model(record),
            record=_task_id(record, document),
            outcome=_outcome(record, document),
        )
        return
    answers = [choice["message"] for choice in record["response"].get("choices", [])[:1]]
    add_completion(log, [*record["messages"], *answers])
    task_id = document.stem if "__" in document.stem else document.path.parent.name
    yield rollout(
        log,
        document,
        family="openhands",
        task_id=task_id,
        agent=str(record["response"].get("model") or "openhands"),
        record=task_id,
        outcome=beside(document, task_id),
    )


def add_completion(log: EventLog, messages: list[dict[str, Any]]) -> None:
    """Messages of a completion; calls written as text become calls."""
    if any(message.get("tool_calls") for message in messages):
        add_messages(log, [_without_finish(message) for message in messages], is_error=_is_error)
        return
    for message in messages:
        text = plain_text(message.get("content"))
        waiting = log.unanswered()
        if message["role"] == "assistant":
            add_text_call(log, text)
        elif message["role"] == "user" and waiting:
            body = _RESULT.sub("", text, count=1)
            log.result(waiting[0], body, is_error=_is_error({}, body))
        elif message["role"] == "user":
            log.user(text)


def add_text_call(log: EventLog, text: str) -> None:
    """An answer whose call is written as `<function=name><parameter=key>value</parameter></function>`."""
    found = _CALL.search(text)
    if found is None or found.group(1) == "finish":
        log.assistant(text)
        return
    log.thought(text[: found.start()])
    log.call(found.group(1), dict(_PARAMETER.findall(found.group(2))))


def _event(log: EventLog, event: dict[str, Any]) -> None:
    action, observation = event.get("action"), event.get("observation")
    fields = event.get("args") or event
    if action == "message":
        (log.user if event.get("source", "user") == "user" else log.assistant)(fields.get("content"))
    elif action in {"think", "finish"}:
        (log.thought if action == "think" else log.assistant)(fields.get("thought") or fields.get("final_thought"))
    elif action == "condensation":
        log.mark("compaction")
    elif action in TOOLS or (action and event.get("tool_call_metadata")):
        _action(log, event, fields)
    elif observation and observation not in {"think", "recall", "agent_state_changed", "null"}:
        _observation(log, event)


def _action(log: EventLog, event: dict[str, Any], fields: dict[str, Any]) -> None:
    log.thought(fields.get("thought"))
    stated = event.get("tool_call_metadata") or {}
    tool = stated.get("function_name") or TOOLS.get(event["action"], event["action"])
    args = {key: fields[key] for key in ARGUMENTS if fields.get(key) is not None}
    if event["action"] == "read":
        args = {"command": "view", **args}
    log.call(str(tool), args, call_id=str(event["id"]) if "id" in event else None)


def _observation(log: EventLog, event: dict[str, Any]) -> None:
    waiting = log.unanswered()
    cause = str(event.get("cause"))
    call_id = cause if cause in waiting else (waiting[0] if waiting else None)
    if call_id is None:
        return
    text = plain_text(event.get("content"))
    extras = event.get("extras") or event
    exit_code = (extras.get("metadata") or {}).get("exit_code", extras.get("exit_code"))
    failed = event["observation"] == "error" or event.get("success") is False or text.startswith("ERROR:")
    failed = failed or (isinstance(exit_code, int) and exit_code > 0)
    if event["observation"] == "run_ipython":
        failed = failed or bool(re.search(r"^(Traceback|\w+Error:|ERROR)", text, re.MULTILINE))
    log.result(call_id, text, is_error=bool(failed))


def _is_error(message: dict[str, Any], text: str) -> bool:
    code = _EXIT_CODE.search(text[-400:])
    return (int(code.group(1)) > 0) if code else text.lstrip().startswith(("ERROR", "Error", "Invalid"))


def _without_finish(message: dict[str, Any]) -> dict[str, Any]:
    """`finish` is the end of the run, not a tool: its message is what the agent says last."""
    calls = [call for call in message.get("tool_calls") or [] if (call.get("function") or {}).get("name") != "finish"]
    return {**message, "tool_calls": calls}


def _task_id(record: dict[str, Any], document: Document) -> str:
    if record.get("instance_id"):
        return str(record["instance_id"])
    issue = record.get("issue") or {}
    return f"{issue.get('owner', '')}__{issue.get('repo', document.stem)}-{issue.get('number', 0)}"


def _outcome(record: dict[str, Any], document: Document) -> Outcome:
    report = (record.get("test_result") or {}).get("report") or record.get("report") or {}
    if isinstance(report.get("resolved"), bool):
        return success_of(report["resolved"], "resolved")
    if isinstance(record.get("success"), bool):
        return success_of(record["success"], "judged by the resolver's model")
    return beside(document, _task_id(record, document))


def _model(record: dict[str, Any]) -> str:
    return str(((record.get("metadata") or {}).get("llm_config") or {}).get("model") or "openhands")


FORMAT = Format(name="openhands", detects=detects, convert=convert, records=records)
