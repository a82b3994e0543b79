"""Every kind of secret, told to a session at every place where text comes in, is seen at none where text is kept, sent or said."""

import pytest

from pmem.envelope import Operation
from pmem.handoff import handoff_of, render_handoff
from pmem.observability import Fanout, OtelTelemetry
from pmem.prompt import render_messages
from pmem.telemetry import Ledger
from tests.pmem.hosts import Host
from tests.pmem.policies import PlayedPolicy, says
from tests.pmem.test_redaction import LOOK_ALIKES, SECRETS


def everything(text: str) -> dict[str, str]:
    """Place -> what stands there after `text` was told as task, plan, arguments, results, bank writes and reminder."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, tracers = InMemorySpanExporter(), sdk.TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    sink = OtelTelemetry(tracer_provider=tracers, environ={"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"})
    policy = PlayedPolicy(says(f"Mind [tm-k-1]\n{text}", operations=[Operation("save_procedural", f"of the model: {text}")]))
    ledger = Ledger()
    host = Host(policy, ledger=Fanout([ledger, sink]))
    host.session._on_delivered = lambda event: (host.delivered.append(event), sink.delivered(event))[0]
    host.session.apply_operations([Operation("save_knowledge", f"known {text}")])
    host.ask(f"do it with\n{text}\nplease")
    host.session.on_user_message(f"and also {text}")
    host.session.on_agent_text(f"Now I use\n{text}\nNext: the tests.")
    host.run(f"run {text}", f"result\n{text}\nend")
    notes = [host.run(f"fail {text}", f"error: cannot\n{text}\n", error=True) for _ in range(2)]
    host.session.on_batch_end()
    host.session.on_turn_end()
    host.session.on_turn_start()
    host.session.on_loop_signal()
    host.session.evaluate()
    host.settled()
    host.call_model()
    host.session.on_compaction()
    host.session.on_turn_start()
    host.session.on_batch_end()
    restored = host.session.peek()
    snapshot = host.session._plane.take_snapshot()
    return {
        "bank": host.session.bank.state().model_dump_json(),
        "window": str(host.session.window()),
        "prompt": str([render_messages(seen) for seen in (*policy.seen, snapshot)]),
        "inspect": str(host.session.inspect()),
        "rows": str([row.model_dump_json() for row in (*ledger.steps, *ledger.usages)]),
        "reminders": str([event.text for event in host.delivered]) + str(restored),
        "annotations": str(notes),
        "spans": str([(span.name, dict(span.attributes or {})) for span in spans.get_finished_spans()]),
        "handoff": render_handoff(handoff_of(host.session.bank.state(), "s")),
    }


@pytest.mark.parametrize("text, gone", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_seen_nowhere(text: str, gone: str) -> None:
    found = everything(text)
    assert [place for place, shown in found.items() if gone in shown] == []
    assert "redacted" in found["bank"] and "redacted" in found["prompt"] and "redacted" in found["reminders"]


WORDS = [text for text in LOOK_ALIKES if not set('"\n') & set(text) and text.strip() == text and "redacted" not in text]


@pytest.mark.parametrize("text", WORDS)
def test_a_look_alike_is_left_alone_everywhere(text: str) -> None:
    found = everything(text)
    assert [place for place, shown in found.items() if "[redacted" in shown] == []
