"""Claude Code sessions: the JSONL of `~/.claude/projects`, and `--output-format stream-json`; also `{loglines: [...]}`.

One session is one rollout. A sub-agent's lines (`isSidechain`, `parent_tool_use_id`) are its own business and left out.
"""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, slug
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.outcomes import beside
from data.importers.reading import BadRecord, Record, lines, whole
from pmem.rollout import Outcome, Rollout

TYPES = frozenset({"user", "assistant", "system", "summary", "result"})


def detects(peek: Peek) -> bool:
    """Lines with a session id and a `message` of role and content, or their wrapped form."""
    if isinstance(peek.first.get("loglines"), list):
        return True
    return any(is_line(sample) for sample in peek.samples)


def is_line(value: Any) -> bool:
    """A user or assistant line of a session (Qwen's lines look alike, but hold `parts`)."""
    if not isinstance(value, dict) or value.get("type") not in {"user", "assistant"}:
        return False
    message = value.get("message")
    return isinstance(message, dict) and message.get("role") in {"user", "assistant"} and "content" in message


def records(document: Document) -> Iterator[Record]:
    """One record a session. A change of session id ends the record, so concatenated sessions stay apart."""
    if isinstance(document.peek.first.get("loglines"), list):
        yield Record("record 1", whole(document)["loglines"])
        return
    session: list[Any] = []
    name: str | None = None
    for record in lines(document):
        if record.error or not isinstance(record.value, dict):
            yield Record(record.where, error=record.error or "not a JSON object")
            continue
        found = record.value.get("sessionId") or record.value.get("session_id")
        if session and found and name and found != name:
            yield Record(f"session {name}", session)
            session = []
        name = found or name
        session.append(record.value)
    if session:
        yield Record(f"session {name or document.stem}", session)


def convert(session: list[Any], document: Document) -> Iterator[Rollout]:
    """One session -> one rollout."""
    log = EventLog()
    for line in session:
        if isinstance(line, dict) and not line.get("isSidechain") and not line.get("parent_tool_use_id"):
            _line(log, line)
    if not log.events:
        raise BadRecord("no message of a user or an assistant in it")
    names = (line.get("sessionId") or line.get("session_id") for line in session)
    name = str(next(filter(None, names), document.stem))
    outcome = beside(document, document.stem)
    task_id = _task_id(log, document, outcome, name)
    yield rollout(log, document, family="claude-code", task_id=task_id, agent=_model(session), record=name, outcome=outcome)


def _task_id(log: EventLog, document: Document, outcome: Outcome, session: str) -> str:
    """Runs of one graded task carry it in their name (`<condition>__<task>__run3`); other sessions are their own task."""
    parts = document.stem.split("__")
    if outcome.success is not None:
        return slug(parts[1] if len(parts) > 2 else document.stem)
    return session


def _line(log: EventLog, line: dict[str, Any]) -> None:
    if line.get("subtype") == "compact_boundary":
        log.mark("compaction")
    if line.get("type") not in {"user", "assistant"} or line.get("isMeta") or line.get("isCompactSummary"):
        return
    if line.get("isApiErrorMessage") or not isinstance(line.get("message"), dict):
        return
    content = line["message"].get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if line["type"] == "assistant":
        _assistant(log, parts, str(line["message"].get("id") or ""))
    else:
        _user(log, parts)


def _assistant(log: EventLog, parts: list[Any], message_id: str) -> None:
    """Several lines share one message id; its calls are one batch."""
    for part in parts:
        if part.get("type") == "thinking":
            log.thought(part.get("thinking"))
        elif part.get("type") == "text":
            log.thought(part.get("text"))
        elif part.get("type") == "tool_use":
            log.call(plain_text(part.get("name")), part.get("input"), call_id=part.get("id"), batch_id=message_id or None)


def _user(log: EventLog, parts: list[Any]) -> None:
    for part in parts:
        if not isinstance(part, dict):
            log.user(part)
        elif part.get("type") == "tool_result":
            log.result(part.get("tool_use_id"), part.get("content"), is_error=bool(part.get("is_error")))
        else:
            log.user(_without_reminders(plain_text(part)))


def _without_reminders(text: str) -> str:
    """The host's own `<system-reminder>` blocks are not the person's words."""
    while "<system-reminder>" in text and "</system-reminder>" in text:
        head, _, rest = text.partition("<system-reminder>")
        text = head + rest.partition("</system-reminder>")[2]
    return text


def _model(session: list[Any]) -> str:
    for line in session:
        message = line.get("message")
        if isinstance(message, dict) and message.get("model") and message["model"] != "<synthetic>":
            return str(message["model"])
    return "claude-code"


FORMAT = Format(name="claude-code", detects=detects, convert=convert, records=records)
