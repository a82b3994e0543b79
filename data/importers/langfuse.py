"""Langfuse trace exports: `{trace, observations[]}`; the conversation stands in the last generation."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, slug, success_of
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import BadRecord, need
from data.importers.spans import add_conversation, conversation_of, openinference
from pmem.rollout import Outcome, Rollout


def detects(peek: Peek) -> bool:
    """A trace and its observations."""
    return isinstance(peek.first.get("trace"), dict) and isinstance(peek.first.get("observations"), list)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One trace -> one rollout: of the agents in it, the one with the longest conversation."""
    trace = record["trace"]
    spoken = [_conversation(one) for one in need(record, "observations", list) if one.get("type") == "GENERATION"]
    longest = max(spoken, key=len, default=[])
    if not longest:
        raise BadRecord("no generation with messages in it")
    log = EventLog()
    add_conversation(log, longest)
    name = slug(str(trace.get("name") or document.stem))
    model = next((one.get("model") for one in record["observations"] if one.get("model")), None)
    yield rollout(
        log,
        document,
        family="langfuse",
        task_id=name,
        agent=str(model or "unknown"),
        record=str(trace.get("id")),
        outcome=_outcome(trace),
    )


def _conversation(observation: dict[str, Any]) -> list[dict[str, Any]]:
    attributes = ((observation.get("metadata") or {}).get("attributes")) or {}
    before = conversation_of(observation.get("input")) or (
        openinference(attributes, "input") if isinstance(attributes, dict) else []
    )
    if not before:
        return []
    after = conversation_of(observation.get("output"))
    if not after and plain_text(observation.get("output")):
        after = [{"role": "assistant", "content": observation["output"]}]
    return [*before, *after]


def _outcome(trace: dict[str, Any]) -> Outcome:
    """A boolean score called success, correct or passed; other scores say nothing of the task."""
    for score in trace.get("scores") or []:
        if str(score.get("name")).lower() in {"success", "correct", "correctness", "passed"}:
            return success_of(score.get("value"), str(score["name"]))
    return Outcome()


FORMAT = Format(name="langfuse", detects=detects, convert=convert)
