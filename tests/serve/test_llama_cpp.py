"""A real llama.cpp server and the base model as GGUF: the grammar is read and kept, the decision agrees with the embedded route."""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pmem.backend import Request
from pmem.envelope import SPEAK, SPEAK_CLOSE, Malformed, citations, parse_envelope
from pmem.grammar import envelope_grammar, list_grammar, reminder_grammar
from pmem.policy import ModelPolicy
from pmem.prompt import render_messages
from pmem.route import HttpBackend
from pmem.snapshot import BankState
from serve.embedded import EmbeddedBackend
from tests.serve.test_route import wait
from tests.serve.varied import varied

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None, reason="llama.cpp is not installed: xllamacpp of the dev extra"
    ),
]
EMPTY = "<operations>[]</operations>\n"


@pytest.fixture(scope="module")
def model() -> Path:
    from train.base import resolve_base

    return resolve_base()


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base model in bfloat16 behind `/v1`."""
    from train.export import fetch_converter

    folder = tmp_path_factory.mktemp("llama")
    gguf, log = folder / "model.gguf", folder / "server.log"
    script = fetch_converter(Path(".cache/converter"))
    command = [sys.executable, str(script), "--outtype", "bf16", "--outfile", str(gguf), str(model)]
    subprocess.run(command, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with log.open("wb") as out:
        server = subprocess.Popen([sys.executable, "tests/serve/llama_server.py", str(gguf), str(port)], stdout=out, stderr=out)
    try:
        backend = HttpBackend(f"http://127.0.0.1:{port}/v1", "base", kind="llama_cpp")
        wait(lambda: backend.probe().problem is None or server.poll() is not None, seconds=120)
        assert server.poll() is None, log.read_text()[-3000:]
        yield backend.url
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def backend(url: str) -> HttpBackend:
    return HttpBackend(url, "base", concurrency=2)


def test_the_probe_knows_the_server_and_its_slots(backend: HttpBackend) -> None:
    facts = backend.probe()
    assert (facts.kind, facts.problem, facts.limit) == ("llama_cpp", None, 2)
    assert backend.can_score and backend.lacks == ()


def test_probabilities_agree_with_the_embedded_route(backend: HttpBackend, model: Path) -> None:
    backend.probe()
    requests = [Request(messages=render_messages(snapshot), prefix=EMPTY) for snapshot in varied(12)]
    pairs = list(zip(EmbeddedBackend(model).decide(requests), backend.decide(requests), strict=True))
    gaps = [abs(ours.prob_speak - theirs.prob_speak) for ours, theirs in pairs]
    print(f"\nllama.cpp: prob_speak: max |difference| {max(gaps):.4f}, mean {sum(gaps) / len(gaps):.4f}")
    assert max(gaps) < 0.06 and sum(gaps) / len(gaps) < 0.02
    assert all(abs(ours.label_mass - theirs.label_mass) < 0.1 for ours, theirs in pairs)


@pytest.mark.parametrize("grammar", [list_grammar, reminder_grammar, envelope_grammar])
def test_every_grammar_is_accepted_and_kept(grammar: object, backend: HttpBackend) -> None:
    backend.probe()
    snapshots = varied(4, seed=1)
    banks = [snapshot.bank for snapshot in snapshots[:-1]] + [BankState()]
    speaks = grammar is reminder_grammar
    requests = [
        Request(
            messages=render_messages(snapshot.model_copy(update={"bank": bank})), prefix=EMPTY + SPEAK if speaks else "",
            max_tokens=96, grammar=grammar(bank), temperature=1.0, seed=index, stop=(SPEAK_CLOSE,) if speaks else (),  # type: ignore[operator]
        )
        for index, (snapshot, bank) in enumerate(zip(snapshots, banks, strict=True))
    ]  # fmt: skip
    for bank, request, answer in zip(banks, requests, backend.complete(requests), strict=True):
        assert set(citations(answer.text)) <= {entry.id for entry in bank.entries}
        text = request.prefix + answer.text
        whole = answer.finish_reason == "stop"
        assert not (whole and isinstance(parse_envelope(text, finish_reason="stop"), Malformed)), text


def test_a_whole_step_over_it(backend: HttpBackend) -> None:
    backend.probe()
    step = ModelPolicy(backend, grammar=True, min_label_mass=0.0).step(varied(1, seed=4)[0])
    assert step.prob_raw is not None and 0 <= step.prob_raw <= 1 and step.label_mass
