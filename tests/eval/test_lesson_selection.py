"""Selection of lessons: cases frozen by the command, judged by the stage, for the rule, a real server and somebody's own ids."""

import json
import subprocess
from pathlib import Path

import pytest

from eval import selection
from pmem.cli import main
from pmem.errors import UserError
from pmem.lessons.doors import add
from pmem.lessons.selection_cases import read_cases
from pmem.lessons.store import LessonStore
from tests.lessons.world import PERSON, memory
from tests.pmem.fake_server import FakeServer, Say

TITLES = ("release notes are written by hand", "release party in June", "deploy needs the ops key", "unit of the report is EUR")


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cases made by `pmem lessons case`: one with something to keep, one with nothing."""
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    monkeypatch.setenv("PMEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PMEM_STATE_DIR", str(tmp_path / "state"))
    with LessonStore(tmp_path / "data" / "lessons" / "lessons.db") as store:
        drafts = [memory(title).model_copy(update={"repository": str(work.resolve())}) for title in TITLES]
        ids = [add(store, draft, PERSON).id for draft in drafts]
    file = tmp_path / "cases.jsonl"
    case = ["lessons", "case", str(file), "release", "notes", "--all", "--family", "release", "--folder", str(work)]
    assert main([*case, "--expect", ids[0]]) == 0
    other = ["lessons", "case", str(file), "release", "calendar", "--all", "--family", "other", "--folder", str(work)]
    assert main(other) == 0
    assert main([*case, "--expect", ids[0]]) == 0, "the same case again is the same case"
    return file


def test_expected_against_kept_for_the_bounds_and_the_rule(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(read_cases(cases)) == 2
    assert selection.main([f"cases={cases}"]) == 0
    arms = json.loads(cases.with_suffix(".selection.json").read_text())["arms"]
    assert set(arms) == {"none", "all", "words"}
    assert arms["none"]["all"]["recall"]["value"] == 0 and arms["all"]["all"]["recall"]["value"] == 1
    assert arms["none"]["other"]["exact"]["value"] == 1, "keeping nothing is right where nothing is expected"
    assert arms["words"]["release"]["recall"]["value"] == 1
    assert arms["words"]["all"]["latency_ms"]["value"] > 0
    (kept,) = [row for row in arms["words"]["cases"] if row["expected"]]
    assert set(kept["expected"]) <= set(kept["kept"])
    out = capsys.readouterr().out
    assert "selection of lessons: 2 cases, 1 with something to keep" in out and "words: exact" in out


def test_a_model_and_somebody_elses_ids_are_further_arms(cases: Path, tmp_path: Path) -> None:
    found = read_cases(cases)
    theirs = tmp_path / "theirs.jsonl"
    rows = [{"case_id": case.id, "kept_ids": [*case.expected, "les-invented"]} for case in found]
    theirs.write_text("\n".join(map(json.dumps, rows)))
    with FakeServer() as server:
        server.play(Say("1, 99", usage={"prompt_tokens": 90, "completion_tokens": 4}))
        settings = tmp_path / "settings.yaml"
        settings.write_text(f"chat:\n  url: {server.url}\n  model: m\n  kind: openai\n")
        assert selection.main([f"cases={cases}", f"kept={theirs}", f"settings={settings}"]) == 0
    arms = json.loads(cases.with_suffix(".selection.json").read_text())["arms"]
    assert arms["kept"]["all"]["exact"]["value"] == 1, "ids that are no candidates do not count"
    assert all(len(row["kept"]) == 1 for row in arms["model"]["cases"]) and arms["model"]["all"]["tokens"]["value"] > 0


@pytest.mark.parametrize("line", ["", "{", '{"case_id": "x", "kept_ids": 3}', '{"case_id": "x", "kept_ids": []}'])
def test_bad_kept_ids_are_one_sentence(cases: Path, tmp_path: Path, line: str) -> None:
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_text(line)
    with pytest.raises(UserError, match=r"line 1|says nothing of case"):
        selection.main([f"cases={cases}", f"kept={theirs}"])


def test_a_file_that_breaks_after_its_first_case_names_the_line(cases: Path) -> None:
    cases.write_text(cases.read_text() + "{}\n")
    with pytest.raises(UserError, match="line 3"):
        selection.main([f"cases={cases}"])
