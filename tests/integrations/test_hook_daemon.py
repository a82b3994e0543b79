"""The daemon: each event taken once, each word printed once, sessions as the settings say, seen by `pmem memory`."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pmem.cli import main
from pmem.envelope import Operation
from pmem.integrations.hook.daemon import Daemon, open_by_settings, settings_file
from pmem.integrations.hook.dialects import CODEX
from pmem.integrations.hook.install import HookConfig, write_client
from pmem.integrations.hook.shadow import Shadow, read_said, said_file
from pmem.live import ask, ask_at
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.telemetry import StepRow, read_rows
from tests.integrations.rig import FACT, REMIND
from tests.integrations.rig_hook import PYTHON, HookHost
from tests.pmem.hosts import wait_for
from tests.pmem.policies import PlayedPolicy, says

PROMPT = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "Build the report.", "prompt_id": "p1"}
MAKE = {"tool_name": "Bash", "tool_input": {"command": "make"}}


def batch(call_id: str, *, session_id: str = "s1", text: str = "done") -> dict[str, Any]:
    call = {"tool_name": "Bash", "tool_input": {"command": f"echo {call_id}"}, "tool_use_id": call_id, "tool_response": text}
    return {"hook_event_name": "PostToolBatch", "session_id": session_id, "tool_calls": [call]}


def failed(call_id: str) -> list[dict[str, Any]]:
    """What Claude Code tells of one failing call."""
    call, error = {**MAKE, "tool_use_id": call_id}, "make: no rule"
    return [
        {**call, "hook_event_name": "PostToolUseFailure", "session_id": "s1", "error": error, "is_interrupt": False},
        {"hook_event_name": "PostToolBatch", "session_id": "s1", "tool_calls": [{**call, "tool_response": error}]},
    ]


class Speaking:
    """Opens sessions that speak one reminder after each tool; their steps end when `settle` is called and not before."""

    def __init__(self, *answers: Any, **settings: Any) -> None:
        self.gate = threading.Event()
        self.answers = answers or (says(REMIND), says(f"Again: {REMIND}"))
        self.settings = Settings(**{"cadence_tool_calls": 1, "telemetry": False, **settings})
        self.sessions: dict[str, MemorySession] = {}

    def __call__(self, session_id: str, live: bool, folder: str) -> MemorySession:
        session = MemorySession(self.settings, policy=PlayedPolicy(*self.answers, gate=self.gate), session_id=session_id)
        session.apply_operations([FACT])
        self.sessions[session_id] = session
        return session

    def settle(self) -> None:
        self.gate.set()
        wait_for(lambda: not any(session.inspect()["in_flight"] for session in self.sessions.values()))
        self.gate.clear()


MakeHost = Callable[..., HookHost]


@pytest.fixture
def make_host() -> Iterator[MakeHost]:
    hosts: list[HookHost] = []

    def make(daemon: Daemon, client: str = "claude", **options: Any) -> HookHost:
        hosts.append(HookHost(daemon, client=client, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def test_the_same_event_from_two_registrations_is_printed_by_exactly_one(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire(batch("t1"))
    opened.settle()
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(host.fire(batch("t2")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 4 and sum(answer is not None for answer in answers) == 1
    assert len(opened.sessions["s1"].window()) == 2 and host.daemon.counts["told_twice"] == 3


def test_a_prompt_told_twice_at_once_is_one_prompt_and_twice_in_time_is_two(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire(PROMPT)
    assert opened.sessions["s1"].inspect()["num_turns"] == 1
    host.fire({**PROMPT, "prompt_id": "p2"})
    assert opened.sessions["s1"].inspect()["num_turns"] == 2
    time.sleep(2.1)
    host.fire({**PROMPT, "prompt_id": "p2"})
    assert opened.sessions["s1"].inspect()["num_turns"] == 3


def test_two_calls_that_return_the_same_are_two(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(batch("t1", text="same"))
    host.fire(batch("t2", text="same"))
    assert len(opened.sessions["s1"].window()) == 2


def test_a_batch_and_single_results_registered_together_say_it_once(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    single = {
        "hook_event_name": "PostToolUse", "session_id": "s1", "tool_name": "Bash", "tool_input": {"command": "echo t1"},
        "tool_use_id": "t1", "tool_response": {"stdout": "done", "stderr": "", "interrupted": False},
    }  # fmt: skip
    host.fire(single)
    opened.settle()
    answers = [host.fire(batch("t1")), host.fire({**single, "tool_use_id": "t2"}), host.fire(batch("t2"))]
    said = [answer is not None and REMIND in str(answer) for answer in answers]
    assert said[0] and sum(said[1:]) <= 1  # what t2 earned may ride on its own batch already, but once
    assert len(opened.sessions["s1"].window()) == 2


def test_eight_sessions_at_once(make_host: MakeHost) -> None:
    opened = Speaking()
    opened.gate.set()
    host = make_host(Daemon(opened))

    def work(name: str) -> None:
        host.fire({**PROMPT, "session_id": name, "prompt": f"the task of {name}"})
        for number in range(3):
            host.fire(batch(f"{name}-{number}", session_id=name))

    threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(opened.sessions) == 8 and host.daemon.counts["faults"] == 0
    for name, session in opened.sessions.items():
        snapshot = session.prepare() or session.on_manual() or session.prepare()
        assert snapshot is not None and snapshot.task_messages == (f"the task of {name}",)
        assert all(f"echo {name}-" in step.call for step in session.window())


def test_an_interrupted_turn_drops_what_it_earned(make_host: MakeHost) -> None:
    opened = Speaking(says(REMIND))
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire(batch("t1"))
    opened.settle()
    assert host.fire({**PROMPT, "prompt": "Stop. Do another thing.", "prompt_id": "p2"}) is None
    assert [row["reason"] for row in opened.sessions["s1"].inspect()["history"]][-1] == "turn_aborted"


def test_the_last_message_is_heard_once_with_a_transcript_and_without(make_host: MakeHost, tmp_path: Path) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    path = tmp_path / "t.jsonl"
    message = {"role": "assistant", "content": [{"type": "text", "text": "All done."}]}
    path.write_text(json.dumps({"type": "assistant", "message": message}) + "\n")
    stop = {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "All done."}
    for name, transcript in (("s1", str(path)), ("s2", None)):
        host.fire({**PROMPT, "session_id": name})
        host.fire({**stop, "session_id": name, "transcript_path": transcript})
        host.fire({**batch(f"{name}-1", session_id=name), "transcript_path": transcript})
        assert opened.sessions[name].window()[0].thought == "All done."


def test_notices_of_the_client_are_no_requirements(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire({**PROMPT, "prompt": "<task-notification>\n<status>completed</status>", "prompt_id": "p2"})
    host.fire({**PROMPT, "prompt": "wake up", "source": "loop_wakeup", "prompt_id": "p3"})
    session = opened.sessions["s1"]
    session.on_manual()
    snapshot = session.prepare()
    assert snapshot is not None and snapshot.task_messages == ("Build the report.",)


def test_a_clear_starts_anew(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire(batch("t1"))
    host.fire({"hook_event_name": "SessionStart", "session_id": "s1", "source": "clear"})
    assert opened.sessions["s1"].window() == () and opened.sessions["s1"].bank.state().entries == ()


def test_what_is_too_long_for_the_client_is_left_out_whole_and_waits(make_host: MakeHost) -> None:
    opened = Speaking(max_output_tokens=4_000)
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    session = opened.sessions["s1"]
    for number in range(12):
        session.apply_operations([Operation("save_knowledge", f"{number} " + "long " * 200)])
    assert host.fire({"hook_event_name": "SessionStart", "session_id": "s1", "source": "compact"}) is None
    waiting = session.peek()
    assert waiting is not None and waiting.restores and len(waiting.block) > 9_500
    session.commit(waiting)


@pytest.mark.parametrize("live", [True, False])
def test_by_settings_live_or_shadow(make_host: MakeHost, tmp_path: Path, live: bool) -> None:
    """Rules only: the second failure of the same command is said, or kept as what would have been said."""
    settings = Settings(state_dir=tmp_path / "state")
    daemon = Daemon(open_by_settings(settings, _write(tmp_path, settings)), shadow=Shadow(settings))
    host = make_host(daemon, live=live)
    host.fire(PROMPT)
    answers = [host.fire(event) for call_id in ("t1", "t2") for event in failed(call_id)]
    said = [answer for answer in answers if answer is not None]
    if live:
        assert len(said) == 1 and "already failed at step 1" in str(said[0])
        wait_for(lambda: len(list(read_rows(settings.steps_file, StepRow))) == 1)
        assert not said_file(settings).exists()
        return
    assert said == []
    wait_for(lambda: read_said(settings, newest=1)[0] == 1)
    ((number, (kept,)),) = [read_said(settings, newest=1)]
    assert number == 1 and kept["text"].startswith("Memory: Bash make already failed at step 1") and kept["client"] == "claude"
    assert not settings.steps_file.exists(), "the books of what was really said stay clean"
    wait_for(lambda: (settings.state_dir / "shadow" / "memory" / "steps.jsonl").exists())


def test_a_settings_file_that_is_broken_meanwhile_leaves_the_last_good_one(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", cadence_tool_calls=4)
    path = _write(tmp_path, settings)
    open_for = open_by_settings(settings, path)
    path.write_text("cadence: nonsense\n")
    assert open_for("s1", True, "").settings.cadence_tool_calls == 4
    path.write_text(f"cadence_tool_calls: 7\nstate_dir: {tmp_path}\n")
    assert open_for("s2", True, "").settings.cadence_tool_calls == 7


def test_a_missing_default_settings_file_is_the_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PMEM_SETTINGS", raising=False)
    from pmem.settings import default_settings_file

    assert settings_file(str(default_settings_file())) is None
    assert settings_file(str(tmp_path / "other.yaml")) == tmp_path / "other.yaml"
    monkeypatch.setenv("PMEM_SETTINGS", "x")
    assert settings_file(str(tmp_path / "other.yaml")) is None


def test_memory_and_handoff_reach_the_live_sessions(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    host.fire(PROMPT)
    host.fire(batch("t1"))
    monkeypatch.setenv("PMEM_STATE_DIR", str(host.settings.state_dir))
    monkeypatch.setenv("PMEM_DATA_DIR", str(host.settings.data_dir))
    assert main(["memory", "--json"]) == 0
    (live,) = json.loads(capsys.readouterr().out)["live"]
    assert live["session_id"] == "s1" and live["bank"]["entries"][0]["content"] == FACT.content
    assert main(["handoff", "export"]) == 0
    opened.sessions["s1"].apply_operations([Operation("delete", id="tm-k-1")])
    assert main(["handoff", "seed"]) == 0
    assert [entry.content for entry in opened.sessions["s1"].bank.state().entries] == [FACT.content]


def test_several_daemons_are_asked_as_one(make_host: MakeHost) -> None:
    first, second = Speaking(), Speaking()
    one, two = make_host(Daemon(first)), make_host(Daemon(second))
    one.fire(PROMPT)
    two.fire({**PROMPT, "session_id": "s2"})
    other = one.settings.state_dir / "live-other.sock"
    other.symlink_to(two.socket_file)
    found = ask(one.settings, {"op": "inspect"})
    assert found is not None and {session["session_id"] for session in found["sessions"]} == {"s1", "s2"}
    unknown = ask(one.settings, {"op": "seed", "session_id": "nobody", "path": "x"})
    assert unknown is not None and "no live session" in unknown["error"]


def test_requests_that_are_wrong_stop_nothing(make_host: MakeHost) -> None:
    host = make_host(Daemon(Speaking()))
    for request in (
        {"op": "hook", "client": "nobody", "bytes": 2},
        {"op": "hook"},
        {"op": "hook", "client": "claude", "bytes": -1},
    ):
        assert ask_at(host.socket_file, request) is None
    assert ask_at(host.socket_file, {"op": "what"}) == {"error": "unknown op 'what'; known are inspect and seed"}
    wait_for(lambda: host.daemon.counts["faults"] == 3)
    assert host.fire(PROMPT) is None


def test_codex_threads_under_one_session_id_are_apart(make_host: MakeHost, tmp_path: Path) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened), client=CODEX.name)
    for thread in ("a", "b"):
        path = tmp_path / f"rollout-{thread}.jsonl"
        path.touch()
        host.fire({**PROMPT, "transcript_path": str(path), "prompt": f"task {thread}"})
    assert set(opened.sessions) == {"s1/rollout-a.jsonl", "s1/rollout-b.jsonl"}


def test_pmem_hook_run_is_the_same_client(make_host: MakeHost) -> None:
    opened = Speaking()
    host = make_host(Daemon(opened))
    command = [
        PYTHON,
        "-c",
        "import sys; from pmem.cli import main; sys.exit(main(sys.argv[1:]))",
        "hook",
        "run",
        "--client",
        "claude",
    ]
    environment = {
        **os.environ, "CLAUDE_PROJECT_DIR": str(host.project), "PMEM_STATE_DIR": str(host.settings.state_dir),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    done = subprocess.run(
        command, input=json.dumps(PROMPT).encode(), env=environment, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")
    wait_for(lambda: "s1" in opened.sessions)
    wrong = subprocess.run([*command, "--nonsense"], input=b"{", env=environment, capture_output=True, timeout=60, check=False)
    assert (wrong.returncode, wrong.stdout) == (0, b"")


def test_what_is_written_is_the_client_itself(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "s", data_dir=tmp_path / "d")
    script = write_client(settings, HookConfig())
    assert "'live': False" in script.read_text() and (tmp_path / "s").is_dir()


def _write(folder: Path, settings: Settings) -> Path:
    path = folder / "settings.yaml"
    path.write_text(f"state_dir: {settings.state_dir}\ncadence_tool_calls: {settings.cadence_tool_calls}\n")
    return path
