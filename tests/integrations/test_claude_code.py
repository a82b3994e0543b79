"""The real Claude Code command line with an installed hook, played by a scripted server on this machine.

Needs the command line: `claude` of the package claude-agent-sdk, or the path in CLAUDE_CODE_CLI.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pmem.integrations.hook.dialects import CLAUDE
from pmem.live import ask
from pmem.settings import Settings
from tests.integrations.anthropic_server import ScriptedAnthropic, text, tool_use
from tests.integrations.daemons import stop_daemons

pytestmark = pytest.mark.slow
FAILS = "sh -c 'echo kaboom >&2; exit 3'"


def command_line() -> str | None:
    spec = find_spec("claude_agent_sdk")
    bundled = Path(spec.origin).parent / "_bundled" / "claude" if spec and spec.origin else None
    return os.environ.get("CLAUDE_CODE_CLI") or (str(bundled) if bundled and bundled.exists() else None)


@pytest.fixture
def home() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="pmem"))
    (root / "project").mkdir()
    yield root
    stop_daemons(root / "state")
    shutil.rmtree(root, ignore_errors=True)


def environment(home: Path, url: str = "") -> dict[str, str]:
    return {
        "HOME": str(home), "PATH": os.environ["PATH"], "CLAUDE_CONFIG_DIR": str(home / "claude"), "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-not-a-key", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1", "PMEM_STATE_DIR": str(home / "state"),
        "PMEM_DATA_DIR": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip


def install(home: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pmem.cli", "hook", "install", "--client", "claude", "--deadline-ms", "3000", *options]
    subprocess.run(command, env=environment(home), check=True, capture_output=True)


def play(home: Path, turns: list[Any]) -> list[dict[str, Any]]:
    """Run one prompt to its end; the requests of the main agent."""
    found = command_line()
    if found is None:
        pytest.skip("the Claude Code command line is not installed (package claude-agent-sdk, or CLAUDE_CODE_CLI)")
    with ScriptedAnthropic(turns) as server:
        done = subprocess.run(
            [found, "-p", "Build the report as JSON.", "--dangerously-skip-permissions", "--output-format", "json"],
            cwd=home / "project", env=environment(home, server.url), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["is_error"] is False
        return server.requests


SCRIPT = [
    [text("Now build. Next: write out/report.json."), tool_use("t1", "Bash", command="sleep 1; echo first", description="a"),
     tool_use("t2", "Bash", command=FAILS, description="b"), tool_use("t3", "Bash", command="echo third", description="c")],
    [tool_use("t4", "Bash", cmd="x"), tool_use("t5", "Nope", a=1)],
    [text("Again."), tool_use("t6", "Bash", command=FAILS, description="other words for it")],
    [tool_use("t7", "Bash", command="echo on", description="d")],
]  # fmt: skip


def test_it_observes_orders_and_speaks_once(home: Path) -> None:
    install(home, "--live")
    requests = play(home, [list(turn) for turn in SCRIPT])
    told = [json.dumps(request["messages"]).count("already failed at step 2 with the same error") for request in requests]
    assert told == [0, 0, 0, 1, 1], "with the second failure; a hook's context stays in the transcript"
    assert not CLAUDE.transient
    assert "&lt;system-reminder" not in json.dumps(requests), "the client wraps the text itself"
    live = ask(Settings(state_dir=home / "state"), {"op": "inspect"})
    assert live is not None
    (session,) = live["sessions"]
    steps = [(step["outcome"], step["call"]) for step in session["window"]]
    assert [outcome for outcome, _ in steps] == ["ok", "error", "ok", "error", "error", "error", "ok"]
    assert [call for _, call in steps][:3] == ["Bash sleep 1; echo first", f"Bash {FAILS}", "Bash echo third"]
    assert session["window"][0]["thought"] == "Now build. Next: write out/report.json."
    assert session["faults"] == 0 and session["num_turns"] == 1


def test_shadow_changes_nothing(home: Path) -> None:
    install(home)
    requests = play(home, [list(turn) for turn in SCRIPT])
    assert "already failed" not in json.dumps(requests)
    rows = [json.loads(line) for line in (home / "state" / "shadow" / "said.jsonl").read_text().splitlines()]
    assert len(rows) == 1 and "already failed at step 2" in rows[0]["text"] and rows[0]["event"] == "PostToolBatch"
