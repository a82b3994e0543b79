"""Building the events of a rollout: one place that numbers them, cleans text and fills what a call did to the workspace."""

import json
from typing import Any

from data.importers.effects import effects
from pmem.replay import ABORTED
from pmem.rollout import Event


class EventLog:
    """Events in order. A result repeats tool and call id of its call; results without a known call get a call of their own."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls: dict[str, Event] = {}
        self._anonymous = 0

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def user(self, text: Any, *, own_reminder: bool | None = None) -> None:
        """What the person (or the simulated one) said. Blank text is no event, here and below."""
        self._text("user", text, own_reminder=own_reminder)

    def thought(self, text: Any) -> None:
        """What the agent stated before its calls: plan, reasoning, narration."""
        self._text("thought", text)

    def assistant(self, text: Any) -> None:
        """What the agent said to the person."""
        self._text("assistant", text)

    def call(self, tool: str, args: Any, *, call_id: str | None = None, batch_id: str | None = None) -> str:
        """A tool call; returns its id, made up when the format has none or repeats one."""
        if not call_id or call_id in self._calls:
            call_id = self._fresh_id(call_id)
        event = self._add("tool_call", call_id=call_id, batch_id=batch_id, tool=clean(tool) or "unknown", args=arguments(args))
        self._calls[call_id] = event
        return call_id

    def result(
        self, call_id: str | None, text: Any, *, is_error: bool, tool: str = "unknown", error_kind: str | None = None
    ) -> None:
        """The result of a call."""
        call = self._calls.get(call_id or "")
        if call is None:
            call = self._calls[self.call(tool, {}, call_id=call_id)]
        text = plain_text(text)
        done = effects(call.tool or "", call.args or {}, text, is_error)
        self._add(
            "tool_result",
            call_id=call.call_id,
            batch_id=call.batch_id,
            tool=call.tool,
            text=text,
            is_error=is_error,
            error_kind=(error_kind or done.error_kind) if is_error else None,
            changes_workspace=done.changes_workspace,
            is_probe=done.is_probe,
        )

    def unanswered(self) -> list[str]:
        """Ids of calls that have no result yet, in order."""
        answered = {event.call_id for event in self.events if event.kind == "tool_result"}
        return [call_id for call_id in self._calls if call_id not in answered]

    def mark(self, kind: str, *, aborted: bool = False) -> None:
        """A `compaction`, `turn_end` or `loop_signal`. An aborted turn says so as the driver of replay reads it."""
        self._add(kind, error_kind=ABORTED if aborted else None)

    def _text(self, kind: str, text: Any, **fields: Any) -> None:
        text = plain_text(text).strip()
        if text:
            self._add(kind, text=text, **fields)

    def _add(self, kind: str, **fields: Any) -> Event:
        event = Event.model_construct(i=len(self.events), kind=kind, **fields)
        self.events.append(event)
        return event

    def _fresh_id(self, wanted: str | None) -> str:
        self._anonymous += 1
        return f"{wanted or 'call'}-{self._anonymous}"


def plain_text(content: Any) -> str:
    """Text of a message in any of the usual shapes: a string, a list of parts, a part; pictures become `[image]`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        return "\n".join(part for part in map(plain_text, content) if part)
    if isinstance(content, dict):
        return _part_text(content)
    return clean(str(content))


def clean(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, which JSON escapes can carry, become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def arguments(args: Any) -> dict[str, Any]:
    """Arguments as a mapping: JSON text is parsed, anything else stands under `input`."""
    if isinstance(args, str):
        try:
            args = json.loads(args) if args.strip() else {}
        except ValueError:
            return {"input": clean(args)}
    if args is None:
        return {}
    if not isinstance(args, dict):
        args = {"input": args}
    cleaned = _clean_value(args)
    assert isinstance(cleaned, dict)
    return cleaned


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _clean_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _part_text(part: dict[str, Any]) -> str:
    if any(word in str(part.get("type", "")) for word in ("image", "audio", "video")):
        return f"[{str(part['type']).split('_')[0].removeprefix('input') or 'image'}]"
    for key in ("text", "content", "output", "message"):
        if key in part:
            return plain_text(part[key])
    return clean(json.dumps(part, ensure_ascii=False, sort_keys=True))
