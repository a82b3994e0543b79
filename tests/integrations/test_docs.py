"""What the pages on adapters show is run as it stands."""

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pmem.cli import main
from pmem.settings import parse_settings
from tests.integrations.daemons import stop_daemons

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["langchain.md", "mini-swe-agent.md", "claude-code.md", "codex.md"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="pmem"))
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"PMEM_{name}_DIR", str(root / name.lower()))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLAUDE_PROJECT_DIR"):
        monkeypatch.setenv(name, str(root / name.lower()))
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    monkeypatch.chdir(root)
    yield root
    stop_daemons(root / "state")
    shutil.rmtree(root, ignore_errors=True)


def test_langchain(capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("langchain") is None:
        pytest.skip("langchain is not installed")
    from langchain_core.messages import AIMessage

    from tests.integrations.rig import FAILS, run
    from tests.integrations.rig_langchain import ScriptedModel, bash, message_of

    acts = [message_of(run(FAILS), "1"), message_of(run(FAILS), "2"), AIMessage("done")]
    names: dict[str, Any] = {"model": ScriptedModel(responses=acts), "tools": [bash], "middleware": []}
    first, second = blocks("langchain.md", "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    exec(first, names)
    assert names["answer"]["messages"][-1].text == "done"
    assert "already failed at step 1" in names["answer"]["messages"][-2].text
    names["model"].i = 0
    exec(second, names)
    assert "'injected'" in capsys.readouterr().out


def test_mini_swe_agent(capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("minisweagent") is None:
        pytest.skip("minisweagent is not installed")
    from minisweagent.models.test_models import DeterministicModel, make_output

    from tests.integrations.rig import FAILS

    submit = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"}
    outputs = [make_output("", [action]) for action in ({"command": FAILS}, {"command": FAILS}, submit)]
    config = {"system_template": "You run commands.", "instance_template": "{{task}}", "cost_limit": 0}
    names: dict[str, Any] = {"model": DeterministicModel(outputs=outputs), "config": config}
    first, second = blocks("mini-swe-agent.md", "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    exec(first, names)
    shown = capsys.readouterr().out
    assert "Submitted" in shown and "'injected'" in shown
    names["model"] = DeterministicModel(outputs=outputs)
    exec(second, names)
    assert names["asking"].run("Fix it.")["exit_status"] == "Submitted"
    assert "already failed at step 1" in str(names["asking"].messages)


@pytest.mark.parametrize("page", ["claude-code.md", "codex.md"])
def test_commands(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert lines and all(line.startswith("$ pmem ") for line in lines)
    for line in lines:
        assert main(shlex.split(line)[2:]) == 0, line
        shown = capsys.readouterr()
        assert shown.err == ""


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_settings(page: str) -> None:
    for text in blocks(page, "yaml"):
        assert parse_settings(text).route is not None


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists()
