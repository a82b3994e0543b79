"""`pmem lessons …`: every command once, sentences for mistakes, stored escapes shown as pictures."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pmem.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PMEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PMEM_STATE_DIR", str(tmp_path / "state"))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["lessons", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def added(run: Run, title: str, *more: str) -> str:
    code, out, _ = run("add", "guidance", title, "--collection", "bank", "--json", *more)
    assert code == 0
    return str(json.loads(out)["id"])


def test_a_lessons_whole_life(run: Run, tmp_path: Path) -> None:
    name = added(run, "Unit is EUR")
    assert "Unit is EUR" in run("list", "--here")[1]
    assert "Unit is EUR" in run("start")[1]
    assert run("edit", name, "--body", "in reports too", "--revision", "1")[0] == 0
    code, _, err = run("edit", name, "--body", "other", "--revision", "1")
    assert code == 2 and "changed meanwhile" in err
    assert "in reports too" in run("show", name[:12])[1]
    assert name in run("search", "reports")[1]
    assert run("withdraw", name, "--reason", "old")[0] == 0 and "told nothing" in run("start")[1]
    assert run("approve", name, "--global")[0] == 0 and "every repository" in run("approve", name)[1]
    assert run("reject", name)[0] == 0
    change = json.loads(run("history", name, "--json")[1])[0]["change"]
    assert run("undo", str(change))[0] == 0 and json.loads(run("show", name, "--json")[1])["state"] == "approved"
    assert run("link", name, "t1")[0] == 0 and run("unlink", name, "t1")[0] == 0
    code, out, _ = run("export", str(tmp_path / "out.jsonl"))
    assert code == 0 and "1 records" in out
    assert run("import", str(tmp_path / "out.jsonl"))[1].startswith("0 records wait")
    code, out, _ = run("delete", name, "--yes")
    assert code == 0 and "brings it back" in out
    assert run("undo", out.split("undo ")[1].split("`")[0])[0] == 0 and run("show", name)[0] == 0
    assert run("deliveries")[0] == 0 and run("policy", "saved")[0] == 0


def test_a_model_review_keeps_reasons_and_approves_nothing(run: Run, tmp_path: Path) -> None:
    from pmem.lessons.store import LessonStore
    from tests.lessons.world import proposed

    with LessonStore(tmp_path / "data/lessons/lessons.db") as store:
        one, two = proposed(store, "one").id, proposed(store, "two").id
    file = tmp_path / "review.json"
    file.write_text(
        json.dumps({"candidates": [one, two], "kept": {one: "durable"}, "rejected": {two: "vague"}, "purpose": "p", "model": "m"})
    )
    code, out, _ = run("review", str(file))
    assert code == 0 and out.startswith("1 kept (they still wait for a person), 1 rejected")
    assert json.loads(run("show", one, "--json")[1])["state"] == "proposed"
    assert "model:m: not kept: vague" in run("show", two)[1]
    file.write_text("{}")
    assert "key 'candidates'" in run("review", str(file))[2]
    assert "changed meanwhile" in run("edit", one, "--expect", "another body", "--body", "x")[2]


def test_files_and_merge(run: Run, tmp_path: Path) -> None:
    Path("x.txt").write_text("1")
    code, out, _ = run("publish", ".", "x.txt", "nope", "--title", "work", "--json")
    assert code == 1 and json.loads(out)["status"] == "partial"
    name = json.loads(out)["record"]["id"]
    assert run("materialize", name, str(tmp_path / "brought"))[0] == 0 and (tmp_path / "brought/x.txt").read_text() == "1"
    assert run("add", "instruction", "Style", "Use tabs", "--task", "t1")[0] == 0
    assert run("agents", "t1", ".")[0] == 0 and "Use tabs" in Path("AGENTS.md").read_text()
    old = tmp_path / "data/lessons/lessons.db"
    new = tmp_path / "new/lessons.db"
    assert "not there" in run("merge", str(old), "--into", str(new))[2]
    from pmem.lessons.store import LessonStore

    LessonStore(new).close()
    report = json.loads(run("merge", str(old), "--into", str(new), "--json")[1])
    assert len(report["added"]) == 2
    assert "--backup" in run("merge", str(old), "--into", str(new), "--apply")[2]
    assert "--expect" in run("merge", str(old), "--into", str(new), "--apply", "--backup", "b")[2]
    code, out, _ = run("merge", str(old), "--into", str(new), "--apply", "--backup", "b", "--expect", report["target_digest"])
    assert code == 0 and "read back" in out
    assert "no receipts" in run("receipts", "t1")[2]


def test_stored_escapes_and_markup_are_shown_as_text(run: Run) -> None:
    name = added(run, "\x1b[2J<b>[red]x[/red]\x9b31m")
    for command in (("list",), ("show", name), ("search", "red"), ("history", name)):
        out = run(*command)[1]
        assert "\x1b" not in out and "\x9b" not in out
    assert "␛[2J<b>[red]x[/red]" in run("list")[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "les-none"), "no record"),
        (("undo", "7"), "no change 7"),
        (("add", "guidance", "x"), "needs a collection"),
        (("import", "nope.jsonl"), "cannot be read"),
        (("delete", "les-none"), "no record"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2 and says in err and err.count("\n") == 1 and not out


def test_disabled_memory_keeps_the_store_shut(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PMEM_ENABLED", "false")
    assert "disabled" in run("list")[2] and not (tmp_path / "data").exists()


def test_the_core_and_its_commands_stay_light() -> None:
    heavy = ("starlette", "uvicorn", "jinja2")
    code = f"import sys, pmem.cli, pmem.session, pmem.lessons.command; sys.exit(any(name in sys.modules for name in {heavy!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, pmem.session, pmem.connect, pmem.cli; sys.exit('sqlite3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_says_what_it_lacks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from pmem.lessons.page import serve

    monkeypatch.setattr(serve, "NEEDED", ("no_such_framework",))
    code, _, err = run("serve")
    assert code == 2 and "pip install 'pmem[lessons]'" in err
