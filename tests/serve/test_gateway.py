"""One limit over two replicas on loopback: never above it, the load spread, steps kept together, a dead replica left out."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from pmem.errors import exit_code
from serve.capacity import CapacityLimit
from serve.capacity_settings import CapacitySettings
from serve.gateway import gateway, main
from serve.slots import SlotLimits
from tests.serve.engine_app import EngineApp, serving
from tests.serve.test_capacity import PATH, many


@dataclass
class Pair:
    """Two replicas behind one gateway."""

    url: str
    limit: CapacityLimit
    engines: tuple[EngineApp, EngineApp]

    def post(self, body: dict[str, float], headers: dict[str, str] | None = None) -> httpx.Response:
        return httpx.post(self.url + PATH, json=body, headers=headers, timeout=20)


@contextmanager
def pair(limit: int = 4, share: float = 1.0) -> Iterator[Pair]:
    engines = EngineApp(), EngineApp()
    with serving(engines[0]) as first, serving(engines[1]) as second:
        front = gateway([first, second + "/v1"], CapacitySettings(slots=SlotLimits(limit=limit, client_share=share)))
        with serving(front) as url:
            yield Pair(url, front, engines)


def test_one_limit_over_both_replicas() -> None:
    with pair(limit=4) as route:
        answers = asyncio.run(many(route.url, [({"sleep_s": 2}, {})] * 24))
        assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 20
        assert [engine.peak for engine in route.engines] == [2, 2], "the load is spread"


def test_the_requests_of_a_step_meet_the_same_replica() -> None:
    with pair(limit=8) as route:
        for step in range(6):
            for _ in range(3):
                assert route.post({}, {"x-pmem-step": f"s{step}"}).status_code == 200
        for engine in route.engines:
            steps = [name.split("-")[0] for name in engine.request_ids]
            assert all(steps.count(step) == 3 for step in steps)


def test_a_client_that_leaves_reaches_the_replica() -> None:
    with pair() as route, pytest.raises(httpx.ReadTimeout):
        httpx.post(route.url + PATH, json={"sleep_s": 30}, timeout=1)
    end = time.monotonic() + 15
    while any(engine.running for engine in route.engines):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_dead_replica_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with serving(engine := EngineApp()) as alive:
        front = gateway([dead, alive], CapacitySettings(slots=SlotLimits(limit=4)))
        with serving(front) as url:
            codes = [httpx.post(url + PATH, json={}).status_code for _ in range(6)]
    assert codes.count(200) >= 5 and set(codes) <= {200, 503} and engine.num_done == codes.count(200)


def test_other_paths_pass_through() -> None:
    with pair() as route:
        assert httpx.get(route.url + "/v1/models?x=1").json() == {"path": "/v1/models"}
        assert httpx.get(route.url + "/capacity").json()["limit"] == 4


def test_beyond_loopback_needs_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: main(["http://a", "--limit", "2", "--host", "0.0.0.0"])) == 2
    assert exit_code(lambda: main(["http://a", "--limit", "0"])) == 2
    assert capsys.readouterr().err.count("error: ") == 2
