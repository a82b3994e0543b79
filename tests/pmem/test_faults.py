"""What may go wrong around memory, and what the agent sees of it: nothing. A real HTTP server, real folders, a real full disk."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pmem.connect import open_session
from pmem.envelope import Operation
from pmem.rehearsal import Rehearsal
from pmem.session import MemorySession
from pmem.settings import RouteSettings, Settings
from pmem.telemetry import FileTelemetry, StepRow, UsageRow, read_rows
from tests.pmem.fake_server import Cut, Drip, FakeServer, Hang, Raw, Say, Status
from tests.pmem.hosts import Host, wait_for
from tests.pmem.policies import PlayedPolicy, ends, says
from tests.pmem.recorded import recorded

FACT = Operation("save_knowledge", "The report is JSON.")
SILENT = '<operations>[{"op":"save_knowledge","content":"Port is 5433."}]</operations>\n<no_intervention/>'
SPEAKS = "<operations>[]</operations>\n<context_for_action>Write JSON [tm-k-1]</context_for_action>"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


def session_at(server: FakeServer | str, folder: Path, **settings: object) -> MemorySession:
    url = server if isinstance(server, str) else server.url
    route = RouteSettings(url=url, model="memory", kind="vllm", mode="completion")
    values = {"cadence_tool_calls": 1, "timeout_ms": 3000, "route": route, "state_dir": folder, **settings}
    session = open_session(Settings(**values))  # type: ignore[arg-type]
    session.apply_operations([FACT])
    session.on_user_message("Write the report.")
    session.on_turn_start()
    return session


def one_step(session: MemorySession, command: str = "ls") -> str:
    """One tool and one memory step; the longest the host waited is checked."""
    started = time.perf_counter()
    session.on_tool_result(tool="bash", args={"command": command}, text="a")
    session.on_batch_end()
    assert session.evaluate()
    assert time.perf_counter() - started < 0.5, "the host's thread waited"
    wait_for(lambda: not session.inspect()["in_flight"])
    last = session.inspect()["last_decision"]
    return f"{last['decision']}/{last['reason']}"


def test_a_good_server(server: FakeServer, tmp_path: Path) -> None:
    server.play(Say(SILENT), Say(SPEAKS))
    session = session_at(server, tmp_path)
    assert one_step(session) == "silent/model_silent"
    assert one_step(session, "pwd") == "injected/intervened"
    reminder = session.peek()
    assert reminder is not None and reminder.cited == ("tm-k-1",)
    session.commit(reminder)
    session.close()
    FileTelemetry(session.settings).close()
    rows = list(read_rows(session.settings.steps_file, StepRow))
    assert [row.decision for row in rows] == ["silent", "injected"] and rows[0].tokens_total == 107
    assert [bill.tokens_in for bill in read_rows(session.settings.usage_file, UsageRow)] == [100, 100]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Status(429), "error/overloaded"),
        (Status(503), "error/overloaded"),
        (Status(500), "error/client_error"),
        (Status(401), "error/client_error"),
        (Raw(b"<html>busy</html>"), "error/client_error"),
        (Raw(b""), "error/client_error"),
        (Cut(), "error/client_error"),
        (Say("I would rather chat."), "malformed/unparseable"),
        (Say("<operations>[{", finish_reason="length"), "malformed/truncated"),
        (Say(None), "malformed/unparseable"),
        (Say('<operations>[{"op":"read","path":"a"}]</operations>'), "malformed/all_operations_invalid"),
        (Say("<operations>[]</operations>\n<context_for_action>no citation</context_for_action>"), "gated/uncited"),
    ],
)
def test_a_bad_answer_has_its_own_name(server: FakeServer, tmp_path: Path, reply: object, outcome: str) -> None:
    server.play(reply)  # type: ignore[arg-type]
    session = session_at(server, tmp_path)
    before = session.bank.state()
    assert one_step(session) == outcome
    assert session.peek() is None and session.bank.state() == before
    assert len(server.requests) == 1, "no retry"
    assert session.num_faults == 0
    assert session.inspect()["pending_triggers"] == (["interval"] if outcome.endswith("overloaded") else [])


@pytest.mark.parametrize("reply", [Hang(30), Drip(0.2)])
def test_a_server_that_never_ends_meets_the_deadline(server: FakeServer, tmp_path: Path, reply: object) -> None:
    server.play(reply)  # type: ignore[arg-type]
    session = session_at(server, tmp_path, timeout_ms=400)
    started = time.monotonic()
    assert one_step(session) in ("timeout/timed_out", "timeout/deadline")
    assert time.monotonic() - started < 5


SERVER = """
import sys, time
from tests.pmem.fake_server import FakeServer, Hang, Say
with FakeServer(Say({answer!r}), Hang(60)) as server:
    print(server.url, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("mid_answer", [False, True])
def test_a_server_that_is_killed(tmp_path: Path, mid_answer: bool) -> None:
    """SIGKILL between two steps, and while it answers."""
    process = subprocess.Popen([sys.executable, "-c", SERVER.format(answer=SILENT)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        session = session_at(process.stdout.readline().strip(), tmp_path)
        assert one_step(session) == "silent/model_silent"
        if mid_answer:
            threading.Timer(0.3, process.kill).start()
        else:
            process.kill()
            process.wait()
        assert one_step(session, "pwd") in ("error/client_error", "silent/no_client")
        assert session.num_faults == 0
    finally:
        process.kill()
        process.wait()


def test_a_policy_that_hangs_beyond_its_deadline_loses_the_slot() -> None:
    gate = threading.Event()
    host = Host(PlayedPolicy(says("late [tm-k-1]", operations=[FACT]), ends("model_silent"), gate=gate), timeout_ms=1)
    host.ask()
    host.run()
    host.boundary()
    host.session._in_flight.started -= 5.0  # type: ignore[union-attr]
    host.run("pwd")
    assert host.boundary() is True
    assert host.outcomes == ["timeout/deadline"]
    gate.set()
    host.settled()
    wait_for(lambda: len(host.ledger.usages) == 2)
    assert host.outcomes == ["timeout/deadline", "silent/model_silent"]
    assert host.session.bank.state().entries == () and {bill.outcome for bill in host.ledger.usages} == {
        "timeout/deadline", "silent/model_silent"
    }  # fmt: skip


def test_a_policy_that_raises_is_an_error_row_and_counted() -> None:
    host = Host(PlayedPolicy(KeyError("bug")))
    host.ask()
    host.step()
    assert host.outcomes == ["error/client_error"] and host.session.num_faults == 1
    host.step()
    assert host.last == "silent/model_silent"


def behaviour(session: MemorySession) -> list[str]:
    """What the agent gets to see in a fixed run."""
    seen = []
    for number in range(6):
        note = session.on_tool_result(tool="bash", args={"command": "make"}, text="error: no", is_error=True)
        session.on_batch_end()
        session.evaluate()
        wait_for(lambda: not session.inspect()["in_flight"])
        reminder = session.peek()
        if reminder is not None:
            session.commit(reminder)
        seen.append(f"{number}: {note} {reminder and reminder.text}")
    return seen


def with_telemetry(folder: Path) -> tuple[MemorySession, FileTelemetry]:
    settings = Settings(cadence_tool_calls=1, state_dir=folder)
    telemetry = FileTelemetry(settings)
    session = MemorySession(settings, policy=PlayedPolicy(says("JSON [tm-k-1]")), telemetry=telemetry, clock=lambda: 5.0)
    session.apply_operations([FACT])
    session.on_user_message("task")
    session.on_turn_start()
    return session, telemetry


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_changes_nothing_the_agent_sees(full_disk: Path, tmp_path: Path) -> None:
    healthy, _ = with_telemetry(tmp_path / "healthy")
    session, telemetry = with_telemetry(full_disk)
    expected = behaviour(healthy)
    (full_disk / "ballast").write_bytes(b"x" * 8_000)
    assert behaviour(session) == expected
    for _ in range(10):
        behaviour(session)
    telemetry.close()
    assert telemetry.lost > 0 and session.num_faults == 0
    text = (
        (full_disk / "memory" / "steps.jsonl").read_text(encoding="utf-8")
        if (full_disk / "memory" / "steps.jsonl").exists()
        else ""
    )
    assert text == "" or text.endswith("\n"), "a half line was taken back"
    (full_disk / "ballast").unlink()
    before = telemetry.lost
    behaviour(session)
    telemetry.close()
    assert telemetry.lost == before, "rows are written again once there is room"


def test_a_read_only_state_folder_changes_nothing_the_agent_sees(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be", encoding="utf-8")
    healthy, _ = with_telemetry(tmp_path / "healthy")
    session, telemetry = with_telemetry(blocked)
    assert behaviour(session) == behaviour(healthy)
    telemetry.close()
    assert telemetry.lost > 0 and session.num_faults == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    session, telemetry = with_telemetry(tmp_path / "state")
    behaviour(session)
    telemetry.close()
    assert telemetry.lost > 0 and session.num_faults == 0


def test_a_clock_that_steps_back_and_one_that_breaks() -> None:
    host = Host(PlayedPolicy(), cadence_tool_calls=1)
    host.ask()
    host.fail()
    host.now = -5e9
    assert host.fail() is not None
    host.now = float("inf")
    host.run("ls")
    host.boundary()
    host.settled()
    assert host.session.num_faults == 0
    assert all(row.latency_ms >= 0 and row.at.endswith("Z") for row in host.ledger.steps)
    entry = host.session.bank.state().entries[0]
    assert entry.touched >= entry.created


def test_the_hosts_model_call_fails_and_is_retried() -> None:
    host = Host(PlayedPolicy(says("JSON [tm-k-1]")))
    host.session.apply_operations([FACT])
    host.ask()
    host.step()
    carried = [host.call_model(fails=True), host.call_model(fails=True), host.call_model(), host.call_model()]
    assert [reminder is not None for reminder in carried] == [True, True, True, False]
    assert len(host.delivered) == 1


def test_a_huge_result_is_taken_quickly() -> None:
    host = Host()
    host.run("warm up")
    text = ("x" * 99 + "\n") * 100_000 + "ValueError: at the end\n"
    started = time.perf_counter()
    host.run("cat big", text, error=True)
    assert time.perf_counter() - started < 2.0
    assert host.session.window()[-1].digest == "ValueError: at the end" and host.session.num_faults == 0


def test_a_rollout_replays_with_every_fault_in_turn(server: FakeServer, tmp_path: Path) -> None:
    """One rollout under a server that fails differently at each step: the rules tier says what it always says."""
    from pmem.router import build_policy

    server.play(Status(503), Raw(b"{"), Say("?"), Cut(), Status(429), Say(SILENT))
    settings = Settings(
        cadence_tool_calls=1, timeout_ms=2000, state_dir=tmp_path,
        route=RouteSettings(url=server.url, model="memory", kind="vllm", mode="completion"),
    )  # fmt: skip
    with_model = list(Rehearsal(settings, build_policy(settings)).run(recorded().events))
    rules_only = list(Rehearsal(settings).run(recorded().events))

    def said(findings):  # type: ignore[no-untyped-def]
        return [finding.said for finding in findings if finding.channel == "annotation"]

    assert said(with_model) == said(rules_only) != []
    assert len({finding.why for finding in with_model}) >= 4
