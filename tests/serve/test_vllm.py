"""Real vLLM (the installed build) behind the launcher, base model and adapter: agreement with the embedded route, grammar, faults.

Slow: minutes on two cores. `GRAMMAR_STEPS=1000` samples more reminders, `VANISHING=1000` sends more clients that leave.
"""

import importlib.util
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from pmem.backend import Request, RouteError
from pmem.connect import open_session
from pmem.envelope import SPEAK, SPEAK_CLOSE, Malformed, citations, parse_envelope
from pmem.grammar import list_grammar, reminder_grammar
from pmem.prompt import render_messages
from pmem.route import HttpBackend
from pmem.session import MemorySession
from pmem.settings import RouteSettings, Settings
from pmem.telemetry import Ledger
from serve.command import names_of, server_command
from serve.embedded import EmbeddedBackend
from serve.route import Launcher, _with_port
from serve.route_config import RouteConfig
from serve.server_process import group_members
from serve.vllm_build import find_build, known_flags
from tests.serve.test_route import wait
from tests.serve.varied import varied

CPU_FLAGS = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "avx512f" not in CPU_FLAGS and not Path("/dev/nvidiactl").exists(),
        reason="vLLM's CPU build for bfloat16 wants AVX-512; this machine has neither that nor a GPU",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM is not installed; install pmem[serve-cpu] to run against a real server",
    ),
]
EMPTY = "<operations>[]</operations>\n"
GRAMMAR_STEPS = int(os.environ.get("GRAMMAR_STEPS", "200"))
VANISHING = int(os.environ.get("VANISHING", "60"))
LIMIT = 8
COMMITTED = sorted(Path("docs/results").glob("**/adapter_config.json"))
HOST_CALL_S = 0.5
"""A memory call of the host returns within this while the engine dies; a step takes longer."""


@pytest.fixture(scope="module")
def model() -> Path:
    from train.base import resolve_base

    return resolve_base()


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adapter of the committed results, else a random one of rank 4."""
    if COMMITTED:
        return COMMITTED[0].parent
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(5)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("adapter")
    get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype="bfloat16"), config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def route(model: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    folder = tmp_path_factory.mktemp("route")
    config = RouteConfig(
        model=model, adapters=(adapter,), port=0, limit=LIMIT, client_share=1.0, facts_file=folder / "facts.json",
        log_file=folder / "server.log",
    )  # fmt: skip
    config = _with_port(config)
    build, names = find_build(), names_of(config)
    of = Launcher(config, build, names, server_command(config, build, names, known_flags(build, cache=folder)))
    thread = threading.Thread(target=of.run)
    thread.start()
    try:
        wait(lambda: of.ready.is_set() or not thread.is_alive(), seconds=600)
        assert of.ready.is_set(), (folder / "server.log").read_text()[-3000:]
        yield of
    finally:
        of.stopping.set()
        thread.join(timeout=60)


def backend(of: Launcher, model: str | None = None) -> HttpBackend:
    target = of._target
    return HttpBackend(target.url, model or target.model, kind="vllm", concurrency=LIMIT, **target.decision)


def session(of: Launcher, state: Path, ledger: Ledger) -> MemorySession:
    """A runtime whose dedicated route is this one."""
    route = RouteSettings(url=of._target.url, model=of._target.model, kind="vllm", grammar=True, **of._target.decision)
    return open_session(
        Settings(route=route, cadence_tool_calls=1, state_dir=state, data_dir=state, telemetry=False), also=ledger
    )


@pytest.fixture(scope="module")
def embedded(model: Path) -> EmbeddedBackend:
    return EmbeddedBackend(model)


def test_probabilities_agree_with_the_embedded_route(route: Launcher, embedded: EmbeddedBackend) -> None:
    """bfloat16 on both sides, another order of additions: the tolerance is what two batch shapes of one engine differ by."""
    agree(embedded, backend(route), "base")


def test_an_adapter_answers_as_its_merged_model_does(route: Launcher, model: Path, adapter: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model, dtype="bfloat16"), adapter).merge_and_unload()
    merged.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path)
    agree(EmbeddedBackend(tmp_path), backend(route, route.names.adapters[0][0]), "adapter")


def agree(ours: EmbeddedBackend, theirs: HttpBackend, name: str) -> None:
    """The same decisions are read on both sides."""
    requests = [Request(messages=render_messages(snapshot), prefix=EMPTY) for snapshot in varied(20)]
    pairs = list(zip(ours.decide(requests), theirs.decide(requests), strict=True))
    assert all(a.tokens_in == b.tokens_in for a, b in pairs), "the same tokens on both sides"
    gaps = [abs(a.prob_speak - b.prob_speak) for a, b in pairs]
    print(f"\n{name}: prob_speak: max |difference| {max(gaps):.4f}, mean {sum(gaps) / len(gaps):.4f}")
    mass = max(abs(a.label_mass - b.label_mass) for a, b in pairs)
    assert max(gaps) < 0.06 and sum(gaps) / len(gaps) < 0.02 and mass < 0.1


def test_lists_under_the_grammar_are_well_formed(route: Launcher) -> None:
    snapshots = varied(16, seed=1)
    requests = [
        Request(
            messages=render_messages(snapshot), max_tokens=384, grammar=list_grammar(snapshot.bank), temperature=1.0, seed=index,
        )
        for index, snapshot in enumerate(snapshots)
    ]  # fmt: skip
    for answer in backend(route).complete(requests):
        envelope = parse_envelope(answer.text, finish_reason=answer.finish_reason)
        assert answer.finish_reason == "length" or not isinstance(envelope, Malformed), answer.text


def test_without_a_grammar_any_answer_is_read(route: Launcher) -> None:
    requests = [Request(messages=render_messages(snapshot), max_tokens=40) for snapshot in varied(8, seed=2)]
    for answer in backend(route).complete(requests):
        parse_envelope(answer.text, finish_reason=answer.finish_reason)


def test_citations_name_only_what_is_there(route: Launcher) -> None:
    snapshots = varied(GRAMMAR_STEPS, seed=3)
    requests = [
        Request(
            messages=render_messages(snapshot), prefix=EMPTY + SPEAK, max_tokens=48, stop=(SPEAK_CLOSE,),
            grammar=reminder_grammar(snapshot.bank), temperature=1.0, seed=index,
        )
        for index, snapshot in enumerate(snapshots)
    ]  # fmt: skip
    answers = backend(route).complete(requests)
    cited = [set(citations(answer.text)) for answer in answers]
    unknown = [ids - {entry.id for entry in snapshot.bank.entries} for ids, snapshot in zip(cited, snapshots, strict=True)]
    whole = sum(answer.finish_reason == "stop" for answer in answers)
    print(f"\n{len(answers)} reminders, {whole} whole, {sum(map(bool, cited))} with citations, {sum(map(bool, unknown))} unknown")
    assert not any(unknown)
    assert all(ids for ids, answer in zip(cited, answers, strict=True) if answer.finish_reason == "stop")


def test_clients_that_vanish_leave_no_slot_behind(route: Launcher) -> None:
    place = urlsplit(route._target.url)
    body = {"model": route._target.model, "messages": [{"role": "user", "content": "Count to 500."}], "max_tokens": 400}
    raw = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    for _ in range(VANISHING):
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=5) as client:
            client.sendall(head.encode() + raw)
            time.sleep(0.02)
    root = route._target.url.removesuffix("/v1")
    wait(lambda: httpx.get(root + "/capacity").json()["in_flight"] == 0, seconds=30)
    metrics = httpx.get(root + "/metrics/").text
    assert "vllm:num_requests_running" in metrics and "pmem_route_limit" in metrics
    running = [line.split()[-1] for line in metrics.splitlines() if line.startswith("vllm:num_requests_running{")]
    assert all(float(value) == 0 for value in running)


def observed(memory: MemorySession, command: str) -> float:
    """One tool of the agent and the boundary after it; the longest time that a call of the host took, in seconds."""
    marks = [time.perf_counter()]
    memory.on_agent_text("Next: build the report.")
    marks.append(time.perf_counter())
    memory.on_tool_result(tool="bash", args={"command": command}, text="report.csv")
    marks.append(time.perf_counter())
    memory.on_batch_end()
    memory.evaluate()
    marks.append(time.perf_counter())
    return max(late - early for early, late in itertools.pairwise(marks))


def test_an_engine_killed_under_load_comes_back(route: Launcher, tmp_path: Path) -> None:
    """The runtime books an error and holds no turn; the launcher starts the server anew; the next step is answered."""
    facts = route.config.facts_file
    assert facts is not None
    pid = json.loads(facts.read_text())["pid"]
    client, ledger = backend(route), Ledger()
    memory = session(route, tmp_path, ledger)
    memory.on_user_message("Build the report as JSON.")
    memory.on_turn_start()
    waited = [observed(memory, "ls")]
    request = Request(messages=render_messages(varied(1)[0]), max_tokens=300)
    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(client.complete, [request], deadline=time.monotonic() + 60) for _ in range(4)]
        time.sleep(1)
        for child in group_members(pid):
            if child != pid:
                os.kill(child, signal.SIGKILL)
        waited += [observed(memory, f"ls {index}") for index in range(20)]
        failures = [future.exception() for future in busy]
    wait(lambda: not memory.inspect()["in_flight"], seconds=90)
    print(f"\nkilled: {[row.reason for row in ledger.steps]}; longest call of the host {max(waited) * 1000:.0f} ms")
    assert "error" in {row.decision for row in ledger.steps} and max(waited) < HOST_CALL_S
    assert all(isinstance(failure, RouteError) for failure in failures), failures
    wait(lambda: facts.exists() and json.loads(facts.read_text())["pid"] != pid, seconds=600)
    assert client.complete([Request(messages=request.messages, max_tokens=2)])[0].tokens_out > 0
    time.sleep(5.5)  # what the runtime found out about a route that is down holds for 5 s
    num_rows = len(ledger.steps)
    observed(memory, "ls again")
    wait(lambda: len(ledger.steps) > num_rows and not memory.inspect()["in_flight"], seconds=90)
    assert ledger.steps[-1].decision != "error", ledger.steps[-1]
    assert group_members(pid) == []
