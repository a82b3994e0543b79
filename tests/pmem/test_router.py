"""Which route serves a step: dedicated, chat instead, chat after it, or nobody; places are held until the transport has ended."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmem.capacity import endpoint_at
from pmem.errors import UserError
from pmem.prompt import PROMPT_VERSION
from pmem.router import RoutedPolicy, build_policy
from pmem.settings import Settings
from pmem.snapshot import BankState, Entry, Snapshot, Step
from pmem.threshold import Threshold, write_threshold
from tests.pmem.fake_server import Cut, Drip, FakeServer, Hang, Json, Read, Reply, Say, Status

EMPTY = "<operations>[]</operations>"
SILENT = Say(f"{EMPTY}\n<no_intervention/>", model="chat")
MODEL = "m" * 64


@pytest.fixture
def dedicated() -> Iterator[FakeServer]:
    with FakeServer(Say(EMPTY), Read({"no": -0.01, "context": -5.0})) as server:
        yield server


@pytest.fixture
def chat() -> Iterator[FakeServer]:
    with FakeServer(SILENT) as server:
        server.gets["/v1/models"] = Json({"data": [{"id": "chat", "owned_by": "system"}]})
        yield server


def snapshot() -> Snapshot:
    entry = Entry(id="tm-k-1", kind="knowledge", content="Output must be JSON.", created=1, touched=1)
    return Snapshot(task_messages=("t",), window=(), bank=BankState(entries=(entry,), next_number=2))


def policy(
    tmp_path: Path,
    dedicated: FakeServer,
    chat: FakeServer | None = None,
    *,
    notices: list[str] | None = None,
    route: dict[str, Any] | None = None,
    **settings: Any,
) -> RoutedPolicy:
    values: dict[str, Any] = {
        "state_dir": tmp_path,
        "route": {"url": dedicated.url, "model": "memory"} | (route or {}),
        **settings,
    }
    if chat is not None:
        values.setdefault("chat", {"url": chat.url, "model": "chat", "kind": "gateway"})
    built = build_policy(Settings.model_validate(values), notice=(notices if notices is not None else []).append)
    assert built is not None
    return built


def test_no_route_or_the_kill_switch_means_rules_only(tmp_path: Path) -> None:
    chat = {"url": "http://127.0.0.1:9/v1", "model": "chat"}
    assert build_policy(Settings(state_dir=tmp_path)) is None
    assert build_policy(Settings.model_validate({"state_dir": tmp_path, "chat": chat})) is None
    assert build_policy(Settings.model_validate({"state_dir": tmp_path, "route": chat, "enabled": False})) is None
    assert not list(tmp_path.iterdir())


def test_the_dedicated_route_serves(tmp_path: Path, dedicated: FakeServer, chat: FakeServer) -> None:
    notices: list[str] = []
    result = policy(tmp_path, dedicated, chat, notices=notices).step(snapshot())
    assert (result.decision, result.reason, result.model, result.route) == ("silent", "model_silent", "memory", dedicated.url)
    assert result.prob_raw is not None and not result.earlier and not notices and not chat.requests


@pytest.mark.parametrize(
    ("listing", "cause"),
    [
        (Status(503), "loading"),
        (Json({"data": [{"id": "another", "owned_by": "vllm"}]}), "does not serve memory"),
    ],
)
def test_chat_serves_while_the_dedicated_route_is_known_unavailable(
    tmp_path: Path, dedicated: FakeServer, chat: FakeServer, listing: Reply, cause: str
) -> None:
    notices: list[str] = []
    dedicated.gets["/v1/models"] = listing
    routed = policy(tmp_path, dedicated, chat, notices=notices)
    results = [routed.step(snapshot()) for _ in range(3)]
    assert {(result.reason, result.route, result.model) for result in results} == {("model_silent", chat.url, "chat")}
    assert len(notices) == 1 and cause in notices[0] and not dedicated.requests
    assert not results[0].earlier, "the dedicated route was never tried"


def test_chat_serves_while_the_dedicated_server_is_down(tmp_path: Path, chat: FakeServer) -> None:
    gone = FakeServer(SILENT)
    with gone:
        pass
    assert policy(tmp_path, gone, chat).step(snapshot()).route == chat.url


def test_nobody_there_is_silence_without_a_client(tmp_path: Path, dedicated: FakeServer) -> None:
    notices: list[str] = []
    dedicated.gets["/v1/models"] = Status(503)
    result = policy(tmp_path, dedicated, notices=notices).step(snapshot())
    assert (result.decision, result.reason, result.tokens_in, result.route) == ("silent", "no_client", 0, None)
    assert len(notices) == 1 and not dedicated.requests


@pytest.mark.parametrize("reply", [Status(400), Status(500), Cut()])
def test_a_client_error_permits_one_attempt_on_chat(
    tmp_path: Path, dedicated: FakeServer, chat: FakeServer, reply: Reply
) -> None:
    notices: list[str] = []
    dedicated.play(reply)
    routed = policy(tmp_path, dedicated, chat, notices=notices)
    result = routed.step(snapshot())
    assert (result.reason, result.route, result.model, result.tokens_in) == ("model_silent", chat.url, "chat", 100)
    (first,) = result.earlier
    assert (first.decision, first.reason, first.route, first.model) == ("error", "client_error", dedicated.url, "memory")
    assert len(dedicated.requests) == len(chat.requests) == 1 and len(notices) == 1
    routed.step(snapshot())
    assert len(notices) == 1


def test_a_fallback_never_falls_back(tmp_path: Path, dedicated: FakeServer, chat: FakeServer) -> None:
    dedicated.play(Status(500))
    chat.play(Status(500))
    result = policy(tmp_path, dedicated, chat).step(snapshot())
    assert result.reason == "client_error" and len(result.earlier) == 1
    assert len(dedicated.requests) == len(chat.requests) == 1
    dedicated.gets["/v1/models"] = Status(503)
    alone = policy(tmp_path, dedicated, chat).step(snapshot())
    assert (alone.reason, alone.earlier, len(dedicated.requests)) == ("client_error", (), 1)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Status(429), "overloaded"),
        (Status(503), "overloaded"),
        (Say("rubbish"), "unparseable"),
        (Hang(), "timed_out"),
        (Drip(), "timed_out"),
    ],
)
def test_nothing_else_permits_a_fallback(
    tmp_path: Path, dedicated: FakeServer, chat: FakeServer, reply: Reply, reason: str
) -> None:
    dedicated.play(reply)
    patience = 400 if reason == "timed_out" else 20_000
    result = policy(tmp_path, dedicated, chat, timeout_ms=patience).step(snapshot())
    assert result.reason == reason and not result.earlier and not chat.requests


def test_the_deadline_covers_the_fallback_too(tmp_path: Path, dedicated: FakeServer, chat: FakeServer) -> None:
    def slow_refusal(seen: object) -> Reply:
        time.sleep(0.5)
        return Status(500)

    dedicated.play(slow_refusal)
    chat.play(Hang())
    started = time.monotonic()
    result = policy(tmp_path, dedicated, chat, timeout_ms=1500).step(snapshot())
    assert result.reason == "timed_out" and result.route == chat.url and 1.4 < time.monotonic() - started < 3
    assert int(chat.requests[0].headers["x-pmem-deadline-ms"]) <= 1010
    assert result.earlier[0].reason == "client_error"


def test_one_target_is_not_two_routes(tmp_path: Path, dedicated: FakeServer) -> None:
    dedicated.play(Status(500))
    same = {"url": dedicated.url + "/", "model": "memory"}
    settings = Settings.model_validate({"state_dir": tmp_path, "route": {**same, "url": dedicated.url}, "chat": same})
    routed = build_policy(settings)
    assert routed is not None and routed.chat is None
    result = routed.step(snapshot())
    assert result.reason == "client_error" and len(dedicated.requests) == 1 and not result.earlier


def test_a_full_endpoint_drops_the_step_and_chat_is_not_asked(tmp_path: Path, dedicated: FakeServer, chat: FakeServer) -> None:
    routed = policy(tmp_path, dedicated, chat, route={"max_concurrent_requests": 1})
    with endpoint_at(dedicated.url).hold():
        result = routed.step(snapshot())
    assert (result.decision, result.reason, result.tokens_in, result.latency_ms) == ("dropped", "endpoint_busy", 0, 0)
    assert not dedicated.requests and not dedicated.gets_seen and not chat.requests
    assert routed.step(snapshot()).reason == "model_silent"


def test_a_busy_chat_endpoint_keeps_the_first_result(tmp_path: Path, dedicated: FakeServer, chat: FakeServer) -> None:
    dedicated.play(Status(500))
    routed = policy(tmp_path, dedicated, chat)
    endpoint_at(chat.url).configure(1)
    with endpoint_at(chat.url).hold():
        result = routed.step(snapshot())
    assert result.reason == "client_error" and not result.earlier and not chat.requests


def test_the_place_is_given_back_after_every_end(tmp_path: Path, dedicated: FakeServer) -> None:
    routed = policy(tmp_path, dedicated, route={"max_concurrent_requests": 1}, timeout_ms=200)
    for reply in (Say(EMPTY), Status(500), Status(429), Cut(), Hang(), Say("rubbish")):
        dedicated.play(reply)
        assert routed.step(snapshot()).decision != "dropped"
        until = time.monotonic() + 1
        while endpoint_at(dedicated.url).occupied and time.monotonic() < until:
            time.sleep(0.002)
        assert endpoint_at(dedicated.url).occupied == 0


def test_a_probed_limit_is_kept_for_the_next_process(tmp_path: Path, dedicated: FakeServer) -> None:
    dedicated.gets["/capacity"] = Json({"limit": 3})
    policy(tmp_path, dedicated).step(snapshot())
    endpoint = endpoint_at(dedicated.url)
    assert (endpoint.capacity.limit, endpoint.capacity.evidence, endpoint.kind) == (3, "probed", "vllm")
    assert '"limit": 3' in (tmp_path / "memory" / "endpoint-slots.json").read_text()


def certified(tmp_path: Path, **changes: Any) -> Path:
    values = {"threshold": 0.6, "certified": True, "model_hash": MODEL, "prompt_version": PROMPT_VERSION, "created": "x"}
    path = tmp_path / "threshold.json"
    write_threshold(path, Threshold.model_validate(values | changes))
    return path


def test_a_threshold_gates_the_dedicated_route_and_unstated_hashes_are_said(tmp_path: Path, dedicated: FakeServer) -> None:
    dedicated.play(Say(EMPTY), Read({"context": math.log(0.55), "no": math.log(0.45)}))
    routed = policy(tmp_path, dedicated, route={"model_hash": MODEL}, threshold=certified(tmp_path))
    result = routed.step(snapshot())
    assert (result.reason, result.threshold, result.model) == ("below_threshold", 0.6, "memory (unverified)")
    assert routed.threshold_id and len(routed.threshold_id) == 16


@pytest.mark.parametrize("known", [MODEL, None])
def test_a_stated_hash_is_verified(tmp_path: Path, dedicated: FakeServer, known: str | None) -> None:
    dedicated.gets["/capacity"] = Json({"limit": 2, "model_hash": MODEL, "prompt_version": PROMPT_VERSION})
    routed = policy(tmp_path, dedicated, route={"model_hash": known}, threshold=certified(tmp_path))
    assert routed.step(snapshot()).model == "memory"


def test_a_hash_that_nobody_states_is_asked_for(tmp_path: Path, dedicated: FakeServer) -> None:
    notices: list[str] = []
    routed = policy(tmp_path, dedicated, notices=notices, threshold=certified(tmp_path))
    assert routed.step(snapshot()).reason == "no_client" and "route.model_hash" in notices[0]


@pytest.mark.parametrize(
    ("stated", "cause"), [({"model_hash": "x" * 64}, "serves model"), ({"prompt_version": "0" * 16}, "prompt version")]
)
def test_a_server_with_another_model_is_not_trusted_with_the_threshold(
    tmp_path: Path, dedicated: FakeServer, stated: dict[str, str], cause: str
) -> None:
    notices: list[str] = []
    dedicated.gets["/capacity"] = Json({"limit": 2, "model_hash": MODEL, "prompt_version": PROMPT_VERSION} | stated)
    routed = policy(tmp_path, dedicated, notices=notices, route={"model_hash": MODEL}, threshold=certified(tmp_path))
    assert routed.step(snapshot()).reason == "no_client" and cause in notices[0] and not dedicated.requests


def test_a_scored_threshold_needs_a_server_that_gives_probabilities(tmp_path: Path, dedicated: FakeServer) -> None:
    notices: list[str] = []
    dedicated.gets["/v1/models"] = Json({"data": [{"id": "memory", "owned_by": "library"}]})
    routed = policy(tmp_path, dedicated, notices=notices, route={"model_hash": MODEL}, threshold=certified(tmp_path))
    assert routed.step(snapshot()).reason == "no_client" and "no probability" in notices[0]


def test_without_a_threshold_a_plain_server_runs_in_completion_mode(tmp_path: Path, dedicated: FakeServer) -> None:
    dedicated.gets["/v1/models"] = Json({"data": [{"id": "memory", "owned_by": "library"}]})
    dedicated.play(Say(f"{EMPTY}\n<context_for_action>Use JSON [tm-k-1]</context_for_action>"))
    result = policy(tmp_path, dedicated, route={"grammar": True}).step(snapshot())
    assert (result.decision, result.prob_raw, len(dedicated.requests)) == ("injected", None, 1)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"certified": False}, "no certified"),
        ({"model_hash": "y" * 64}, "was made for model"),
        ({"decision_mode": "completion"}, r"route\.mode"),
    ],
)
def test_a_threshold_that_does_not_fit_stops_before_the_first_step(
    tmp_path: Path, dedicated: FakeServer, changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(UserError, match=cause):
        policy(tmp_path, dedicated, route={"model_hash": MODEL}, threshold=certified(tmp_path, **changes))


def test_the_key_comes_from_a_file(tmp_path: Path, dedicated: FakeServer) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    policy(tmp_path, dedicated, route={"api_key_file": str(key)}).step(snapshot())
    assert {seen.headers["authorization"] for seen in dedicated.requests} == {"Bearer s3cret"}
    for text in ("", "\n"):
        key.write_text(text)
        with pytest.raises(UserError, match="is empty"):
            policy(tmp_path, dedicated, route={"api_key_file": str(key)})
    with pytest.raises(UserError, match="cannot be read"):
        policy(tmp_path, dedicated, route={"api_key_file": str(tmp_path / "none")})


@pytest.mark.parametrize("noted", [False, True])
def test_the_lists_of_a_route_whose_model_was_trained_so_end_with_the_note(
    tmp_path: Path, dedicated: FakeServer, noted: bool
) -> None:
    step = Step(step=1, tool="bash", call="ls", fingerprint="a" * 16, outcome="ok", digest="", thought="Next: make the output.")
    made = policy(tmp_path, dedicated, route={"plan_notes": noted}).step(snapshot().model_copy(update={"window": (step,)}))
    assert ("make the output ~ Output must be JSON" in made.list_text) == noted
