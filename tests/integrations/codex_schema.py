"""The answers Codex takes, as JSON schemas: no unknown key anywhere, and context only where the event has a place for it.

Written from its documented hook contract; `hookSpecificOutput` of an event names that event.
"""

from typing import Any

_COMMON: dict[str, Any] = {
    "continue": {"type": "boolean"},
    "stopReason": {"type": ["string", "null"]},
    "suppressOutput": {"type": "boolean"},
    "systemMessage": {"type": ["string", "null"]},
}
_BLOCKS: dict[str, Any] = {"decision": {"enum": ["block", None]}, "reason": {"type": ["string", "null"]}}


def _output(event: str, more: dict[str, Any], specific: dict[str, Any] | None) -> dict[str, Any]:
    properties = {**_COMMON, **more}
    if specific is not None:
        properties["hookSpecificOutput"] = {
            "type": ["object", "null"],
            "additionalProperties": False,
            "required": ["hookEventName"],
            "properties": {"hookEventName": {"const": event}, "additionalContext": {"type": ["string", "null"]}, **specific},
        }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


OUTPUTS: dict[str, dict[str, Any]] = {
    "PostToolUse": _output("PostToolUse", _BLOCKS, {"updatedToolOutput": {}, "updatedMCPToolOutput": {}}),
    "SessionStart": _output("SessionStart", {}, {"env": {"type": "object", "additionalProperties": {"type": "string"}}}),
    "UserPromptSubmit": _output("UserPromptSubmit", _BLOCKS, {}),
    "Stop": _output("Stop", _BLOCKS, None),
    "PreCompact": _output("PreCompact", {}, None),
    "PostCompact": _output("PostCompact", {}, None),
}
