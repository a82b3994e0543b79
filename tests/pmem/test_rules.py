"""The tier without a model: repeated failures, what ends or excuses them, and the restore after a compaction."""

from typing import Any

import pytest

from pmem.bank import Bank
from pmem.envelope import Operation
from pmem.observer import Observer
from pmem.rules import MAX_FAILURES, Advisory, requests_repeat, restored_state
from pmem.tool_kinds import changes_workspace, is_probing_read
from pmem.triggers import Triggers

FAIL = "make: *** No rule to make target 'all'.  Stop."


class World:
    """An observer with a bank, and short ways to let things happen."""

    def __init__(self, window: int = 8) -> None:
        self.tick = 0
        self.bank = Bank(clock=lambda: float(self.tick))
        self.triggers = Triggers(100)
        self.observer = Observer(self.bank, self.triggers, window)

    def call(self, command: str, text: str = "", *, error: bool = False, **more: Any) -> Advisory | None:
        self.tick += 1
        given: dict[str, Any] = {"call_id": None, "changes_workspace": None, "is_probe": False, **more}
        return self.observer.on_tool_result(tool="bash", args={"command": command}, text=text, is_error=error, **given)

    def fail(self, command: str = "make all", text: str = FAIL, **more: Any) -> Advisory | None:
        return self.call(command, text, error=True, **more)


def test_first_failure_is_kept_and_not_said() -> None:
    world = World()
    assert world.fail() is None
    (entry,) = world.bank.state().entries
    assert entry.kind == "procedural" and "make all" in entry.content and "No rule to make target" in entry.content


def test_second_equal_failure_is_said_once_and_cites_its_entry() -> None:
    world = World()
    world.fail()
    advisory = world.fail()
    assert advisory is not None
    assert advisory.entry_id == "tm-p-1" and "[tm-p-1]" in advisory.text and "step 1" in advisory.text
    assert world.fail() is None, "once a turn"
    (entry,) = world.bank.state().entries
    assert "failed 3 times" in entry.content, "one entry a fingerprint"


def test_a_later_turn_earns_it_again() -> None:
    world = World()
    world.fail()
    assert world.fail() is not None
    world.observer.rules.on_turn_start()
    again = world.fail()
    assert again is not None and "step 2" in again.text


def test_an_advisory_stays_under_the_budget_of_a_reminder() -> None:
    world = World()
    for _ in range(2):
        advisory = world.fail("make " + "é" * 300, "error: " + "x" * 400)
    assert advisory is not None and len(advisory.text) <= 500


def test_a_different_error_is_another_failure() -> None:
    world = World()
    world.fail()
    assert world.fail(text="make: *** [x] Error 2") is None
    assert world.fail(text="make: *** [x] Error 2") is not None


def test_only_what_varies_by_itself_may_differ() -> None:
    world = World()
    world.fail(text="FAILED test_a in 0.31s: timeout at 0x7f00aa")
    assert world.fail(text="FAILED test_a in 0.29s: timeout at 0x7f11bb") is not None


def test_a_failure_outside_the_window_does_not_count() -> None:
    world = World(window=3)
    world.fail()
    for number in range(3):
        world.call(f"ls {number}", "a")
    assert world.fail() is None
    assert world.fail() is not None


@pytest.mark.parametrize("more", [{}, {"changes_workspace": True}])
def test_a_change_in_between_makes_it_a_first_failure(more: dict[str, Any]) -> None:
    world = World()
    world.fail()
    world.call("sed -i s/a/b/ Makefile" if not more else "frobnicate", **more)
    assert world.fail() is None
    assert world.fail() is not None


def test_a_failed_change_changes_nothing() -> None:
    world = World()
    world.fail()
    world.fail("cp a b", "cp: cannot create 'b': read-only", changes_workspace=True)
    assert world.fail() is not None


def test_a_success_of_the_same_call_ends_the_episode() -> None:
    world = World()
    world.fail()
    world.call("make all", "ok")
    assert world.fail() is None


def test_what_the_operator_asked_for_is_exempt() -> None:
    world = World()
    world.fail()
    world.observer.on_user_message("Run it again, please.")
    assert world.fail() is None
    assert world.triggers.due() == (), "nor does it arm the streak"
    world.observer.on_user_message("go on")
    assert world.fail() is not None


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("run it again", True),
        ("Please rerun the tests", True),
        ("ok, retry", True),
        ("Check the config and try once more.", True),
        ("execute make twice", True),
        ("do not run it again", False),
        ("never retry that", False),
        ("don't try again", False),
        ("The tests run again and again in CI", False),
        ("Write the report as JSON", False),
        ("", False),
    ],
)
def test_operator_requests(message: str, asked: bool) -> None:
    assert requests_repeat(message) is asked


def test_a_probing_read_is_no_failure() -> None:
    world = World()
    assert world.fail("cat notes.txt", "cat: notes.txt: No such file or directory") is None
    assert world.fail("cat notes.txt", "cat: notes.txt: No such file or directory") is None
    assert world.bank.state().entries == () and world.triggers.due() == ()
    world.fail("custom probe", "nothing there", is_probe=True)
    assert world.bank.state().entries == ()


@pytest.mark.parametrize(
    ("tool", "args", "changes"),
    [
        ("bash", {"command": "ls -la"}, False),
        ("bash", {"command": "pytest -q 2>&1 | tail -3"}, False),
        ("bash", {"command": "python run.py > out.txt"}, True),
        ("bash", {"command": "grep -r x . 2>/dev/null"}, False),
        ("bash", {"command": "cd a && git commit -m x"}, True),
        ("bash", {"command": "git status && git diff"}, False),
        ("bash", {"command": "pip install -q foo"}, True),
        ("shell", {"cmd": ["sed", "-i", "s/a/b/", "f"]}, True),
        ("execute_bash", {"command": "touch a"}, True),
        ("sqlite", {"query": "x"}, False),
        ("bash", {"command": "sqlite3 a.db 'INSERT INTO t VALUES (1)'"}, True),
        ("write_file", {"path": "a"}, True),
        ("str_replace_editor", {"command": "view", "path": "a"}, False),
        ("str_replace_editor", {"command": "create", "path": "a"}, True),
        ("read_file", {"path": "a"}, False),
    ],
)
def test_what_changes_the_workspace(tool: str, args: dict[str, Any], changes: bool) -> None:
    assert changes_workspace(tool, args) is changes


def test_probing_reads() -> None:
    assert is_probing_read("read_file", {"path": "x"}, "File not found: x")
    assert is_probing_read("bash", {"command": "ls /nowhere"}, "ls: cannot access '/nowhere': No such file or directory")
    assert is_probing_read("bash", {"command": "grep -r nothing src"}, " \n")
    assert not is_probing_read("bash", {"command": "grep -r nothing src"}, "grep: invalid option")
    assert not is_probing_read("bash", {"command": "./run.sh"}, "")
    assert not is_probing_read("bash", {"command": "make"}, "No such file or directory")
    assert not is_probing_read("bash", {"command": "catalyst --all"}, "catalyst: command not found")
    assert not is_probing_read("write_file", {"path": "x"}, "parent not found")


def test_failures_are_bounded() -> None:
    world = World()
    for number in range(3 * MAX_FAILURES):
        world.fail(f"make {number}")
    assert len(world.observer.rules._failures) == MAX_FAILURES
    assert len(world.bank.state().entries) == 30


def test_secrets_reach_neither_bank_nor_advisory() -> None:
    world = World()
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    command = f"curl -H 'Authorization: token {secret}' https://x"
    world.fail(command, f"error: {secret} refused")
    advisory = world.fail(command, f"error: {secret} refused")
    assert advisory is not None and "ghp_" not in advisory.text
    assert "ghp_" not in world.bank.state().model_dump_json()


def restorable() -> Bank:
    ticks = iter(range(1000))
    bank = Bank(clock=lambda: float(next(ticks)))
    bank.apply(
        [
            Operation("update_status", "half way"),
            Operation("save_knowledge", 'report is "JSON"'),
            Operation("save_procedural", "make all fails"),
            Operation("save_knowledge", "port is 5433"),
        ]
    )
    return bank


def test_restore_shows_status_then_knowledge_then_procedural() -> None:
    text, shown = restored_state(restorable().state(), 2000)
    lines = text.split("\n")
    assert "Remembered and unverified" in lines[0]
    assert lines[1] == '- status (historical): "half way"'
    assert set(shown) == {"tm-k-1", "tm-k-3", "tm-p-2"} or len(shown) == 3
    assert lines[-1].endswith('"make all fails"') and '"report is \\"JSON\\""' in text


def test_restore_of_an_empty_bank_is_nothing() -> None:
    assert restored_state(Bank(clock=lambda: 0.0).state(), 2000) == ("", ())


def test_restore_leaves_out_whole_what_does_not_fit() -> None:
    text, shown = restored_state(restorable().state(), 260)
    assert len(text) <= 260 and len(shown) < 3
    assert all(line.endswith('"') for line in text.split("\n")[1:])


def test_restore_merges_equal_contents() -> None:
    bank = Bank(clock=lambda: 0.0)
    bank.apply([Operation("save_knowledge", "Port is 5433"), Operation("save_procedural", "port IS 5433")])
    _, shown = restored_state(bank.state(), 2000)
    assert len(shown) == 1
