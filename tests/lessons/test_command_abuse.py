"""Every `pmem lessons` command against every way its store or its words can be wrong: one sentence, exit code 2, no traceback."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pmem.cli import main
from pmem.lessons import store as store_module
from pmem.lessons.schema import VERSION
from pmem.lessons.store import LessonStore
from tests.lessons.world import proposed

ROOT = Path(__file__).parents[2]
ID = "les-0123456789abcdef"
REPORT = ["--backup", "backup", "--expect", "0123456789abcdef"]
COMMANDS: dict[str, list[str]] = {
    "list": [], "show": [ID], "search": ["word"], "approve": [ID], "reject": [ID], "edit": [ID, "--body", "x"], "withdraw": [ID],
    "delete": [ID, "--yes"], "link": [ID, "t"], "unlink": [ID, "t"], "history": [ID], "undo": ["1"],
    "add": ["preference", "short answers"], "review": ["review.json"], "import": ["lessons.jsonl"], "export": [], "start": [],
    "deliveries": [], "receipt": ["c", "--task", "t", "--tool", "sh", "--status", "ok"], "receipts": ["t"],
    "remember": ["x", "--task", "t", "--call", "c"], "select": ["word", "--all"], "case": ["case.jsonl", "word", "--all"],
    "agents": ["t", "."], "publish": [".", "file", "--title", "x"], "materialize": [ID, "out"], "merge": ["old.db"],
    "policy": ["tag"],
}  # fmt: skip
NEEDS_A_RECORD = {
    "show", "approve", "reject", "edit", "withdraw", "delete", "link", "unlink", "history", "undo", "receipts", "remember", "case",
    "materialize", "merge",
}  # fmt: skip
"""What says that something is not there when the store is empty; the others have an answer to an empty store."""
WRITES = {"add", "receipt", "publish", "import", "policy"}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The command in a repository with every file it may be given, and a store in `../data`."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").mkdir()
    (work / "file").write_text("1")
    (work / "review.json").write_text('{"candidates": [], "kept": {}, "purpose": "p"}')
    (work / "lessons.jsonl").write_text("")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PMEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PMEM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(store_module, "PATIENCE_S", 0.05)

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["lessons", *arguments])
        except SystemExit as stopped:  # argparse
            code = int(stopped.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    yield call


def path_of(folder: Path) -> Path:
    path = folder / "data" / "lessons" / "lessons.db"
    path.parent.mkdir(parents=True)
    return path


def one_sentence(code: int, out: str, err: str, says: str = "") -> None:
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1 and says in err, (code, out, err)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_store(run: Run, command: str) -> None:
    code, out, err = run(command, *COMMANDS[command])
    if command in NEEDS_A_RECORD:
        one_sentence(code, out, err)
    else:
        assert code == 0 and err == ""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", ["cut", "rubbish", "newer", "folder"])
def test_a_store_that_cannot_be_used(run: Run, tmp_path: Path, command: str, damage: str) -> None:
    path = path_of(tmp_path)
    if damage == "cut":
        with LessonStore(path) as store:
            for number in range(300):
                proposed(store, f"lesson {number}", body="b" * 900)
        path.write_bytes(path.read_bytes()[:50_000])
    elif damage == "rubbish":
        path.write_bytes(os.urandom(20_000))
    elif damage == "newer":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    else:
        path.mkdir()
    before = path.read_bytes() if path.is_file() else b""
    code, out, err = run(command, *COMMANDS[command], *(["--apply", *REPORT] if command == "merge" else []))
    if damage == "cut" and code != 2:
        assert "Traceback" not in err  # what is asked for may stand in the part that is left
    else:
        one_sentence(code, out, err, "install the newer pmem" if damage == "newer" else "")
        assert damage == "cut" or before == (path.read_bytes() if path.is_file() else b""), "left alone"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_another_process_holds(run: Run, tmp_path: Path, command: str) -> None:
    """Readers do not wait; a writer that waited too long says so."""
    path = path_of(tmp_path)
    with LessonStore(path) as store:
        proposed(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, out, err = run(command, *COMMANDS[command])
    if code == 2:
        one_sentence(code, out, err)
        assert command in NEEDS_A_RECORD or "held by another process" in err
    assert command not in WRITES or "held by another process" in (out if command == "publish" else err)


@pytest.mark.parametrize("name", ["", "les-", "x", "../../etc/passwd", "\udcff\udcfe", "💥", "' OR 1=1 --", "les-" + "f" * 5_000])
def test_ids_that_are_none(run: Run, tmp_path: Path, name: str) -> None:
    with LessonStore(path_of(tmp_path)) as store:
        proposed(store, "one"), proposed(store, "two")
    for command, words in COMMANDS.items():
        if words[:1] == [ID]:
            one_sentence(*run(command, name, *words[1:]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--limit", "99999999999999999999"), ("list", "--limit", "-1"), ("undo", "99999999999999999999"),
        ("receipts", "t", "--budget", "-5"), ("serve", "--port", "99999"), ("select", "x", "--days", "nan"),
        ("add", "guidance", "x" * 300, "--collection", "bank"), ("add", "preference", "x", "--collection", "bank"),
        ("add", "preference", "x", "y" * 9_000), ("add", "preference", "x", "--tags", ",".join(map(str, range(40)))),
        ("add", "preference", " "), ("add", "directory", "nowhere"), ("select", "x", "--all", "--model"),
        ("publish", ".", "../outside", "--title", "x"), ("publish", ".", "file", "--title", "x" * 300),
        ("publish", ".", "file", "--title", "x", "--base", "les-none"), ("agents", "t", "nowhere/at/all", "--replace"),
        ("case", ".", "word", "--all"), ("merge", "file"), ("merge", "."), ("import", "."), ("review", "file"),
        ("export", "file/out.jsonl"), ("nonsense",), (), ("delete", ID),
    ],
)  # fmt: skip
def test_words_that_make_no_sense(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    if "agents" in arguments:
        assert code in (0, 2)  # nothing is linked, so no file is written
        return
    assert code == 2 and out == "" and "Traceback" not in err
    assert err.count("error: ") == 1


def test_words_that_are_not_unicode_are_kept_readable(run: Run) -> None:
    assert run("add", "preference", "caf\udce9", "\udcff", "--tags", "\udcfe", "--by", "\udcfd")[0] == 0
    assert run("search", "\udcff")[0] == 0 and run("history", "--json")[0] == 0
    assert "caf\ufffd" in run("list")[1]


@pytest.mark.parametrize(
    "line",
    [
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"\\ud800","scope":"global"}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","scope":"global","tags":["\\ud800"]}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","repository":"\\ud800"}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","scope":"global","payload":{"\\ud800":1}}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","scope":"global","payload":{"a":1e999}}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","scope":"global","payload":'
        + '{"a":' * 900 + "1" + "}" * 900 + "}}",
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x","scope":"global","body":"' + "y" * 9_000 + '"}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"preference","title":"x"}}',
        '{"format":"pmem.lesson/1","draft":{"kind":"receipt","title":"x"}}',
        "[" * 100_000, "\x00", "null",
    ],
)  # fmt: skip
def test_lines_that_no_export_wrote(run: Run, line: str) -> None:
    Path("bad.jsonl").write_text(line)
    code, out, err = run("import", "bad.jsonl")
    assert "Traceback" not in err and (code == 0 or one_sentence(code, out, err) is None)
    assert run("list")[0] == 0 and run("export")[0] == 0


def test_line_ends_of_other_alphabets_stay_inside_their_record(run: Run) -> None:
    assert run("add", "preference", "t", "one\u2028two\x85three\x1cfour", "--global")[0] == 0
    assert run("export", "out.jsonl")[0] == 0
    assert run("import", "out.jsonl")[1].startswith("0 records wait for review, 1 were known")


def test_a_pipe_that_closes_and_a_missing_terminal(tmp_path: Path) -> None:
    environ = {**os.environ, "PMEM_DATA_DIR": str(tmp_path / "data"), "PMEM_STATE_DIR": str(tmp_path)}
    with LessonStore(tmp_path / "data" / "lessons" / "lessons.db") as store:
        names = [proposed(store, f"lesson {number}", body="b" * 2_000).id for number in range(200)]
    pmem = f"{sys.executable} -m pmem.cli lessons"
    for command in (f"{pmem} export | head -n 1", f"{pmem} list --limit 200 | head -n 1", f"{pmem} list --json | head -c 5"):
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert done.stdout and done.stderr == "", done.stderr
    for closed in ("< /dev/null", "<&-", ">&- </dev/null"):
        command = f"{pmem} delete {names[0]} {closed}"
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "say --yes" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_file_name_that_is_no_unicode_is_a_problem_of_its_own(run: Run) -> None:
    Path("part").mkdir()
    Path("part/good").write_text("1")
    with open(b"part/\xff", "w") as stream:
        stream.write("2")
    code, out, err = run("publish", ".", "part", "--title", "x")
    assert code == 1 and "partial: 1 files" in out and "no UTF-8" in out and err == ""
