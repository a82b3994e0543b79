"""What an agent runs at each event: one JSON object or nothing, code 0, within its deadline, whatever stands behind it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmem.integrations.hook.client import project_folder, socket_name
from pmem.integrations.hook.dialects import CLAUDE
from pmem.integrations.hook.install import CLIENT, HookConfig, hook_command, write_client
from pmem.live import ask_at
from pmem.settings import Settings
from tests.integrations.daemons import stop_daemons
from tests.pmem.fake_server import FakeServer, Hang, Say
from tests.pmem.hosts import wait_for as wait

PYTHON = os.path.realpath(sys.executable)
START = {"hook_event_name": "SessionStart", "session_id": "s1", "source": "startup"}


def wait_for(condition: Callable[[], bool]) -> None:
    """A daemon may take seconds to start on a busy machine."""
    wait(condition, timeout_s=40.0)


class Place:
    """An installed hook and a project, no daemon yet."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pmem"))
        self.project = self.root / "project"
        self.project.mkdir()
        self.settings = Settings(state_dir=self.root / "state", data_dir=self.root / "data")
        self.settings_file = self.root / "settings.yaml"
        self.settings_file.write_text(f"state_dir: {self.root / 'state'}\ndata_dir: {self.root / 'data'}\n")
        self.own_listener: socket.socket | None = None
        self.install()

    def install(self, **options: object) -> None:
        options = {"deadline_ms": 3_000, "settings_file": self.settings_file, **options}
        self.script = write_client(self.settings, HookConfig(**options))  # type: ignore[arg-type]

    @property
    def socket_file(self) -> Path:
        return self.settings.state_dir / socket_name(os.fsencode(self.project))

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [PYTHON, "-I", "-S", str(self.script), "claude"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=self.project, env={"CLAUDE_PROJECT_DIR": str(self.project), **environment},
        )  # fmt: skip

    def fire(self, event: object = START, **environment: str) -> tuple[int, bytes, float]:
        """Code, output, seconds."""
        started = time.monotonic()
        process = self.start(**environment)
        out, err = process.communicate(event if isinstance(event, bytes) else json.dumps(event).encode(), timeout=20)
        assert err == b""
        return process.returncode, out, time.monotonic() - started

    def listen(self, serve: Callable[[socket.socket], None]) -> None:
        """A daemon of the test's own: `serve` gets each connection."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.socket_file))
        listener.listen(8)
        self.own_listener = listener

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def status(self) -> dict[str, object] | None:
        return ask_at(self.socket_file, {"op": "status"}) if self.socket_file.exists() else None

    def counts(self) -> dict[str, int]:
        status = self.status()
        return status["counts"] if status else {}  # type: ignore[return-value]

    def close(self) -> None:
        if self.own_listener is None:
            stop_daemons(self.settings.state_dir)
        else:
            self.own_listener.close()
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_the_first_call_starts_the_daemon_and_loses_nothing(place: Place) -> None:
    code, out, _ = place.fire()
    assert (code, out) == (0, b"")
    wait_for(lambda: place.counts().get("events") == 1)
    assert place.socket_file.stat().st_mode & 0o077 == 0, "nobody else may speak to it"
    first = place.status()
    place.fire()
    assert first is not None and place.status()["pid"] == first["pid"]  # type: ignore[index]


def test_events_wait_for_a_daemon_that_is_still_starting(place: Place) -> None:
    place.install(deadline_ms=300)
    for number in range(5):
        code, out, took = place.fire({**START, "session_id": f"s{number}"})
        assert (code, out) == (0, b"") and took < 2
    wait_for(lambda: place.counts().get("events") == 5)


def test_many_at_once_start_one_daemon(place: Place) -> None:
    processes = [place.start() for _ in range(6)]
    for number, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(json.dumps({**START, "session_id": f"s{number}"}).encode())
        process.stdin.close()
    for process in processes:
        assert process.wait(20) == 0
    wait_for(lambda: place.counts().get("events") == 6)
    assert len(list(place.settings.state_dir.glob("live-*.sock"))) == 1


def test_the_daemon_leaves_when_idle_and_comes_back(place: Place) -> None:
    place.install(idle_s=0.3)
    place.fire()
    wait_for(lambda: place.counts().get("events", 0) == 1)
    wait_for(lambda: not place.socket_file.exists())
    shutil.rmtree(place.settings.state_dir)  # also the note of the last start
    place.settings.state_dir.mkdir()
    place.fire()
    wait_for(lambda: place.counts().get("events", 0) == 1)


def test_a_daemon_that_nobody_can_reach_leaves(place: Place) -> None:
    place.fire()
    wait_for(lambda: place.status() is not None)
    pid = int(str(place.status()["pid"]))  # type: ignore[index]
    place.socket_file.unlink()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_daemon_that_cannot_start_is_not_started_at_every_call(place: Place) -> None:
    place.settings_file.write_text("cadence: 3\n")
    place.fire()
    wait_for(lambda: not place.socket_file.exists())
    code, out, took = place.fire()
    assert (code, out) == (0, b"") and not place.socket_file.exists() and took < 2


def test_a_killed_daemon_is_replaced(place: Place) -> None:
    place.fire()
    wait_for(lambda: place.status() is not None)
    os.kill(int(str(place.status()["pid"])), signal.SIGKILL)  # type: ignore[index]
    wait_for(lambda: place.status() is None)
    lock = place.socket_file.with_name(place.socket_file.name + ".lock")
    lock.write_bytes(b"")
    place.fire()
    wait_for(lambda: place.counts().get("events") == 1)


@pytest.mark.parametrize(
    "event",
    [b"", b"not json", b"[1, 2]", b'{"hook_event_name": ', b"\xff\xfe\x00", b"{}", b'"x"', b"[" * 100_000, b"null"],
    ids=["empty", "text", "list", "cut", "binary", "no keys", "string", "deep", "null"],
)
def test_any_input_is_code_0_and_silence(place: Place, event: bytes) -> None:
    assert place.fire(event)[:2] == (0, b"")
    wait_for(lambda: place.counts().get("events", 0) >= 1)
    assert place.fire(START)[0] == 0


def test_a_large_event(place: Place) -> None:
    place.fire()
    wait_for(lambda: place.status() is not None)
    calls = [{"tool_name": "Read", "tool_input": {}, "tool_use_id": "t", "tool_response": "x" * 5_000_000}]
    code, out, _ = place.fire({"hook_event_name": "PostToolBatch", "session_id": "s1", "tool_calls": calls})
    assert (code, out) == (0, b"")
    wait_for(lambda: place.counts().get("event_batch") == 1)


@pytest.mark.parametrize("deadline_ms", [100, 400])
def test_a_hung_daemon_costs_the_deadline_and_no_more(place: Place, deadline_ms: int) -> None:
    place.install(deadline_ms=deadline_ms)
    place.listen(lambda connection: time.sleep(30))
    bare = min(_seconds([PYTHON, "-I", "-S", "-c", "pass"]) for _ in range(3))
    code, out, took = place.fire()
    assert (code, out) == (0, b"") and deadline_ms / 1000 <= took < deadline_ms / 1000 + bare + 1.0


def test_a_stopped_daemon_process(place: Place) -> None:
    place.fire()
    wait_for(lambda: place.status() is not None)
    pid = int(str(place.status()["pid"]))  # type: ignore[index]
    os.kill(pid, signal.SIGSTOP)
    try:
        place.install(deadline_ms=200)
        code, out, took = place.fire()
        assert (code, out) == (0, b"") and took < 1.5
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("answer", [b"", b'{"hookSpecificOutput": {"hookEv', b"\n", b'{"a": 1}'])
def test_a_daemon_that_dies_in_its_answer_leaves_no_half_object(place: Place, answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)
        connection.close()

    place.listen(serve)
    assert place.fire()[:2] == (0, b"")


def test_a_whole_answer_is_printed_and_confirmed(place: Place) -> None:
    confirmed: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b'{"a": 1}\n')
        confirmed.append(connection.recv(1))

    place.listen(serve)
    assert place.fire()[:2] == (0, b'{"a": 1}\n')
    wait_for(lambda: confirmed == [b"\x06"])


def test_a_closed_pipe_is_code_0_and_not_confirmed(place: Place) -> None:
    confirmed: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b'{"a": 1}\n')
        confirmed.append(connection.recv(1))

    place.listen(serve)
    process = place.start()
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()
    process.stdin.write(json.dumps(START).encode())
    process.stdin.close()
    assert process.wait(20) == 0
    wait_for(lambda: confirmed == [b""])


def test_an_input_that_never_ends(place: Place) -> None:
    place.install(deadline_ms=200)
    process = place.start()
    assert process.wait(5) == 0, "the deadline holds for the input as well"
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    assert process.stdout.read() == b"" == process.stderr.read()


def test_a_state_folder_that_is_not_there(place: Place) -> None:
    place.settings.state_dir.rmdir()
    assert place.fire()[:2] == (0, b"")
    assert not place.settings.state_dir.exists()


def test_a_state_folder_that_cannot_be_written(place: Place) -> None:
    place.settings.state_dir.rmdir()
    place.settings.state_dir.write_text("a file in its place")
    assert place.fire()[:2] == (0, b"")
    place.settings.state_dir.unlink()


@pytest.mark.parametrize("gone", ["script", "client", "interpreter"])
def test_the_installed_command_is_code_0_even_when_its_files_are_gone(place: Place, gone: str) -> None:
    command = hook_command(place.settings, CLAUDE)
    if gone == "interpreter":
        command = command.replace(PYTHON, "/nowhere/python3")
    else:
        (place.script if gone == "script" else place.script.with_name(CLIENT)).unlink()
    done = subprocess.run(["sh", "-c", command], input=b"{}", capture_output=True, check=False, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("how", ["variable", "settings", "named settings"])
def test_disabled_means_that_nothing_is_touched_or_sent(place: Place, how: str) -> None:
    connections: list[socket.socket] = []
    place.listen(connections.append)
    before = sorted(path for path in place.root.rglob("*") if "__pycache__" not in str(path))
    environment = {}
    if how == "variable":
        environment["PMEM_ENABLED"] = "false"
    elif how == "settings":
        place.settings_file.write_text("cadence_tool_calls: 3\nenabled: false  # for now\n")
    else:
        other = place.project / "pmem.yaml"
        other.write_text("enabled: off\n")
        before = sorted([*before, other])
        environment["PMEM_SETTINGS"] = str(other)
    assert place.fire(START, **environment)[:2] == (0, b"")
    time.sleep(0.1)
    assert connections == []
    assert sorted(path for path in place.root.rglob("*") if "__pycache__" not in str(path)) == before


def test_the_daemon_does_not_get_the_agents_secrets(place: Place) -> None:
    place.fire(START, ANTHROPIC_API_KEY="sk-ant-secret", PMEM_TIMEOUT_MS="1234", PATH=os.environ["PATH"])
    wait_for(lambda: place.status() is not None)
    environment = Path(f"/proc/{place.status()['pid']}/environ")  # type: ignore[index]
    if not environment.exists():
        pytest.skip("no /proc here")
    assert b"sk-ant" not in environment.read_bytes() and b"PMEM_TIMEOUT_MS=1234" in environment.read_bytes()


def batch(number: int) -> dict[str, object]:
    call = {"tool_name": "Bash", "tool_input": {"command": f"echo {number}"}, "tool_use_id": f"t{number}", "tool_response": "x"}
    return {"hook_event_name": "PostToolBatch", "session_id": "s1", "tool_calls": [call]}


def test_a_model_reminds_through_the_hook_and_a_hung_one_costs_nothing(place: Place) -> None:
    """All of it: the agent's process, the daemon's, a model's server; and the server hangs from then on."""
    saves = '<operations>[{"op":"save_knowledge","content":"The report is JSON."}]</operations>\n<no_intervention/>'
    speaks = "<operations>[]</operations>\n<context_for_action>Mind: the report is JSON [tm-k-1]</context_for_action>"
    with FakeServer(Say(saves), Say(speaks), Hang(60)) as server:
        route = f"route: {{url: '{server.url}', model: memory, mode: completion}}\ncadence_tool_calls: 1\n"
        place.settings_file.write_text(place.settings_file.read_text() + route)
        place.install(live=True)
        place.fire({"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "Build the report."})
        said = []
        for number in range(1, 6):
            code, out, took = place.fire(batch(number))
            assert code == 0
            said.append(json.loads(out)["hookSpecificOutput"]["additionalContext"] if out else None)
            wait_for(lambda number=number: len(server.requests) >= min(number, 3))  # type: ignore[misc]
            if number < 3:
                wait_for(lambda: not _session(place)["in_flight"])
        assert said == [None, None, "Memory: Mind: the report is JSON [tm-k-1]", None, None]
        assert _session(place)["in_flight"] and took < 3.0 and len(server.requests) == 3


def _session(place: Place) -> dict[str, object]:
    found = ask_at(place.socket_file, {"op": "inspect"})
    assert found is not None
    return found["sessions"][0]


def test_the_project_is_the_nearest_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "repository" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    command = [sys.executable, "-c", "from pmem.integrations.hook.client import *; print(project_folder().decode())"]
    environment = {name: value for name, value in os.environ.items() if name != "CLAUDE_PROJECT_DIR"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=inner, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "repository")
    assert callable(project_folder)


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - started
