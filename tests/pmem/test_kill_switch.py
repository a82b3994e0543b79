"""`enabled: false`: no file is touched, nothing is resolved, nothing is sent. An audit hook in a fresh process shows it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pmem.cli import main
from tests.pmem.hosts import Host
from tests.pmem.policies import PlayedPolicy, says

PROGRAM = """
import json, sys
from pmem.connect import open_session
from pmem.settings import RouteSettings, Settings
import pmem.rollout, pmem.replay, pmem.handoff, pmem.live, pmem.router, encodings.idna

settings = Settings(enabled={enabled}, cadence_tool_calls=1, state_dir={state!r}, data_dir={data!r}, timeout_ms=500,
                    route=RouteSettings(url="http://127.0.0.1:9/v1", model="m", api_key_file={key!r}))
events = []
watching = True
QUIET = ("object.", "sys.", "import", "compile", "exec", "marshal.", "code.", "cpython.", "gc.", "builtins.")
def hook(event, args):
    if watching and not event.startswith(QUIET):
        events.append([event, str(args[:1])[:200]])
sys.addaudithook(hook)

session = open_session(settings)
session.on_user_message("task"); session.on_turn_start(); session.on_agent_text("plan")
for _ in range(3):
    session.on_tool_call(tool="bash", args={{"command": "make"}})
    note = session.on_tool_result(tool="bash", args={{"command": "make"}}, text="error: no", is_error=True)
    session.on_batch_end(); session.evaluate()
    assert {enabled} or note is None
session.on_compaction(); session.on_loop_signal(); session.on_manual(); session.on_session_change()
session.on_turn_end(); assert session.peek() is None; assert session.prepare() is None
pmem.handoff.export_handoff(session.bank.state(), settings, session_id="s")
assert {enabled} or pmem.handoff.newest_handoff(settings) is None
pmem.live.ask(settings, {{"op": "inspect"}})
session.close()
if {enabled}:
    import time; time.sleep(1.0)
    from pmem.journal import _writer
    _writer.flush(2.0)
watching = False
print(json.dumps(events))
"""


def audited(tmp_path: Path, *, enabled: bool) -> list[list[str]]:
    key = tmp_path / "key"
    key.write_text("k\n", encoding="utf-8")
    program = PROGRAM.format(enabled=enabled, state=str(tmp_path / "state"), data=str(tmp_path / "data"), key=str(key))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def test_disabled_does_nothing_at_all(tmp_path: Path) -> None:
    assert audited(tmp_path, enabled=False) == []
    assert not (tmp_path / "state").exists() and not (tmp_path / "data").exists()


def test_the_hook_would_have_seen_it(tmp_path: Path) -> None:
    events = {event for event, _ in audited(tmp_path, enabled=True)}
    assert "open" in events and "socket.connect" in events


def test_disabled_in_the_process_too() -> None:
    policy = PlayedPolicy(says("x [tm-k-1]"))
    host = Host(policy, enabled=False)
    host.ask()
    host.fail()
    assert host.fail() is None and host.boundary() is False
    host.session.on_compaction()
    host.ask()
    assert host.session.peek() is None and policy.seen == [] and host.ledger.steps == []
    assert host.session.inspect() == {"enabled": False}


@pytest.mark.parametrize(
    "command",
    [["memory"], ["memory", "--json"], ["handoff", "export"], ["handoff", "seed"], ["targets", "--probe"], ["doctor", "--probe"],
     ["replay", "x.jsonl"]],
)  # fmt: skip
def test_disabled_commands_say_so_and_touch_nothing(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMEM_ENABLED", "false")
    monkeypatch.setenv("PMEM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PMEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PMEM_ROUTE__URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PMEM_ROUTE__MODEL", "m")
    assert main(command) in (0, 2)
    told = capsys.readouterr()
    assert "false" in told.out + told.err
    assert list(tmp_path.iterdir()) == []
