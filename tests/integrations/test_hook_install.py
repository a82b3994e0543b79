"""`pmem hook install` leaves everybody else's settings as they were; `pmem hook doctor` finds what is wrong."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmem.cli import main
from pmem.integrations.hook import install
from pmem.integrations.hook.dialects import CLAUDE, CODEX
from tests.integrations.daemons import stop_daemons

OTHERS = {
    "model": "opus",
    "hooks": {
        "PostToolBatch": [{"matcher": "", "hooks": [{"type": "command", "command": "lint.sh", "timeout": 9}]}],
        "Notification": [{"hooks": [{"type": "command", "command": "beep"}]}],
    },
    "permissions": {"allow": ["Bash(ls:*)"]},
}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of this test's own."""
    root = Path(tempfile.mkdtemp(prefix="pmem"))
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"PMEM_{name}_DIR", str(root / name.lower()))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(root / "codex"))
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(root))
    monkeypatch.chdir(root)
    yield root
    stop_daemons(root / "state")
    shutil.rmtree(root, ignore_errors=True)


def told(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> Any:
    assert main(["hook", *command, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=4))
    return path


def entries(path: Path) -> dict[str, int]:
    found = install.registered(json.loads(path.read_text()))
    return {event: len(hooks) for event, hooks in found.items()}


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_first_installation(home: Path, capsys: pytest.CaptureFixture[str], client: str) -> None:
    found = told(capsys, "install", "--client", client)
    path = home / "claude" / "settings.json" if client == "claude" else home / "codex" / "hooks.json"
    assert found == {"client": client, "settings": str(path), "changed": True, "backup": None, "mode": "shadow"}
    dialect = CLAUDE if client == "claude" else CODEX
    assert entries(path) == dict.fromkeys(dialect.registered, 1)
    for groups in json.loads(path.read_text())["hooks"].values():
        ((hook,),) = [group["hooks"] for group in groups]
        assert hook["type"] == "command" and hook["command"].endswith(f"{client} 2>/dev/null || true")


def test_others_are_untouched_and_twice_is_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(home / "claude" / "settings.json", OTHERS)
    path.chmod(0o600)
    original = path.read_text()
    first = told(capsys, "install")
    assert Path(first["backup"]).read_text() == original and path.stat().st_mode & 0o777 == 0o600
    installed = json.loads(path.read_text())
    assert installed["hooks"]["PostToolBatch"][0] == OTHERS["hooks"]["PostToolBatch"][0]  # type: ignore[index]
    assert list(installed) == list(OTHERS), "in their order"
    text = path.read_text()
    again = told(capsys, "install", "--live", "--deadline-ms", "200")
    assert again["changed"] is False and again["backup"] is None and path.read_text() == text
    assert "'live': True" in (home / "data" / "hook" / install.SCRIPT).read_text(), "the configuration stands in the script"
    removed = told(capsys, "install", "--uninstall")
    assert removed["changed"] and json.loads(path.read_text()) == OTHERS
    assert told(capsys, "install", "--uninstall")["changed"] is False
    assert len(list(path.parent.glob("*.before-pmem-*"))) == 2


def test_an_entry_of_another_version_is_replaced(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"type": "command", "command": f"/old/python /old/{install.SCRIPT} claude"}
    mixed = [{"hooks": [{"type": "command", "command": "lint.sh"}, old]}]
    path = write(home / "claude" / "settings.json", {"hooks": {"Stop": mixed, "PreToolUse": [{"hooks": [old]}]}})
    told(capsys, "install")
    hooks = json.loads(path.read_text())["hooks"]
    assert entries(path) == dict.fromkeys(CLAUDE.registered, 1) and "PreToolUse" not in hooks
    assert hooks["Stop"][0] == {"hooks": [{"type": "command", "command": "lint.sh"}]}


def test_a_project_of_its_own(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = home / "project"
    assert main(["hook", "install", "--project", str(project)]) == 2 and not project.exists()
    assert "is not a folder" in capsys.readouterr().err
    project.mkdir()
    for client, name in (("claude", ".claude/settings.json"), ("codex", ".codex/hooks.json")):
        assert told(capsys, "install", "--client", client, "--project", str(project))["settings"] == str(project / name)
        assert (project / name).exists()
    assert not (home / "claude").exists()


def test_a_link_stays_a_link(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = write(home / "dotfiles" / "settings.json", OTHERS)
    (home / "claude").mkdir()
    (home / "claude" / "settings.json").symlink_to(real)
    told(capsys, "install")
    assert (home / "claude" / "settings.json").is_symlink() and entries(real)


@pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", '{"hooks": []}', "\xff"])
def test_what_cannot_be_read_is_left_as_it_is(home: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = home / "claude" / "settings.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    assert main(["hook", "install"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and str(path) in error and error.count("\n") == 1
    assert path.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    "wrong", [["--client", "emacs"], ["--deadline-ms", "5"], ["--deadline-ms", "9000"], ["--idle-minutes", "0"]]
)
def test_options_that_cannot_work(capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    assert main(["hook", "install", *wrong]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_unknown_action_is_never_an_error_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pmem hook …` may stand in somebody's settings: a code other than 0 could stop the agent."""
    monkeypatch.setenv("PMEM_ENABLED", "false")
    assert main(["hook", "--clent", "claude"]) == 0 == main(["hook", "run", "x"])


def check(found: list[dict[str, str]], name: str) -> dict[str, str]:
    return next(line for line in found if line["name"] == name)


def test_doctor_before_and_after(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = told(capsys, "doctor", code=1)
    assert check(before, "script")["verdict"] == "fail" and check(before, "registered")["verdict"] == "fail"
    told(capsys, "install")
    after = told(capsys, "doctor")
    assert {line["name"]: line["verdict"] for line in after} | {"latency": ""} == {
        "script": "ok", "claude": "ok", "latency": "", "daemon": "ok", "answers": "ok", "shadow": "note",
    }  # fmt: skip
    assert "shadow: says nothing" in check(after, "script")["found"] and "ms a call" in check(after, "latency")["found"]


def test_doctor_finds_a_double_registration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "install")
    told(capsys, "install", "--project", str(home))
    found = check(told(capsys, "doctor"), "claude")
    assert found["verdict"] == "note" and "registered twice for" in found["found"]


def test_doctor_finds_a_script_of_another_version_and_a_missing_event(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "install")
    (home / "data" / "hook" / install.CLIENT).write_text("# older\nfrom posix import _exit\n\ndef main(*_): _exit(0)\n")
    path = home / "claude" / "settings.json"
    settings = json.loads(path.read_text())
    del settings["hooks"]["PostToolBatch"]
    write(path, settings)
    found = told(capsys, "doctor", code=1)
    assert "another version" in check(found, "script")["found"] and "no PostToolBatch" in check(found, "claude")["found"]


def test_doctor_finds_a_client_that_it_sees_nothing_of(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pmem.integrations.hook.doctor import _observing

    status = {"conversations": [{"client": "claude", "tool_events": 9, "observed": 0, "session_id": "s", "faults": 0}]}
    assert [line.verdict for line in _observing(status)] == ["fail"]
    status["conversations"][0]["observed"] = 9
    assert list(_observing(status)) == []


def test_doctor_with_settings_that_cannot_be_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home / "config" / "pmem" / "settings.yaml", "cadence: 3\n")
    (found,) = told(capsys, "doctor", code=1)
    assert found["verdict"] == "fail" and "cadence" in found["found"]
