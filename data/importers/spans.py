"""Traces of LLM spans -> one conversation: the last generation's input holds every message before it, its output the answer.

Shared by the OpenTelemetry and Langfuse importers. Message shapes read: OpenAI chat, GenAI semantic conventions (`parts`), Google
contents (`function_call`, `function_response`), and OpenInference attributes (`llm.input_messages.0.message.role` …).
"""

import json
import re
from typing import Any

from data.importers.events import EventLog, plain_text

_INDEXED = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(.+)")


def add_conversation(log: EventLog, messages: list[dict[str, Any]]) -> None:
    """Append messages of any of the shapes."""
    for message in messages:
        parts = _parts(message)
        role = {"model": "assistant", "developer": "system"}.get(str(message.get("role")), str(message.get("role")))
        if role == "system":
            continue
        calls = [part for part in parts if part["type"] == "call"]
        batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
        for part in parts:
            if part["type"] == "text":
                say = log.user if role == "user" else log.thought if calls else log.assistant
                say(part["text"])
            elif part["type"] == "call":
                log.call(part["name"], part["args"], call_id=part["id"], batch_id=batch)
            else:
                _result(log, part)


def conversation_of(value: Any) -> list[dict[str, Any]]:
    """Messages in the input or output of a generation, whatever wraps them; JSON text is parsed."""
    value = parsed(value)
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict) and "role" in item]
    if not isinstance(value, dict):
        return []
    for key in ("messages", "contents", "input"):
        if isinstance(value.get(key), list):
            return conversation_of(value[key])
    if isinstance(value.get("choices"), list):
        return [choice["message"] for choice in value["choices"] if isinstance(choice.get("message"), dict)]
    if isinstance(value.get("content"), dict):
        return [value["content"]]
    return [value] if "role" in value else []


def openinference(attributes: dict[str, Any], side: str) -> list[dict[str, Any]]:
    """Messages flattened into attributes; `side` is `input` or `output`."""
    messages: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        found = _INDEXED.fullmatch(key)
        if found and found.group(1) == side:
            _place(messages.setdefault(int(found.group(2)), {}), found.group(3), value)
    return [messages[index] for index in sorted(messages) if messages[index].get("role")]


def parsed(value: Any) -> Any:
    """JSON inside text, once or twice; anything else as it is."""
    for _ in range(2):
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
            try:
                value = json.loads(value)
            except ValueError:
                return value
    return value


def _place(message: dict[str, Any], key: str, value: Any) -> None:
    if key in {"role", "content", "tool_call_id", "name"}:
        message[key] = value
        return
    call = re.fullmatch(r"tool_calls\.(\d+)\.tool_call\.(id|function\.name|function\.arguments)", key)
    if call:
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= int(call.group(1)):
            calls.append({"id": None, "function": {}})
        if call.group(2) == "id":
            calls[int(call.group(1))]["id"] = value
        else:
            calls[int(call.group(1))]["function"][call.group(2).split(".")[1]] = value
    elif key.endswith("message_content.text"):
        message["content"] = f"{message.get('content') or ''}{value}"


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Text, calls and results of one message."""
    if isinstance(message.get("parts"), list):
        return [part for item in message["parts"] if isinstance(item, dict) for part in [_part(item)] if part]
    if message.get("role") in {"tool", "function"}:
        return [{"type": "result", "id": message.get("tool_call_id"), "value": message.get("content")}]
    found = [{"type": "text", "text": plain_text(message.get("content"))}]
    for call in message.get("tool_calls") or []:
        function = call.get("function") or call
        found.append(
            {"type": "call", "id": call.get("id"), "name": plain_text(function.get("name")), "args": function.get("arguments")}
        )
    return found


def _part(item: dict[str, Any]) -> dict[str, Any] | None:
    """One part of the GenAI conventions or of Google's contents."""
    call = item.get("function_call") or item.get("functionCall") or (item if item.get("type") == "tool_call" else None)
    if call:
        return {
            "type": "call",
            "id": call.get("id"),
            "name": plain_text(call.get("name")),
            "args": call.get("arguments", call.get("args")),
        }
    response = item.get("function_response") or item.get("functionResponse")
    if response:
        return {"type": "result", "id": response.get("id"), "value": response.get("response")}
    if item.get("type") == "tool_call_response":
        return {"type": "result", "id": item.get("id"), "value": item.get("response", item.get("result"))}
    text = item.get("text", item.get("content"))
    return {"type": "text", "text": plain_text(text)} if text is not None else None


def _result(log: EventLog, part: dict[str, Any]) -> None:
    waiting = log.unanswered()
    call_id = part["id"] if part["id"] in waiting or not waiting else waiting[0]
    value = parsed(part["value"])
    failed = isinstance(value, dict) and ("error" in value or value.get("isError") is True)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    log.result(call_id, text, is_error=failed or text.startswith(("Error", "Traceback")))
