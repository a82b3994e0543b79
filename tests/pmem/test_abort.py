"""A step that nobody waits for any more: its request is cut, its place set free, its content discarded, and its cost booked."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmem.abort import Abort
from pmem.backend import RouteError
from pmem.capacity import endpoint_at
from pmem.connect import open_session
from pmem.envelope import Operation
from pmem.session import MemorySession
from pmem.settings import RouteSettings, Settings
from pmem.telemetry import StepRow, UsageRow, read_rows
from pmem.transport import Transport
from tests.pmem.fake_server import Drip, FakeServer, Hang, Read, Say
from tests.pmem.hosts import wait_for as wait_briefly

EMPTY = "<operations>[]</operations>"
FACT = Operation("save_knowledge", "The report is JSON.")
LONG_MS = 300_000
"""Far longer than a test may take on a machine that is busy with others."""
FOREVER = Hang(300.0)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


def wait_for(condition: Callable[[], bool]) -> None:
    wait_briefly(condition, timeout_s=60)


def booked(session: MemorySession) -> list[tuple[StepRow, UsageRow]]:
    """Rows of the steps that ended, each with its bill, as they stand in the files."""
    return list(zip(read_rows(session.settings.steps_file, StepRow), read_rows(session.settings.usage_file, UsageRow)))


def session_at(server: FakeServer, chat: FakeServer, folder: Path, **route: object) -> MemorySession:
    settings = Settings.model_validate(
        {
            "cadence_tool_calls": 1,
            "timeout_ms": LONG_MS,
            "state_dir": folder,
            "route": RouteSettings(url=server.url, model="memory", kind="vllm", **route),  # type: ignore[arg-type]
            "chat": RouteSettings(url=chat.url, model="chat", kind="gateway"),
        }
    )
    session = open_session(settings)
    session.apply_operations([FACT])
    session.on_user_message("Write the report.")
    session.on_turn_start()
    session.on_tool_result(tool="bash", args={"command": "ls"}, text="a")
    assert session.evaluate()
    return session


ENDS: dict[str, tuple[Callable[[MemorySession], None], str]] = {
    "session change": (lambda session: session.on_session_change(), "scope_changed"),
    "closed": (lambda session: session.close(), "scope_changed"),
    "turn aborted": (lambda session: session.on_turn_end(aborted=True), "turn_aborted"),
}


@pytest.mark.parametrize("reply", [FOREVER, Drip(1.0)], ids=["hangs", "drips"])
@pytest.mark.parametrize("end, reason", ENDS.values(), ids=ENDS.keys())
def test_the_request_is_cut_and_still_booked(
    server: FakeServer, tmp_path: Path, end: Callable[[MemorySession], None], reason: str, reply: object
) -> None:
    with FakeServer() as chat:
        server.play(reply)
        session = session_at(server, chat, tmp_path, mode="completion")
        wait_for(lambda: len(server.requests) == 1)
        endpoint = endpoint_at(server.url)
        assert endpoint.occupied == 1
        started = time.monotonic()
        end(session)
        assert time.monotonic() - started < 5, "the host does not wait for the cutting"
        wait_for(lambda: endpoint.occupied == 0)
        wait_for(lambda: bool(booked(session)))
        assert time.monotonic() - started < LONG_MS / 3000, "long before the deadline"
        assert chat.requests == [], "a step given up has no fallback"
    ((row, bill),) = booked(session)
    assert (row.decision, row.reason) == ("cancelled", reason)
    assert bill.model == "memory" and bill.route == server.url and bill.outcome == f"cancelled/{reason}"
    assert bill.tokens_in > 50 and bill.duration_ms > 0, "what the server read is estimated: it never says"


def test_what_came_before_the_cut_is_booked_as_the_server_said(server: FakeServer, tmp_path: Path) -> None:
    with FakeServer() as chat:
        server.play(Say(EMPTY, usage={"prompt_tokens": 1000, "completion_tokens": 7}), FOREVER)
        session = session_at(server, chat, tmp_path)
        wait_for(lambda: len(server.requests) == 2)
        session.on_session_change()
        wait_for(lambda: bool(booked(session)))
    ((_, bill),) = booked(session)
    assert bill.tokens_in > 1000 and bill.tokens_out == 7


def test_an_answer_that_was_quicker_is_discarded_and_a_step_that_asked_nothing_costs_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    with FakeServer() as chat:
        server.play(Say(EMPTY), Read({"no": -0.01, "context": -5.0}))
        session = session_at(server, chat, tmp_path)
        session.on_session_change()
        wait_for(lambda: bool(list(read_rows(session.settings.steps_file, StepRow))))
    (row,) = read_rows(session.settings.steps_file, StepRow)
    assert (row.decision, row.reason) == ("cancelled", "scope_changed")
    assert len(list(read_rows(session.settings.usage_file, UsageRow))) <= 1


def test_the_next_session_takes_its_step_at_once(server: FakeServer, tmp_path: Path) -> None:
    with FakeServer() as chat:
        server.play(FOREVER, Say(f"{EMPTY}\n<no_intervention/>"))
        session = session_at(server, chat, tmp_path, mode="completion", max_concurrent_requests=1)
        wait_for(lambda: len(server.requests) == 1)
        session.on_session_change()
        wait_for(lambda: endpoint_at(server.url).occupied == 0)
        session.on_user_message("Another task.")
        session.on_tool_result(tool="bash", args={"command": "ls"}, text="a")
        assert session.evaluate()
        wait_for(lambda: not session.inspect()["in_flight"])
        last = session.inspect()["last_decision"]
    assert (last["decision"], last["reason"]) == ("silent", "model_silent")


def test_a_cut_exchange_ends_its_caller_and_its_connection(server: FakeServer) -> None:
    server.play(FOREVER, Say(EMPTY))
    transport = Transport(server.url)
    ended = threading.Event()

    def cut_soon(cut: Callable[[], None]) -> None:
        threading.Timer(0.1, cut).start()

    started = time.monotonic()
    with pytest.raises(RouteError) as raised:
        transport.exchange("POST", "/chat/completions", body=b"{}", on_end=ended.set, on_start=cut_soon)
    assert raised.value.aborted and time.monotonic() - started < 60
    assert ended.wait(60)
    assert transport.exchange("POST", "/chat/completions", body=b"{}").status == 200, "a fresh connection serves the next"


def test_abort_runs_what_comes_before_and_after_it_once() -> None:
    abort, calls = Abort(), []
    done = threading.Event()
    abort.then(lambda: (calls.append("before"), done.set())[1])
    assert not abort.is_set
    abort.set()
    abort.set()
    assert abort.is_set and done.wait(60)
    abort.then(lambda: calls.append("after"))
    assert calls == ["before", "after"]
