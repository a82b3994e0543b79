"""OpenAI chat messages -> events; most formats keep such a list somewhere, this is the one place that reads it."""

from collections.abc import Callable, Iterable
from typing import Any

from data.importers.events import EventLog, plain_text
from data.importers.reading import BadRecord

ErrorTest = Callable[[dict[str, Any], str], bool]


def add_messages(
    log: EventLog, messages: Iterable[Any], *, is_error: ErrorTest | None = None, only_first_call: bool = False
) -> None:
    """Append every message. Text beside tool calls is a thought, text alone an answer; system prompts are not part of a rollout.

    `only_first_call`: the environment ran just the first call of a message (tau-bench).
    """
    is_error = is_error or states_error
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            raise BadRecord("a message is not an object with a role")
        role = message["role"]
        if role == "user":
            log.user(message.get("content"))
        elif role == "assistant":
            _assistant(log, message, only_first_call)
        elif role in {"tool", "function"}:
            _tool(log, message, is_error)


def states_error(message: dict[str, Any], text: str) -> bool:
    """What the message itself says, else what its text begins with."""
    for key in ("is_error", "error"):
        if message.get(key) is not None:
            return bool(message[key])
    head = text[:200].lstrip().lower()
    return head.startswith(("error", "traceback (most recent", "exception", "fatal:", "failed:")) or '"error":' in head[:20]


def _assistant(log: EventLog, message: dict[str, Any], only_first_call: bool) -> None:
    calls = list(message.get("tool_calls") or [])
    if message.get("function_call"):
        calls.append({"id": None, "function": message["function_call"]})
    log.thought(message.get("reasoning_content") or message.get("reasoning"))
    say = log.thought if calls else log.assistant
    say(message.get("content"))
    if only_first_call:
        calls = calls[:1]
    batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
    for call in calls:
        function = call.get("function") if isinstance(call.get("function"), dict) else call
        args = function.get("arguments", function.get("args", function.get("input")))
        log.call(plain_text(function.get("name")), args, call_id=call.get("id") or call.get("tool_call_id"), batch_id=batch)


def _tool(log: EventLog, message: dict[str, Any], is_error: ErrorTest) -> None:
    text = plain_text(message.get("content"))
    waiting = log.unanswered()
    call_id = message.get("tool_call_id") or message.get("id")
    if call_id not in waiting and waiting:
        call_id = waiting[0]
    log.result(call_id, text, is_error=is_error(message, text), tool=plain_text(message.get("name")) or "unknown")
