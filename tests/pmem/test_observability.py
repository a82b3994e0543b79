"""Spans and counters with the real libraries: the names of the table, no text unless asked for."""

from pathlib import Path

import pytest

from pmem.connect import open_session
from pmem.delivery import Delivered
from pmem.envelope import Operation
from pmem.observability import STEP_ATTRIBUTES, Fanout, OtelTelemetry, PrometheusTelemetry
from pmem.settings import Settings
from pmem.telemetry import StepRow, UsageRow, timestamp
from tests.pmem.hosts import Host
from tests.pmem.policies import PlayedPolicy, says

ROW = StepRow.model_validate({
    "at": timestamp(1000.0), "triggers": ["interval"], "tier": "llm", "decision": "error", "reason": "overloaded",
    "latency_ms": 250.0, "tokens_in": 9, "tokens_out": 1, "tokens_total": 10, "model": "m", "route": "r",
    "bank_delta": {"knowledge": {"added": 2}},
})  # fmt: skip
BILL = UsageRow(at=timestamp(1000.0), route="r", model="m", tokens_in=9, tokens_out=1, cached_tokens=4, outcome="x")
EVENT = Delivered(step_id="s-1", tier="llm", entry_ids=("tm-k-1",), text="Write JSON [tm-k-1]", channel="reminder")


def otel(**environ: str):  # type: ignore[no-untyped-def]
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    sink = OtelTelemetry(tracer_provider=tracers, meter_provider=MeterProvider([reader]), environ=environ)
    return sink, spans, reader


def metrics(reader) -> dict[str, list]:  # type: ignore[no-untyped-def,type-arg]
    data = reader.get_metrics_data()
    found = [metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics]
    return {metric.name: list(metric.data.data_points) for metric in found}


def test_a_step_is_a_span_with_the_tables_names() -> None:
    sink, spans, _ = otel()
    sink.step(ROW)
    (span,) = spans.get_finished_spans()
    assert span.name == "pmem.step" and span.end_time - span.start_time == 250_000_000
    assert set(span.attributes) <= set(STEP_ATTRIBUTES.values()) | {"error.type"}
    assert span.attributes["pmem.decision"] == "error" and span.attributes["gen_ai.usage.input_tokens"] == 9
    assert span.attributes["error.type"] == "error/overloaded" and span.attributes["pmem.boundary"] == ("interval",)


def test_content_is_off_unless_asked_for() -> None:
    for environ, shown in (({}, False), ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}, True)):
        sink, spans, _ = otel(**environ)
        sink.delivered(EVENT)
        (span,) = spans.get_finished_spans()
        assert ("Write JSON" in str(dict(span.attributes))) is shown
        assert span.attributes["pmem.cited_ids"] == ("tm-k-1",)


def test_token_metrics_follow_the_opt_in() -> None:
    sink, _, reader = otel()
    sink.usage(BILL)
    points = metrics(reader)["gen_ai.client.token.usage"]
    assert sorted(point.sum for point in points) == [1, 9]
    sink, _, reader = otel(OTEL_SEMCONV_STABILITY_OPT_IN="http,gen_ai_latest_experimental")
    sink.usage(BILL)
    found = {name: points[0].value for name, points in metrics(reader).items()}
    assert found == {
        "gen_ai.client.inference.usage.input_tokens": 9,
        "gen_ai.client.inference.usage.output_tokens": 1,
        "gen_ai.client.inference.usage.cache_read.input_tokens": 4,
    }


def test_prometheus_counts() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    for sink in (PrometheusTelemetry(registry=registry), PrometheusTelemetry(registry=registry)):
        sink.step(ROW)
        sink.step(ROW.model_copy(update={"decision": "dropped", "reason": "endpoint_busy"}))
        sink.usage(BILL)
        sink.delivered(EVENT)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)  # type: ignore[no-any-return]

    assert value("pmem_decisions_total", tier="llm", decision="error", reason="overloaded") == 2
    assert value("pmem_queue_rejections_total", reason="endpoint_busy") == 2
    assert value("pmem_memory_model_tokens_total", model="m", direction="input") == 18
    assert value("pmem_reminders_total", tier="llm", channel="reminder") == 2
    assert value("pmem_bank_ops_total", kind="knowledge", op="added") == 8
    assert value("pmem_decision_seconds_count") == 2


class Broken:
    def step(self, row: StepRow) -> None:
        raise RuntimeError("exporter is gone")

    usage = delivered = step  # type: ignore[assignment]

    def close(self) -> None:
        raise RuntimeError("exporter is gone")


def test_a_broken_exporter_is_never_felt() -> None:
    fanout = Fanout([Broken()])  # type: ignore[list-item]
    host = Host(PlayedPolicy(says("JSON [tm-k-1]")), ledger=fanout)
    host.session.apply_operations([Operation("save_knowledge", "JSON.")])
    host.ask()
    host.step()
    assert host.call_model() is not None
    fanout.close()
    assert host.session.num_faults == 0 and fanout.num_faults >= 3


def test_settings_turn_them_on(tmp_path: Path) -> None:
    client = pytest.importorskip("prometheus_client")
    heard: list[Delivered] = []
    session = open_session(Settings(prometheus=True, telemetry=False, state_dir=tmp_path), on_delivered=heard.append)

    def count() -> float:
        labels = {"tier": "rules", "channel": "annotation"}
        return client.REGISTRY.get_sample_value("pmem_reminders_total", labels) or 0.0

    before = count()
    for _ in range(2):
        session.on_tool_result(tool="bash", args={"command": "make"}, text="error: x", is_error=True)
    assert len(heard) == 1 and count() == before + 1 and session.num_faults == 0
