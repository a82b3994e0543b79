"""The HTTP backend against a real local server: each dialect, decisions from raw log-probabilities, refusals, deadlines."""

import math
import time
from typing import Any

import pytest

from pmem.backend import Request, RouteError
from pmem.envelope import SPEAK
from pmem.policy import ModelPolicy
from pmem.route import HttpBackend
from pmem.route_dialects import DIALECTS, answer_remainders, kind_of_listing, output_budget, read_decision
from pmem.snapshot import BankState, Entry, Snapshot
from tests.pmem.fake_server import Cut, Drip, FakeServer, Hang, Json, Raw, Read, Reply, Say, Seen, Status

EMPTY = "<operations>[]</operations>"
MESSAGES = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
IDS = {"speak": [11, 12], "silent": [21]}


def request(**changes: Any) -> Request:
    return Request(messages=MESSAGES, step_id="step-1", **changes)


def backend(server: FakeServer, kind: str = "vllm", **options: Any) -> HttpBackend:
    return HttpBackend(server.url, "memory", kind=kind, **options)


def snapshot() -> Snapshot:
    entry = Entry(id="tm-k-1", kind="knowledge", content="Output must be JSON.", created=1, touched=1)
    return Snapshot(task_messages=("t",), window=(), bank=BankState(entries=(entry,), next_number=2))


def test_a_vllm_list_request() -> None:
    with FakeServer(
        Say(EMPTY, usage={"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 32}})
    ) as server:
        asked = request(stop=("</operations>",), grammar='root ::= "x"', max_tokens=64, seed=5)
        (answer,) = backend(server).complete([asked], deadline=time.monotonic() + 5)
        seen = server.requests[0]
    assert (answer.text, answer.finish_reason, answer.tokens_in, answer.tokens_out, answer.cached_tokens) == (
        EMPTY,
        "stop",
        50,
        5,
        32,
    )
    assert seen.path == "/v1/chat/completions" and answer.latency_ms > 0 and answer.model == "memory"
    assert seen.json == {
        "model": "memory",
        "messages": list(MESSAGES),
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 5,
        "stop": ["</operations>"],
        "include_stop_str_in_output": True,
        "structured_outputs": {"grammar": 'root ::= "x"'},
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_headers_name_step_client_and_time_left() -> None:
    with FakeServer(Say(EMPTY)) as server:
        backend(server, client="session-9", api_key="k3y").complete([request()], deadline=time.monotonic() + 5)
        headers = server.requests[0].headers
    assert (headers["x-pmem-step"], headers["x-pmem-client"], headers["authorization"]) == ("step-1", "session-9", "Bearer k3y")
    assert 4000 < int(headers["x-pmem-deadline-ms"]) <= 5000


def test_without_a_key_no_authorization_is_sent() -> None:
    with FakeServer(Say(EMPTY)) as server:
        backend(server).complete([request()])
        assert "authorization" not in server.requests[0].headers and "x-pmem-deadline-ms" not in server.requests[0].headers


def test_a_prefix_is_continued() -> None:
    with FakeServer(Say("text [tm-k-1]</context_for_action>")) as server:
        backend(server).complete([request(prefix=f"{EMPTY}\n{SPEAK}", stop=("</context_for_action>",))])
        body = server.requests[0].json
    assert body["messages"][-1] == {"role": "assistant", "content": f"{EMPTY}\n{SPEAK}"}
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False


def test_a_stop_string_that_the_server_left_out_is_put_back() -> None:
    with FakeServer(Say("<operations>[]", extra={"stop_reason": "</operations>"})) as server:
        (answer,) = backend(server).complete([request(stop=("</operations>",))])
    assert answer.text == EMPTY


def test_the_decision_is_read_by_token_ids_where_the_server_takes_them() -> None:
    logprobs = {
        "token_id:11": math.log(0.5),
        "token_id:12": math.log(0.2),
        "token_id:21": math.log(0.28),
        "token_id:99": math.log(0.02),
    }
    with FakeServer(Read(logprobs)) as server:
        (read,) = backend(server, decision_token_ids=IDS).decide([request(prefix=EMPTY + "\n")])
        body = server.requests[0].json
    assert read.prob_speak == pytest.approx(0.7 / 0.98) and read.label_mass == pytest.approx(0.98)
    assert body["logprob_token_ids"] == [11, 12, 21] and body["return_tokens_as_token_ids"] and body["logprobs"] is True
    assert body["max_tokens"] == 1 and body["messages"][-1]["content"] == EMPTY + "\n<" and "top_logprobs" not in body


def test_the_decision_is_read_by_token_text_otherwise() -> None:
    logprobs = {
        "context": math.log(0.5),
        "con": math.log(0.1),
        "no": math.log(0.3),
        "no_intervention/>\n": math.log(0.05),
        "x": math.log(0.05),
    }
    with FakeServer(Read(logprobs)) as server:
        (read,) = backend(server).decide([request(prefix=EMPTY + "\n")])
        body = server.requests[0].json
    assert read.prob_speak == pytest.approx(0.6 / 0.95) and read.label_mass == pytest.approx(0.95)
    assert body["top_logprobs"] == 20 and "logprob_token_ids" not in body and read.tokens_in == 100


@pytest.mark.parametrize(
    ("prefix", "tokens", "speak", "mass"),
    [
        ("\n<", {"context": 0.9, "no": 0.1}, 0.9, 1.0),
        ("\n", {"<context": 0.6, "<no": 0.2, "<": 0.2}, 0.75, 0.8),  # "<" begins both, so it decides nothing
        ("\n<", {"c": 0.4, "context_for_action>now": 0.2, "n": 0.2, "now": 0.2}, 0.75, 0.8),
        ("\n<", {"operations": 1.0}, 0.0, 0.0),
    ],
)
def test_which_tokens_begin_an_answer(prefix: str, tokens: dict[str, float], speak: float, mass: float) -> None:
    top = [{"token": text, "logprob": math.log(prob)} for text, prob in tokens.items()]
    value = {"choices": [{"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}
    read = read_decision(value, token_ids=None, remainders=answer_remainders(prefix))
    assert (read.prob_speak, read.label_mass) == (pytest.approx(speak), pytest.approx(mass))


def test_a_decision_prefix_of_one_answer_only_is_refused() -> None:
    for prefix in ("\n<context", "", "x"):
        with pytest.raises(RouteError, match="decision_prefix"):
            answer_remainders(prefix)


@pytest.mark.parametrize("logprobs", [None, {}, {"content": []}, {"content": None}, {"content": [3]}])
def test_a_server_without_log_probabilities_is_told_apart(logprobs: Any) -> None:
    with FakeServer(Say("context", extra={"logprobs": logprobs})) as server, pytest.raises(RouteError, match="log-probabilities"):
        backend(server).decide([request(prefix=EMPTY + "\n")])


def test_not_a_number_is_no_mass() -> None:
    place = b'{"token":"no","logprob":NaN,"top_logprobs":[{"token":"context","logprob":-Infinity}]}'
    body = b'{"choices":[{"logprobs":{"content":[' + place + b"]}}]}"
    with FakeServer(Raw(body)) as server:
        (read,) = backend(server).decide([request(prefix=EMPTY + "\n")])
    assert (read.prob_speak, read.label_mass) == (0.0, 0.0)


def llama(seen: Seen) -> Json:
    if seen.path == "/apply-template":
        return Json({"prompt": "<s>templated"})
    if "n_probs" in seen.json:
        top = [{"id": 5, "token": "context", "logprob": math.log(0.8)}, {"id": 6, "token": "no", "logprob": math.log(0.19)}]
        return Json(
            {
                "content": "context",
                "stop_type": "limit",
                "tokens_evaluated": 40,
                "completion_probabilities": [{**top[0], "top_logprobs": top}],
            }
        )
    stopped = {
        "stop_type": "word",
        "stopping_word": "</operations>",
        "tokens_evaluated": 40,
        "tokens_predicted": 6,
        "tokens_cached": 30,
    }
    return Json({"content": "<operations>[]", **stopped})


def test_llama_cpp_renders_with_the_servers_own_template_and_goes_on_from_the_prefix() -> None:
    with FakeServer(llama) as server:
        route = backend(server, "llama_cpp")
        (answer,) = route.complete([request(stop=("</operations>",), grammar="root ::= x", max_tokens=64)])
        (read,) = route.decide([request(prefix=EMPTY + "\n")])
        template, first, _, second = (seen.json for seen in server.requests)
    assert (answer.text, answer.finish_reason, answer.tokens_in, answer.cached_tokens) == (EMPTY, "stop", 40, 30)
    assert template == {"messages": list(MESSAGES), "chat_template_kwargs": {"enable_thinking": False}}
    assert (first["prompt"], first["grammar"], first["n_predict"]) == ("<s>templated", "root ::= x", 64)
    assert second["prompt"] == "<s>templated" + EMPTY + "\n<" and second["n_probs"] == 20 and second["n_predict"] == 1
    assert read.prob_speak == pytest.approx(0.8 / 0.99) and read.label_mass == pytest.approx(0.99) and read.tokens_in == 40


def test_a_whole_step_over_http_makes_three_requests_on_one_step_id() -> None:
    script: tuple[Reply, ...] = (
        Say(EMPTY),
        Read({"context": math.log(0.97), "no": math.log(0.03)}),
        Say("Use JSON [tm-k-1]</context_for_action>"),
    )
    with FakeServer(*script) as server:
        result = ModelPolicy(backend(server)).step(snapshot())
        assert len(server.requests) == 3 and len({seen.headers["x-pmem-step"] for seen in server.requests}) == 1
    assert (result.decision, result.reminder, result.prob_raw) == ("injected", "Use JSON [tm-k-1]", pytest.approx(0.97))
    assert (result.tokens_in, result.tokens_out) == (300, 14)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Status(429, {"retry-after": "1"}), "overloaded"),
        (Status(503), "overloaded"),
        (Status(400), "client_error"),
        (Status(401), "client_error"),
        (Status(500), "client_error"),
        (Status(302, {"location": "http://127.0.0.1:9/"}), "client_error"),
        (Cut(), "client_error"),
        (Raw(b"<html>no</html>"), "client_error"),
        (Raw(b"[" * 100_000), "client_error"),
        (Json({"error": {"message": "x"}}), "client_error"),
        (Json({"choices": []}), "client_error"),
        (Json([1]), "client_error"),
        (Say(None), "unparseable"),
        (Json({"choices": [{"message": {"content": None, "reasoning": "<operations>[]</operations>"}}]}), "unparseable"),
        (Say("<operations>[", finish_reason="length"), "truncated"),
        (Hang(), "timed_out"),
        (Drip(), "timed_out"),
        (Drip(headers=True), "timed_out"),
        (Say(EMPTY, wait_s=8.0), "timed_out"),
    ],
)
def test_what_a_server_may_do_and_what_it_counts_as(reply: Reply, reason: str) -> None:
    with FakeServer(reply) as server:
        started = time.monotonic()
        result = ModelPolicy(backend(server), timeout_ms=300 if reason == "timed_out" else 20_000).step(snapshot())
        assert result.reason == reason and (reason != "timed_out" or time.monotonic() - started < 2)
        assert len(server.requests) == 1, "nothing is ever retried"
    assert result.bank_after == snapshot().bank


def test_a_dead_server_is_a_client_error() -> None:
    server = FakeServer(Say(EMPTY))
    with server:
        url = server.url
    result = ModelPolicy(HttpBackend(url, "memory", kind="vllm")).step(snapshot())
    assert result.reason == "client_error"


def test_one_failing_step_of_a_batch_fails_alone() -> None:
    def answer(seen: Seen) -> Reply:
        if "fail" in seen.json["messages"][1]["content"]:
            return Status(503)
        return Read({"no": -0.01, "context": -5.0}) if "logprobs" in seen.json else Say(EMPTY)

    good, bad = snapshot(), snapshot().model_copy(update={"task_messages": ("fail",)})
    with FakeServer(answer) as server:
        results = ModelPolicy(backend(server, concurrency=4)).step_many([good, bad] * 8)
        assert server.most_in_flight <= 4
    assert [result.reason for result in results] == ["model_silent", "overloaded"] * 8


def test_evaluation_waits_for_a_place_on_a_full_route_and_the_runtime_does_not() -> None:
    with FakeServer(Status(429), Status(503), Say("rubbish")) as server:
        assert ModelPolicy(backend(server), timeout_ms=None).step_many([snapshot()])[0].reason == "unparseable"
        assert len(server.requests) == 3
        server.play(Status(429))
        assert ModelPolicy(backend(server)).step(snapshot()).reason == "overloaded"
        assert len(server.requests) == 4


def test_a_server_of_ours_hears_when_a_step_needs_its_place_no_more() -> None:
    def paths(server: FakeServer) -> list[tuple[str, str | None]]:
        return [(seen.path.removeprefix("/v1"), seen.headers.get("x-pmem-last")) for seen in server.requests]

    quiet, loud = Read({"no": -0.01, "context": -5.0}), Read({"context": -0.01, "no": -5.0})
    with FakeServer(Say(EMPTY), quiet, Json({"done": True})) as server:
        server.gets["/capacity"] = Json({"limit": 2})
        route = backend(server)
        assert route.probe().limit == 2 == route.concurrency
        ModelPolicy(route).step(snapshot())
        chat = "/chat/completions"
        assert paths(server) == [(chat, None), (chat, None), ("/capacity/done", None)]
        assert server.requests[2].headers["x-pmem-step"] == server.requests[0].headers["x-pmem-step"]
        server.requests.clear()
        server.play(Say(EMPTY), loud, Say("Use JSON [tm-k-1]</context_for_action>"))
        assert ModelPolicy(route).step(snapshot()).speaks
        assert paths(server) == [(chat, None), (chat, None), (chat, "1")]
        server.requests.clear()
        server.play(Say(EMPTY), quiet)
        ModelPolicy(backend(server)).step(snapshot())
        assert paths(server) == [(chat, None), (chat, None)], "a server that never said so keeps no places"


def test_samples_over_http_take_their_turns() -> None:
    def answer(seen: Seen) -> Reply:
        if "logprobs" in seen.json:
            return Read({"context": math.log(0.5), "no": math.log(0.5)})
        return Say("Use JSON [tm-k-1]</context_for_action>" if seen.json["messages"][-1]["role"] == "assistant" else EMPTY)

    with FakeServer(answer) as server:
        results = ModelPolicy(backend(server, concurrency=2), timeout_ms=None).sample_many([snapshot()] * 3, num_samples=6)
        assert server.most_in_flight <= 2
    assert [len(samples) for samples in results] == [6, 6, 6]
    assert {result.reason for samples in results for result in samples} == {"intervened", "model_silent"}


def test_when_idle_waits_for_the_end_of_the_transport() -> None:
    called: list[float] = []
    with FakeServer(Say(EMPTY), Say(EMPTY, wait_s=0.2)) as server:
        route = backend(server)
        route.complete([request()])
        route.when_idle("step-1", lambda: called.append(0))
        assert called == [0], "nothing under way: at once"
        with pytest.raises(TimeoutError):
            route.complete([request()], deadline=time.monotonic() + 0.05)
        route.when_idle("step-1", lambda: called.append(1))
        until = time.monotonic() + 1
        while len(called) < 2 and time.monotonic() < until:
            time.sleep(0.005)
        assert called == [0, 1]


@pytest.mark.parametrize("kind", ["ollama", "lmstudio", "gateway", "openai"])
def test_plain_chat_endpoints_say_what_they_cannot_give(kind: str) -> None:
    with FakeServer(Say(f"{EMPTY}\n<no_intervention/>")) as server:
        route = backend(server, kind)
        assert not route.can_score and any("completion mode" in sentence for sentence in route.lacks)
        assert ModelPolicy(route, mode="completion").step(snapshot()).reason == "model_silent"
        body = server.requests[0].json
        assert not {"structured_outputs", "grammar", "ebnf", "continue_final_message", "logprobs"} & set(body)
        assert body.get("reasoning_effort") == (None if kind in {"gateway", "openai"} else "none")
        assert "chat_template_kwargs" not in body
        with pytest.raises(RouteError, match="cannot read the decision"):
            route.decide([request(prefix=EMPTY + "\n")])
        with pytest.raises(RouteError, match="cannot go on"):
            route.complete([request(prefix=EMPTY)])


def test_sglang_takes_its_own_field_names() -> None:
    with FakeServer(Say(EMPTY)) as server:
        backend(server, "sglang").complete([request(stop=("</operations>",), grammar="root ::= x")])
        body = server.requests[0].json
    assert body["ebnf"] == "root ::= x" and body["no_stop_trim"] is True and DIALECTS["sglang"].can_score


@pytest.mark.parametrize(
    ("owner", "kind"),
    [("vllm", "vllm"), ("sglang", "sglang"), ("llamacpp", "llama_cpp"), ("library", "ollama"), ("organization_owner", "lmstudio"),
     ("system", "gateway")],
)  # fmt: skip
def test_the_first_probe_finds_out_the_kind(owner: str, kind: str) -> None:
    with FakeServer(Say(EMPTY)) as server:
        server.gets["/v1/models"] = Json({"data": [{"id": "memory", "owned_by": owner}]})
        route = backend(server, "auto")
        assert route.dialect.kind == "gateway", "nothing is assumed before"
        facts = route.probe()
        assert facts.kind == kind == route.dialect.kind and facts.problem is None
    assert kind_of_listing({"data": [3, {}]}) == "gateway"


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (Status(503), "loading"),
        (Json({"data": [{"id": "other", "owned_by": "vllm"}]}), "does not serve memory"),
        (Hang(), "does not answer"),
        (Status(404), None),
        (Raw(b"rubbish"), None),
        (Json({"data": "x"}), None),
    ],
)
def test_what_a_probe_holds_against_a_route(listing: Reply, problem: str | None) -> None:
    with FakeServer(Say(EMPTY)) as server:
        server.gets["/v1/models"] = listing
        facts = backend(server).probe(deadline=time.monotonic() + (0.3 if isinstance(listing, Hang) else 20))
    assert (facts.problem is None) == (problem is None) and (problem or "") in (facts.problem or "")


def test_an_answer_takes_at_most_half_of_the_context_that_the_server_states() -> None:
    with FakeServer(Say(EMPTY), Say(EMPTY)) as server:
        server.gets["/v1/models"] = Json({"data": [{"id": "memory", "owned_by": "vllm", "max_model_len": 2048}]})
        route = backend(server)
        route.probe()
        route.complete([request(max_tokens=2000)])
        route.complete([request(max_tokens=96)])
        assert [asked.json["max_tokens"] for asked in server.requests if asked.json] == [1024, 96]


def test_a_probe_reads_our_capacity_and_the_slots_of_llama_cpp() -> None:
    with FakeServer(Say(EMPTY)) as server:
        server.gets["/capacity"] = Json(
            {"limit": 4, "in_flight": 0, "refused_total": 0, "model_hash": "m" * 64, "prompt_version": "p" * 16}
        )
        server.gets["/props"] = Json({"total_slots": 2})
        facts = backend(server).probe()
        assert (facts.limit, facts.model_hash, facts.prompt_version) == (4, "m" * 64, "p" * 16)
        assert backend(server, "llama_cpp").probe().limit == 2


def test_an_always_thinking_model_gets_room() -> None:
    assert output_budget(2000) == 2000
    assert output_budget(2000, always_thinking=True) == 4000 and output_budget(3000, always_thinking=True) == 6000
    assert output_budget(2000, always_thinking=True, cap=3000) == 3000 and output_budget(2000, cap=500) == 500


def test_text_that_is_not_utf_8_is_sent_and_read() -> None:
    with FakeServer(Say("lone \ud800 half")) as server:
        (answer,) = backend(server).complete([Request(messages=({"role": "user", "content": "a \udc00 b"},))])
        assert server.requests[0].json["messages"][0]["content"] == "a \udc00 b" and "lone" in answer.text
