"""The capacity limit on a real server: no queue, one slot a step, deadlines, clients that vanish, keys, bodies."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from serve.capacity import CapacityLimit
from serve.capacity_settings import VARIABLE, BodyLimits, CapacitySettings, from_environment
from serve.slots import SlotLimits
from tests.serve.engine_app import EngineApp, WithApp, serving

PATH = "/v1/chat/completions"
SETTINGS = CapacitySettings(
    slots=SlotLimits(limit=2, hold_idle_s=2.0, hold_after_decision_s=2.0), model_hash="abc", prompt_version="p1"
)


@dataclass
class Served:
    """A served limit with the engine behind it."""

    url: str
    limit: CapacityLimit
    engine: EngineApp

    def post(self, body: dict[str, Any], headers: dict[str, str] | None = None, path: str = PATH) -> httpx.Response:
        return httpx.post(self.url + path, json=body, headers=headers, timeout=20)

    def wait_idle(self, seconds: float = 15) -> None:
        end = time.monotonic() + seconds
        while self.limit.slots.in_flight or self.engine.running:
            assert time.monotonic() < end, (self.limit.slots.in_flight, self.engine.running)
            time.sleep(0.01)


@contextmanager
def served(settings: CapacitySettings = SETTINGS, **engine: float) -> Iterator[Served]:
    app = EngineApp(**engine)
    limit = CapacityLimit(app, settings)
    with serving(WithApp(limit, app)) as url:
        yield Served(url, limit, app)


async def many(url: str, bodies: list[tuple[dict[str, Any], dict[str, str]]]) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, timeout=20, limits=httpx.Limits(max_connections=None)) as client:
        return await asyncio.gather(*(client.post(PATH, json=body, headers=headers) for body, headers in bodies))


def test_everything_above_the_limit_is_refused_at_once() -> None:
    with served() as route:
        started = time.monotonic()
        answers = asyncio.run(many(route.url, [({"sleep_s": 2}, {})] * 10))
        codes = sorted(answer.status_code for answer in answers)
        assert codes == [200] * 2 + [429] * 8 and time.monotonic() - started < 6
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"] | {"message": ""} == {
            "message": "", "type": "rate_limit_error", "param": None, "code": "full",
        }  # fmt: skip
        assert refused.elapsed.total_seconds() < 1.9
        assert route.engine.peak == 2
        capacity = httpx.get(route.url + "/capacity").json()
        assert capacity == {"limit": 2, "in_flight": 0, "refused_total": 8, "model_hash": "abc", "prompt_version": "p1"}


def test_only_the_first_request_of_a_step_can_be_refused() -> None:
    one = replace(SETTINGS, slots=replace(SETTINGS.slots, limit=1))
    with served(one) as route:
        mine, other = {"x-pmem-step": "s1", "x-pmem-client": "a"}, {"x-pmem-step": "s2", "x-pmem-client": "b"}
        assert route.post({}, mine).status_code == 200
        assert route.post({}, other).status_code == 429
        assert route.post({"max_tokens": 1, "logprobs": True}, mine).status_code == 200
        assert route.post({}, mine).status_code == 200
        assert route.post({}, other).status_code == 200, "the third request was the last of s1"
        assert httpx.post(route.url + "/capacity/done", headers=other).json() == {"done": True}
        assert route.post({}, mine | {"x-pmem-last": "1"}).status_code == 200
        assert route.limit.slots.in_flight == 0


def test_a_failed_request_ends_its_step() -> None:
    with served() as route:
        assert route.post({"status": 400}, {"x-pmem-step": "s"}).status_code == 400
        assert route.post({"explode": True}, {"x-pmem-step": "t"}).status_code == 500
        route.wait_idle()


def test_a_deadline_answers_504_and_the_slot_waits_for_the_engine() -> None:
    with served(abort_s=1.5) as route:
        started = time.monotonic()
        answer = route.post({"sleep_s": 10}, {"x-pmem-deadline-ms": "200"})
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "deadline"
        assert time.monotonic() - started < 5
        assert route.limit.slots.in_flight == 1, "the engine has not let go yet"
        route.wait_idle()
        assert route.engine.num_done == 0


def test_clients_that_vanish_leave_no_slot_behind() -> None:
    parts = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    with served(abort_s=0.02) as route:
        place = (urlsplit(route.url).hostname or "", urlsplit(route.url).port or 0)
        for index in range(60):
            with socket.create_connection(place, timeout=5) as client:
                client.sendall(parts.encode() + (b'{"sleep_s": 30}' if index % 3 else b'{"slee'))
                time.sleep(0.01)
        route.wait_idle()
        assert route.engine.peak <= 2
        assert route.post({}).status_code == 200


def test_a_slow_drip_holds_no_slot() -> None:
    settings = replace(SETTINGS, body=BodyLimits(timeout_s=1.0))
    with served(settings) as route:
        place = (urlsplit(route.url).hostname or "", urlsplit(route.url).port or 0)
        drips = [socket.create_connection(place, timeout=5) for _ in range(5)]
        for drip in drips:
            drip.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
        time.sleep(0.1)
        assert route.post({}).status_code == 200
        assert all(b"408" in drip.recv(100) for drip in drips)
        for drip in drips:
            drip.close()


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{" * 300_000, {}, 413),
        (b'{"a":' + b"[" * 5000, {}, 400),
        (b'{"a":"\xff"}', {}, 400),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"x-pmem-step": "a b"}, 400),
        (b"{}", {"x-pmem-client": "ä"}, 400),
        (b'{"prompt":["a","b","c"]}', {}, 400),
    ],
)
def test_unfit_requests_never_reach_the_server(content: bytes, headers: dict[str, str], status: int) -> None:
    with served() as route:
        given = [(name.encode(), value.encode()) for name, value in ({"content-type": "application/json"} | headers).items()]
        answer = httpx.post(route.url + PATH, content=content, headers=given)
        assert answer.status_code == status and set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert route.engine.bodies == [] and route.limit.slots.in_flight == 0


def test_beyond_loopback_everything_but_health_asks_for_the_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    with served(replace(SETTINGS, api_key_file=key)) as route:
        for path in ("/metrics", "/capacity", "/v1/models", "/version", "/docs"):
            assert httpx.get(route.url + path).status_code == 401, path
            assert httpx.get(route.url + path, headers={"authorization": "Bearer wrong"}).status_code == 401
            assert httpx.get(route.url + path, headers={"authorization": "Bearer s3cret"}).status_code == 200
        for path in ("/tokenize", PATH, "/capacity/done", "/load_lora"):
            assert route.post({}, path=path).status_code == 401, path
        assert route.post({}, {"authorization": "bearer s3cret"}).status_code == 200
        assert httpx.get(route.url + "/health").status_code == 200


def test_scoring_goes_before_generation_when_the_server_knows_priorities() -> None:
    with served(replace(SETTINGS, priority_scoring=True)) as route:
        route.post({"max_tokens": 1, "logprobs": True})
        route.post({"max_tokens": 9})
        assert [body.get("priority") for body in route.engine.bodies] == [-1, None]


def test_seeds_are_dropped_where_the_engine_would_die_of_them() -> None:
    with served(replace(SETTINGS, drop_seed=True, priority_scoring=True)) as route:
        route.post({"seed": 7, "max_tokens": 1, "logprobs": True})
        assert route.engine.bodies == [{"seed": None, "max_tokens": 1, "logprobs": True, "priority": -1}]
    with served() as route:
        route.post({"seed": 7})
        assert route.engine.bodies == [{"seed": 7}]


def test_the_engine_gets_an_id_that_names_the_step_and_logs_hold_no_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pmem.serve"), served() as route:
        route.post({"prompt": "my secret"}, {"x-pmem-step": "step9", "x-request-id": "chosen by the client"})
    assert route.engine.request_ids[0].startswith("step9-")
    line = json.loads("{" + caplog.messages[-1] + "}")
    assert line["id"].startswith("step9-") and line["outcome"] == "answered" and "secret" not in caplog.text


def test_lines_reach_standard_error_of_a_server_that_set_up_no_logger() -> None:
    code = (
        "import asyncio, httpx\n"
        "from serve.capacity import CapacityLimit\n"
        "from tests.serve.test_capacity_fuzz import echo\n"
        "client = httpx.AsyncClient(transport=httpx.ASGITransport(app=CapacityLimit(echo)), base_url='http://x')\n"
        "asyncio.run(client.post('/v1/completions', json={'prompt': 'my secret'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    line = json.loads(done.stderr.strip().splitlines()[-1])
    assert line["log"] == "pmem.serve" and line["event"] == "request" and "secret" not in done.stderr


def test_settings_travel_through_the_environment(tmp_path: Path) -> None:
    settings = replace(SETTINGS, api_key_file=tmp_path / "key", priority_scoring=True)
    assert from_environment(settings.environment()) == settings
    assert "key" in settings.environment()[VARIABLE] and from_environment({}) == CapacitySettings()


def test_load_sixteen_times_the_capacity_loses_nothing() -> None:
    with served(replace(SETTINGS, slots=SlotLimits(limit=4))) as route:
        bodies = [({"sleep_s": 0.05}, {"x-pmem-client": f"c{index % 7}"}) for index in range(64)]
        answers = [answer for _ in range(4) for answer in asyncio.run(many(route.url, bodies))]
        assert {answer.status_code for answer in answers} == {200, 429} and len(answers) == 256
        assert route.engine.peak <= 4
        route.wait_idle()
        assert route.limit.refused_total == sum(answer.status_code == 429 for answer in answers)


def test_a_client_that_asks_again_at_once_finds_its_slot_free() -> None:
    one = replace(SETTINGS, slots=SlotLimits(limit=1))
    with served(one) as route, httpx.Client(base_url=route.url, timeout=20) as first, httpx.Client(base_url=route.url) as second:
        for _ in range(100):
            assert first.post(PATH, json={}).status_code == 200
            assert second.post(PATH, json={}).status_code == 200
