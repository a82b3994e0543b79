"""OpenTelemetry traces as OTLP JSON lines (`resourceSpans`): one trace is one rollout, its conversation is the last LLM span's.

A trace may be spread over lines, so the spans of a whole file are sorted by trace first; without LLM spans there is no rollout.
"""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from data.importers.reading import BadRecord, Record, values
from data.importers.spans import add_conversation, conversation_of, openinference
from pmem.rollout import Rollout

Span = dict[str, Any]
INPUTS = ("gen_ai.input.messages", "gen_ai.prompt", "input.value", "llm.prompts")
OUTPUTS = ("gen_ai.output.messages", "gen_ai.completion", "output.value")


def detects(peek: Peek) -> bool:
    """OTLP's outermost key."""
    return peek.has("resourceSpans")


def records(document: Document) -> Iterator[Record]:
    """One record a trace, spans in order of their start."""
    traces: dict[str, list[Span]] = {}
    for record in values(document):
        if record.error or not isinstance(record.value, dict):
            yield Record(record.where, error=record.error or "not a JSON object")
            continue
        for span in spans_of(record.value):
            traces.setdefault(str(span.get("traceId")), []).append(span)
    for trace_id, spans in traces.items():
        yield Record(f"trace {trace_id}", sorted(spans, key=lambda span: int(span.get("startTimeUnixNano") or 0)))


def convert(spans: list[Span], document: Document) -> Iterator[Rollout]:
    """One trace -> one rollout."""
    spoken = [messages for span in spans if (messages := _conversation(span))]
    if not spoken:
        raise BadRecord("no span with messages of a model in it")
    log = EventLog()
    add_conversation(log, max(spoken, key=len))
    attributes = [span["attributes"] for span in spans]
    models = [found.get("gen_ai.request.model") or found.get("llm.model_name") for found in attributes]
    trace_id = str(spans[0].get("traceId"))
    yield rollout(
        log, document, family="otel", task_id=trace_id, agent=str(next(filter(None, models), "unknown")), record=trace_id
    )


def spans_of(value: Any) -> Iterator[Span]:
    """Every span of one OTLP object, its attributes as a plain mapping."""
    for resource in value.get("resourceSpans") or []:
        for scope in resource.get("scopeSpans") or []:
            for span in scope.get("spans") or []:
                yield {**span, "attributes": {pair["key"]: _value(pair.get("value")) for pair in span.get("attributes") or []}}


def _conversation(span: Span) -> list[dict[str, Any]]:
    attributes = span["attributes"]
    before = next(
        (found for key in INPUTS if (found := conversation_of(attributes.get(key)))), openinference(attributes, "input")
    )
    if not before:
        return []
    after = next(
        (found for key in OUTPUTS if (found := conversation_of(attributes.get(key)))), openinference(attributes, "output")
    )
    return [*before, *after]


def _value(value: Any) -> Any:
    """OTLP's typed value."""
    if not isinstance(value, dict):
        return value
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values") or []]
    if "kvlistValue" in value:
        return {pair["key"]: _value(pair.get("value")) for pair in value["kvlistValue"].get("values") or []}
    return next(iter(value.values()), None)


FORMAT = Format(name="otel", detects=detects, convert=convert, records=records)
