"""OpenTelemetry spans and Prometheus counters from the same rows; all names stand in the tables below.

    telemetry = Fanout([FileTelemetry(settings), OtelTelemetry(), PrometheusTelemetry()])

Rows hold counts and outcomes, so spans do too. The text of a delivered reminder (redacted) is a span attribute only when
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true. Names of `gen_ai.*` follow OTEL_SEMCONV_STABILITY_OPT_IN.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pmem.delivery import Delivered
from pmem.errors import UserError
from pmem.telemetry import StepRow, Telemetry, UsageRow

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

SPAN_STEP, SPAN_DELIVERY = "pmem.step", "pmem.deliver"
STEP_ATTRIBUTES: dict[str, str] = {
    "decision": "pmem.decision",
    "reason": "pmem.outcome",
    "tier": "pmem.tier",
    "triggers": "pmem.boundary",
    "num_operations": "pmem.operations.count",
    "num_dropped": "pmem.operations.dropped",
    "num_cited": "pmem.cited.count",
    "prob_speak": "pmem.p_inject",
    "label_mass": "pmem.label_mass",
    "threshold_id": "pmem.threshold",
    "route": "server.address",
    "model": "gen_ai.request.model",
    "tokens_in": "gen_ai.usage.input_tokens",
    "tokens_out": "gen_ai.usage.output_tokens",
}
"""Field of `pmem.step/1` -> span attribute."""
DELIVERY_ATTRIBUTES: dict[str, str] = {
    "step_id": "pmem.step_id",
    "tier": "pmem.tier",
    "channel": "pmem.channel",
    "entry_ids": "pmem.cited_ids",
}
CONTENT_ATTRIBUTE = "pmem.reminder.text"
TOKEN_METRICS: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
    "stable": {
        "tokens_in": ("gen_ai.client.token.usage", {"gen_ai.token.type": "input"}),
        "tokens_out": ("gen_ai.client.token.usage", {"gen_ai.token.type": "output"}),
    },
    "gen_ai_latest_experimental": {
        "tokens_in": ("gen_ai.client.inference.usage.input_tokens", {}),
        "tokens_out": ("gen_ai.client.inference.usage.output_tokens", {}),
        "cached_tokens": ("gen_ai.client.inference.usage.cache_read.input_tokens", {}),
    },
}
"""Opt-in -> field of `pmem.usage/1` -> metric and its attributes. The older name is a histogram, the newer ones are counters."""
PROMETHEUS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "decisions": ("pmem_decisions", "Memory steps by outcome", ("tier", "decision", "reason")),
    "seconds": ("pmem_decision_seconds", "Seconds of a memory step that asked a model", ()),
    "tokens": ("pmem_memory_model_tokens", "Tokens of the memory model", ("model", "direction")),
    "reminders": ("pmem_reminders", "Reminders that reached the agent", ("tier", "channel")),
    "bank_ops": ("pmem_bank_ops", "Entries changed in the bank", ("kind", "op")),
    "rejections": ("pmem_queue_rejections", "Boundaries that ran no step", ("reason",)),
}
"""Role -> metric (counters export `_total`), help, labels. Labels never hold ids of sessions or texts."""
SECONDS_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120)


class Fanout:
    """Rows to several sinks. What one of them raises never reaches the session."""

    def __init__(self, sinks: Sequence[Telemetry]) -> None:
        self._sinks = list(sinks)
        self.num_faults = 0

    def step(self, row: StepRow) -> None:
        self._each(lambda sink: sink.step(row))

    def usage(self, row: UsageRow) -> None:
        self._each(lambda sink: sink.usage(row))

    def delivered(self, event: Delivered) -> None:
        """For the session's `on_delivered`; sinks without such a method pass it over."""
        self._each(lambda sink: getattr(sink, "delivered", lambda event: None)(event))

    def close(self) -> None:
        self._each(lambda sink: sink.close())

    def _each(self, give: Callable[[Telemetry], None]) -> None:
        for sink in self._sinks:
            try:
                give(sink)
            except Exception:
                self.num_faults += 1


class OtelTelemetry:
    """One span a step and a delivery, token counts as metrics. Providers default to the process's own."""

    def __init__(
        self, *, tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:  # fmt: skip
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise UserError("otel is on but OpenTelemetry is not installed; run `pip install 'pmem[otel]'`") from None
        self._tracer = trace.get_tracer("pmem", tracer_provider=tracer_provider)
        meter = metrics.get_meter("pmem", meter_provider=meter_provider)
        opted = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
        latest = "gen_ai_latest_experimental" in [name.strip() for name in opted]
        self._tokens = TOKEN_METRICS["gen_ai_latest_experimental" if latest else "stable"]
        make = meter.create_counter if latest else meter.create_histogram
        names = dict.fromkeys(name for name, _ in self._tokens.values())
        self._instruments: dict[str, Any] = {name: make(name, unit="{token}") for name in names}
        self._with_content = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() == "true"

    def step(self, row: StepRow) -> None:
        """A span that ended now and began `latency_ms` before."""
        end = int(datetime.fromisoformat(row.at).timestamp() * 1e9)
        span = self._tracer.start_span(
            SPAN_STEP, start_time=end - int(row.latency_ms * 1e6), attributes=_attributes(row, STEP_ATTRIBUTES)
        )
        if row.decision in ("error", "timeout", "malformed"):
            span.set_attribute("error.type", f"{row.decision}/{row.reason}")
        span.end(end_time=end)

    def usage(self, row: UsageRow) -> None:
        for field, (name, attributes) in self._tokens.items():
            instrument = self._instruments[name]
            record = instrument.add if hasattr(instrument, "add") else instrument.record
            record(getattr(row, field), {"gen_ai.request.model": row.model, "server.address": row.route, **attributes})

    def delivered(self, event: Delivered) -> None:
        attributes = _attributes(event, DELIVERY_ATTRIBUTES)
        if self._with_content:
            attributes[CONTENT_ATTRIBUTE] = event.text
        self._tracer.start_span(SPAN_DELIVERY, attributes=attributes).end()

    def close(self) -> None:
        """The providers belong to the process."""


class PrometheusTelemetry:
    """Counters of the table in one registry (default: the process's own). Several sessions share them."""

    def __init__(self, *, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise UserError("prometheus is on but its client is not installed; run `pip install 'pmem[prometheus]'`") from None
        self._metrics = _metrics_of(registry or prometheus_client.REGISTRY)

    def step(self, row: StepRow) -> None:
        self._metrics["decisions"].labels(row.tier, row.decision, row.reason).inc()
        if row.decision == "dropped":
            self._metrics["rejections"].labels(row.reason).inc()
        elif row.tier == "llm" and row.latency_ms:
            self._metrics["seconds"].observe(row.latency_ms / 1000)
        for kind, delta in row.bank_delta:
            for op, count in delta:
                if count:
                    self._metrics["bank_ops"].labels(kind, op).inc(count)

    def usage(self, row: UsageRow) -> None:
        self._metrics["tokens"].labels(row.model, "input").inc(row.tokens_in)
        self._metrics["tokens"].labels(row.model, "output").inc(row.tokens_out)

    def delivered(self, event: Delivered) -> None:
        self._metrics["reminders"].labels(event.tier, event.channel).inc()

    def close(self) -> None:
        """The registry belongs to the process."""


_made: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def _metrics_of(registry: "CollectorRegistry") -> dict[str, Any]:
    """The metrics of a registry, made once: a second session must not register them again."""
    from prometheus_client import Counter, Histogram

    if registry not in _made:
        _made[registry] = {
            role: Histogram(name, text, labels, registry=registry, buckets=SECONDS_BUCKETS)
            if role == "seconds"
            else Counter(name, text, labels, registry=registry)
            for role, (name, text, labels) in PROMETHEUS.items()
        }
    return _made[registry]


def _attributes(source: object, table: dict[str, str]) -> dict[str, Any]:
    """Attributes that have a value."""
    found = {name: getattr(source, field) for field, name in table.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value is not None}
