"""One exchange: an exact deadline against every kind of slow server, and an end that is told when it has really come."""

import threading
import time

import pytest

from pmem.backend import RouteError
from pmem.transport import MAX_BODY_BYTES, Transport
from tests.pmem.fake_server import Cut, Drip, FakeServer, Hang, Raw, Reply, Say, Status


def post(transport: Transport, seconds: float | None = 5.0, on_end=None):  # type: ignore[no-untyped-def]
    deadline = None if seconds is None else time.monotonic() + seconds
    return transport.exchange("POST", "/chat/completions", body=b"{}", deadline=deadline, on_end=on_end)


def test_an_answer_and_a_kept_connection() -> None:
    with FakeServer(Say("hello")) as server:
        transport = Transport(server.url, headers={"x-pmem-client": "me"})
        first, second = post(transport), post(transport, None)
        assert first.status == second.status == 200 and b"hello" in first.body
        assert server.requests[0].headers["x-pmem-client"] == "me"
        assert second.duration_ms > 0
        transport.close()


@pytest.mark.parametrize("reply", [Hang(), Drip(), Drip(headers=True), Say("late", wait_s=8.0)])
def test_the_deadline_is_exact_whatever_the_server_does(reply: Reply) -> None:
    ended = threading.Event()
    with FakeServer(reply) as server:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            post(Transport(server.url), 0.25, ended.set)
        assert 0.24 <= time.monotonic() - started < 1.5
        assert ended.wait(1.5), "the socket is cut, so the exchange ends at once"


def test_no_time_left_sends_nothing() -> None:
    ended: list[int] = []
    with FakeServer(Say("x")) as server:
        with pytest.raises(TimeoutError):
            post(Transport(server.url), -1.0, lambda: ended.append(1))
        assert ended == [1] and server.requests == []


@pytest.mark.parametrize("reply", [Cut(), Raw(b"x" * (MAX_BODY_BYTES + 1))])
def test_a_broken_or_endless_answer_is_a_fault_of_the_route(reply: Reply) -> None:
    ended = threading.Event()
    with FakeServer(reply) as server:
        with pytest.raises(RouteError):
            post(Transport(server.url), 10.0, ended.set)
        assert ended.wait(1)


def test_nobody_there() -> None:
    with pytest.raises(RouteError, match="ConnectError"):
        post(Transport("http://127.0.0.1:9"), 2.0)


def test_statuses_are_answers_and_nothing_is_retried() -> None:
    with FakeServer(Status(503)) as server:
        assert post(Transport(server.url)).status == 503 and len(server.requests) == 1


def test_many_exchanges_side_by_side() -> None:
    with FakeServer(Say("x", wait_s=0.3)) as server:
        transport = Transport(server.url)
        threads = [threading.Thread(target=post, args=(transport,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.requests) == 8 and server.most_in_flight > 1
