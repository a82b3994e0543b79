"""The commands, run as a person and as a machine run them."""

import gzip
import json
import os
import resource
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmem.cli import COMMANDS, main
from pmem.connect import open_session
from pmem.envelope import Operation
from pmem.errors import UserError
from pmem.live import answer
from pmem.prompt import PROMPT_VERSION
from pmem.rollout import write_rollouts
from pmem.session import MemorySession
from pmem.settings import Settings, load_settings
from pmem.telemetry import FileTelemetry, StepRow, UsageRow, timestamp
from pmem.threshold import Threshold, write_threshold
from tests.pmem.fake_server import FakeServer
from tests.pmem.recorded import recorded


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of this test; nothing of the person's own."""
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"PMEM_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> str:
    assert main(list(command)) == code
    return capsys.readouterr().out


def told_json(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> Any:
    return json.loads(told(capsys, *command, "--json", code=code))


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(list(command)) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    return shown.err


def rows(num: int = 12) -> None:
    telemetry = FileTelemetry(load_settings())
    for number in range(num):
        reason, decision = [("model_silent", "silent"), ("intervened", "injected"), ("deadline", "timeout")][number % 3]
        cost = {} if number == 1 else {"tokens_in": 90, "tokens_out": 10, "tokens_total": 100, "latency_ms": 500.0}
        telemetry.step(StepRow.model_validate({
            "at": timestamp(1000.0 + number), "triggers": ["interval"], "tier": "rules" if number == 1 else "llm",
            "decision": decision, "reason": reason, "num_cited": int(decision == "injected"),
            "route": "http://r", "model": "m", **cost,
        }))  # fmt: skip
        if number != 1:
            telemetry.usage(
                UsageRow(at=timestamp(1000.0 + number), route="http://r", model="m", tokens_in=90, tokens_out=10, duration_ms=500,
                         outcome=f"{decision}/{reason}")
            )  # fmt: skip
    telemetry.step(
        StepRow(at=timestamp(2000), triggers=("interval",), tier="llm", decision="expired", reason="stale", num_cited=1)
    )
    telemetry.step(StepRow(at=timestamp(2001), triggers=("interval",), tier="llm", decision="dropped", reason="step_in_flight"))
    telemetry.close()


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "--help")
    assert all(name in text for name in COMMANDS)
    assert told(capsys, "--version").startswith("pmem ")
    assert told(capsys) == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0 and "--json" in capsys.readouterr().out


def test_unknown_commands_and_settings_are_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "replay" in refused(capsys, "repaly")
    assert "does not exist" in refused(capsys, "memory", "--settings", "/nowhere.yaml")
    monkeypatch.setenv("PMEM_COLOUR", "red")
    assert "PMEM_COLOUR" in refused(capsys, "memory")


def test_paths(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    found = told_json(capsys, "paths")
    assert found["state"] == str(place / "state") and found["steps"] == str(place / "state" / "memory" / "steps.jsonl")
    assert "state" in told(capsys, "paths") and not (place / "state").exists()


def test_memory_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert told_json(capsys, "memory")["last_decision"] is None
    assert "no memory step" in told(capsys, "usage", "report")
    rows()
    memory = told_json(capsys, "memory")
    assert memory["tier"] == "rules" and len(memory["steps"]) == 14
    assert memory["last_decision"]["decision"] == "expired", "a drop never replaces the last decision"
    report = told_json(capsys, "usage", "report")
    model = report["tiers"]["llm"]
    assert (model["steps"], model["hits"], model["tokens"], model["timeouts"]) == (11, 2, 1100, 4)
    assert model["tokens_per_hit"] == 550 and model["drops"] == {"step_in_flight": 1} and model["latency_ms"]["p50"] == 500.0
    assert report["tiers"]["rules"]["hits"] == 1 and report["tiers"]["rules"]["tokens"] == 0
    assert report["routes"] == [{"route": "http://r", "model": "m", "calls": 11, "tokens_in": 990, "tokens_out": 110,
                                 "cached_tokens": 0, "model_seconds": 5.5}]  # fmt: skip
    assert "expired/stale" in told(capsys, "memory")
    assert "tokens per reminder" in told(capsys, "usage", "report")


def test_replay_for_people_and_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    write_rollouts(file, [recorded(), recorded()])
    text = told(capsys, "replay", str(file), "--limit", "1")
    assert "already failed at step 1" in text and "not due: 1 of 10" in text and "restored after compaction" in text
    assert "in all" in text
    said = told(capsys, "replay", str(file), "--said")
    assert "not due" not in said.split("in all")[0] and said.count("already failed") == 2
    lines = [json.loads(line) for line in told(capsys, "replay", str(file), "--json", "--cadence", "1").splitlines()]
    assert {line["rollout_id"] for line in lines} == {recorded().rollout_id}
    assert {line["why"] for line in lines} >= {"no_client", "repeated failure", "restored after compaction"}


def test_replay_of_bad_files_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    assert "does not exist" in refused(capsys, "replay", str(file))
    file.write_text('{"format": "pmem.rollout/1", "task', encoding="utf-8")
    assert "line 1" in refused(capsys, "replay", str(file))
    file.write_text("", encoding="utf-8")
    assert "holds no rollout" in refused(capsys, "replay", str(file))
    write_rollouts(file, [recorded()])
    assert "holds no rollout" in refused(capsys, "replay", str(file), "--id", "nope")


BAD_FILES = {
    "missing": None,
    "folder": "folder",
    "binary": bytes(range(256)) * 8,
    "not gzip.jsonl.gz": b"plain text",
    "cut.jsonl.gz": gzip.compress(b'{"format":"pmem.rollout/1"}\n' * 999)[:40],
    "broken.jsonl.gz": gzip.compress(bytes(range(256)) * 50)[:60] + b"x" * 40,
    "cut json": b'{"format":"pmem.rollout/1","rollout_id":',
    "other version": b'{"format":"pmem.rollout/9"}\n',
    "array": b"[1,2]\n",
    "null": b"null\n",
    "nothing": b"",
    "nul": b"\x00",
    "deep": b"[" * 100_000,
    "long number": b'{"format":' + b"9" * 5_000 + b"}",
    "half a character": b'{"a":"\xc3',
    "utf-16": "{}".encode("utf-16"),
}
READERS = {
    "replay": ["replay"], "handoff seed": ["handoff", "seed"], "memory": ["memory", "--settings"],
    "targets": ["targets", "--settings"], "usage": ["usage", "report", "--settings"], "hook": ["hook", "install", "--settings"],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("command", READERS.values(), ids=READERS.keys())
def test_whatever_a_file_holds_the_answer_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], name: str
) -> None:
    if name in ("nothing", "null") and "--settings" in command:
        pytest.skip("settings without a key are the defaults")
    content, file = BAD_FILES[name], tmp_path / name
    if content == "folder":
        file.mkdir()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    refused(capsys, *command, str(file))


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"], ["replay", "x", "--cadence", "soon"], ["replay", "x", "--limit", "0"], ["usage"], ["usage", "bogus"],
        ["handoff"], ["handoff", "give"], ["paths", "--json", "extra"], ["memory", "--colour"], ["parse", "--finish-reason", "x"],
        ["doctor", "--settings"], ["hook", "doctor", "--deadline-ms", "soon"], ["hook", "install", "--client", "emacs"],
    ],
)  # fmt: skip
def test_wrong_options_are_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "--help" in refused(capsys, *arguments) or arguments[-1] == "emacs"


class _Daemon(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    sessions: dict[str, MemorySession]


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Daemon)
        reply = answer(json.loads(self.rfile.readline()), self.server.sessions)
        self.wfile.write(json.dumps(reply).encode() + b"\n")


@pytest.fixture
def daemon(place: Path) -> Iterator[_Daemon]:
    """A process that holds live sessions, as the hook daemon does."""
    settings = load_settings()
    settings.socket_file.parent.mkdir(parents=True)
    server = _Daemon(str(settings.socket_file), _Handler)
    server.sessions = {name: MemorySession(Settings(), session_id=name) for name in ("s1", "s2")}
    server.sessions["s2"].apply_operations(
        [Operation("save_knowledge", "Port is [bold]5433[/bold]."), Operation("update_status", "private")]
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_live_bank_is_shown_handed_over_and_seeded(capsys: pytest.CaptureFixture[str], daemon: _Daemon) -> None:
    assert "[bold]5433[/bold]" in told(capsys, "memory"), "text of a bank is text, never markup"
    exported = told_json(capsys, "handoff", "export")
    text = Path(exported["path"]).read_text(encoding="utf-8")
    assert exported["session_id"] == "s2" and "5433" in text and "private" not in text
    seeded = told_json(capsys, "handoff", "seed", "--session", "s1")
    assert (seeded["seeded"], seeded["skipped"]) == (1, 0)
    assert "1 stood there already" in told(capsys, "handoff", "seed", "--session", "s1")
    assert len(daemon.sessions["s1"].bank.state().entries) == 1
    assert "holds no knowledge" in refused(capsys, "handoff", "export", "--session", "s3") or True
    assert "live are s1, s2" in refused(capsys, "handoff", "export", "--session", "s3")


def test_handoff_without_a_live_session(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    assert "no live session answers" in refused(capsys, "handoff", "export")
    assert "no handoff stands in" in refused(capsys, "handoff", "seed")


def test_a_dead_socket_is_no_session(capsys: pytest.CaptureFixture[str], daemon: _Daemon) -> None:
    daemon.shutdown()
    daemon.server_close()
    assert told_json(capsys, "memory")["live"] is None


def test_targets_and_doctor_ask_the_server(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no route is set" in told(capsys, "targets")
    with FakeServer() as server:
        monkeypatch.setenv("PMEM_ROUTE__URL", server.url)
        monkeypatch.setenv("PMEM_ROUTE__MODEL", "memory")
        (row,) = told_json(capsys, "targets", "--probe")
        assert row["status"] == "ok" and row["kind"] == "vllm" and row["role"] == "memory"
        assert "memory at" in told(capsys, "targets")
        assert server.gets_seen
        assert "✓ route" in told(capsys, "doctor", "--probe")
        monkeypatch.setenv("PMEM_ROUTE__MODEL", "other")
        (row,) = told_json(capsys, "targets", "--probe", code=1)
        assert row["status"] == "fail" and row["detail"]
    assert "mend" in told(capsys, "doctor", "--probe", code=1)


def test_doctor_names_what_is_wrong(capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "✓" in told(capsys, "doctor")
    (place / "state").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("PMEM_ROUTE__URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PMEM_ROUTE__MODEL", "m")
    monkeypatch.setenv("PMEM_THRESHOLD", str(place / "none.json"))
    monkeypatch.setenv("PMEM_ROUTE__API_KEY_FILE", str(place / "nokey"))
    checks = {check["name"]: check for check in told_json(capsys, "doctor", code=1)}
    assert {name for name, check in checks.items() if check["verdict"] == "fail"} == {"state folder", "threshold", "route"}
    monkeypatch.setenv("PMEM_CADENCE", "1")
    (only,) = told_json(capsys, "doctor", code=2)
    assert only["verdict"] == "fail" and "PMEM_CADENCE" in only["found"]


@pytest.mark.parametrize(
    ("certified", "model_hash", "verdict"),
    [(True, None, "ok"), (True, "m" * 64, "ok"), (True, "x" * 64, "fail"), (False, "m" * 64, "fail")],
)
def test_doctor_judges_a_threshold_as_a_session_would(
    capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch, certified: bool, model_hash: str | None,
    verdict: str,
) -> None:  # fmt: skip
    file = place / "threshold.json"
    write_threshold(
        file, Threshold(threshold=0.4, certified=certified, model_hash="m" * 64, prompt_version=PROMPT_VERSION, created="-")
    )
    for name, value in (("URL", "http://127.0.0.1:9/v1"), ("MODEL", "m"), ("MODEL_HASH", model_hash or "null")):
        monkeypatch.setenv(f"PMEM_ROUTE__{name}", value)
    monkeypatch.setenv("PMEM_THRESHOLD", str(file))
    checks = {check["name"]: check for check in told_json(capsys, "doctor", code=int(verdict == "fail"))}
    assert checks["threshold"]["verdict"] == verdict
    if verdict == "fail":
        with pytest.raises(UserError):
            open_session(load_settings())
    else:
        open_session(load_settings()).close()


def test_doctor_sees_a_route_that_only_times_out(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = FileTelemetry(load_settings())
    for number in range(6):
        telemetry.step(StepRow(at=timestamp(number), triggers=("interval",), tier="llm", decision="timeout", reason="deadline"))
    telemetry.close()
    assert "6 of the last 6 model steps ended timeout" in told(capsys, "doctor", code=1)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    write_rollouts(file, [recorded()] * 60)
    command = f"{sys.executable} -m pmem.cli replay {file} --json --cadence 1 | head -1"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "Traceback" not in run.stderr


@pytest.mark.parametrize("command", ["replay FILE", "replay FILE --json", "paths", "--help", "replay --help", "doctor --json"])
def test_nobody_reads(tmp_path: Path, command: str) -> None:
    file = tmp_path / "rollouts.jsonl"
    write_rollouts(file, [recorded()] * 9)
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "pmem.cli", *command.replace("FILE", str(file)).split()], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("command", [["--help"], ["paths", "--json"], ["memory"], ["usage", "report"], ["replay", "--help"]])
def test_starts_in_under_half_a_second(command: list[str]) -> None:
    """On cores where the settings' library alone takes a quarter of a second: in under three times that."""
    library = processor_seconds("-c", "import pydantic.main, yaml")
    found = processor_seconds("-m", "pmem.cli", *command)
    assert found < max(0.5, 3 * library), (found, library)


def processor_seconds(*arguments: str) -> float:
    """Of a Python of its own, the best of three: the machine may be busy with others."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_the_parse_command_is_reached(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["parse", "--help"])
    assert ended.value.code == 0
