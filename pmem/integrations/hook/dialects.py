"""What the hook clients send and take: one reading of their events, one answer each.

Claude Code and Codex share names; they differ in which events come, where a failure shows and how strict answers are read
(Codex refuses unknown keys). An answer stays in the agent's transcript: hooks are never `transient`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["prompt", "tool", "failure", "batch", "start", "compacting", "compacted", "stop", "stop_failure", "other"]

KINDS: dict[str, Kind] = {
    "UserPromptSubmit": "prompt",
    "PostToolUse": "tool",
    "PostToolUseFailure": "failure",
    "PostToolBatch": "batch",
    "SessionStart": "start",
    "PreCompact": "compacting",
    "PostCompact": "compacted",
    "Stop": "stop",
    "SubagentStop": "stop",
    "StopFailure": "stop_failure",
    "Interrupt": "stop_failure",
}
"""Event name -> what it means."""
PERSON = frozenset({"", "user", "sdk"})
"""`source` of prompts that a person wrote; others (timers, notices) start a turn and are no requirement."""
NOTICES = ("<task-notification>", "<local-command", "<command-name>")
"""How prompts begin that the client wrote itself and that state no source."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One client. `registered`: the events `pmem hook install` asks for. `speaks`: those whose answer may hold context."""

    name: str
    registered: tuple[str, ...]
    speaks: frozenset[str]
    sees_errors: bool
    transient: bool = False
    sees_compaction: bool = True
    wraps_context: bool = False
    """The client puts a context into a reminder block of its own and escapes the tags of ours: it gets the bare text."""
    max_context_chars: int = 9_500
    """A longer context is not shown to the agent in full (Claude Code: a file and a preview from 10,000 on)."""


CLAUDE = Dialect(
    name="claude",
    registered=("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "PostToolBatch", "PreCompact", "Stop"),
    speaks=frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PostToolBatch"}),
    sees_errors=True,
    wraps_context=True,
)
CODEX = Dialect(
    name="codex",
    registered=("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"),
    speaks=frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse"}),
    sees_errors=False,  # there is no failure event: an error is seen where the response states an exit code or an error flag
)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CLAUDE, CODEX)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One completed tool call."""

    tool: str
    args: Any
    text: str
    is_error: bool
    call_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """One event, whichever client sent it."""

    name: str
    kind: Kind
    conversation: str
    """Key of the conversation: client session, and the subagent within it."""
    turn_id: str | None = None
    outcomes: tuple[Outcome, ...] = ()
    interrupted: bool = False
    """The call was stopped by the person; it did not fail."""
    text: str = ""
    """The prompt, or the agent's last message."""
    source: str = ""
    transcript: str | None = None
    folder: str = ""
    """Where the agent works."""
    ids: tuple[str, ...] = field(default=())
    """Ids of the tool uses it tells of."""

    @property
    def by_person(self) -> bool:
        """Whether a person wrote this prompt."""
        return self.source in PERSON and not self.text.lstrip().startswith(NOTICES)


def read_event(dialect: Dialect, payload: Mapping[str, Any]) -> HookEvent:
    """Total: what is missing or of another type than documented reads as absent."""
    name = _text(payload.get("hook_event_name"))
    kind = KINDS.get(name, "other")
    agent_id = _text(payload.get("agent_id"))
    transcript = _text(payload.get("transcript_path")) or None
    session = _text(payload.get("session_id"))
    if dialect is CODEX and transcript:
        session += "/" + transcript.rsplit("/", 1)[-1]  # Codex shares a session id among threads; each has its own transcript
    outcomes = _outcomes(kind, payload)
    return HookEvent(
        name=name,
        kind=kind,
        conversation=f"{session}/{agent_id}" if agent_id else session,
        turn_id=_text(payload.get("prompt_id") or payload.get("turn_id")) or None,
        outcomes=outcomes,
        interrupted=payload.get("is_interrupt") is True,
        text=_text(payload.get("prompt") if kind == "prompt" else payload.get("last_assistant_message")),
        source=_text(payload.get("source")),
        transcript=None if agent_id else transcript,
        folder=_text(payload.get("cwd")),
        ids=tuple(outcome.call_id for outcome in outcomes if outcome.call_id),
    )


def answer(dialect: Dialect, event_name: str, text: str) -> dict[str, Any] | None:
    """The object that puts `text` before the agent, or None when this event cannot carry it."""
    if not text or event_name not in dialect.speaks:
        return None
    return {"hookSpecificOutput": {"hookEventName": event_name, "additionalContext": text}}


def _outcomes(kind: Kind, payload: Mapping[str, Any]) -> tuple[Outcome, ...]:
    if kind == "batch":
        calls = payload.get("tool_calls")
        return tuple(_outcome(call) for call in calls if isinstance(call, Mapping)) if isinstance(calls, list) else ()
    if kind == "failure":
        return (_outcome({**payload, "tool_response": payload.get("error")}, failed=True),)
    return (_outcome(payload),) if kind == "tool" else ()


def _outcome(call: Mapping[str, Any], *, failed: bool = False) -> Outcome:
    response = call.get("tool_response")
    return Outcome(
        tool=_text(call.get("tool_name")) or "tool",
        args=_arguments(call.get("tool_input")),
        text=response_text(response),
        is_error=failed or states_failure(response),
        call_id=_text(call.get("tool_use_id")) or None,
    )


def _arguments(given: Any) -> Any:
    """The arguments without the remark on a command that is worded anew at each call: the same command is the same operation."""
    if isinstance(given, Mapping) and "command" in given:
        return {key: value for key, value in given.items() if key != "description"}
    return {} if given is None else given


def response_text(response: Any) -> str:
    """What the agent reads of a tool's response: text, or the texts of its blocks, or the streams of a shell."""
    if response is None:
        return ""
    if isinstance(response, str):
        return response
    if isinstance(response, Mapping):
        for key in ("content", "output", "aggregated_output"):
            if response.get(key):
                return response_text(response[key])
        streams = [_text(response.get(key)) for key in ("stdout", "stderr")]
        if any(streams) or "stdout" in response:
            return "\n".join(stream for stream in streams if stream)
        if isinstance(response.get("text"), str):
            return str(response["text"])
    if isinstance(response, list):
        return "\n".join(response_text(part) for part in response)
    return json.dumps(response, ensure_ascii=False, default=str)


_FAILED = re.compile(
    r"\A(?:exit code:? [1-9-]|<tool_use_error>)|^(?:process exited with code|exit code:) [1-9-]", re.IGNORECASE | re.MULTILINE
)
_HEAD = 400


def states_failure(response: Any) -> bool:
    """Whether a response says itself that the call failed: an exit code other than 0, an error flag."""
    if isinstance(response, str):
        if response.startswith("{"):
            try:
                return states_failure(json.loads(response))
            except (ValueError, RecursionError):
                pass
        return bool(_FAILED.search(response[:_HEAD]))
    if not isinstance(response, Mapping):
        return False
    for key in ("exit_code", "exitCode", "returncode"):
        if isinstance(response.get(key), int):
            return bool(response[key])
    if response.get("is_error") is True or response.get("isError") is True or response.get("success") is False:
        return True
    inner = response.get("metadata")
    return states_failure(inner) if isinstance(inner, Mapping) else False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
