"""README and docs/ against the repository: links, commands, and the Python that they show."""

import re
from pathlib import Path
from typing import Any

import pytest

from data.importers.documents import Peek
from eval.ab import AbConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_modules_and_tests_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"python -m ((?:data|train|serve|eval|tests)\.[\w.]+\w)", text):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
    for name in re.findall(r"\b((?:configs|benchmarks|tests)/[\w/]+\.(?:py|yaml))", text):
        assert (ROOT / name).exists(), name


def test_every_page_is_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        linked = {
            (page.parent / name).resolve() for name in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text(encoding="utf-8"))
        }
        todo += linked - reached
    assert set(PAGES) <= reached


def test_the_loop_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "PMEM_STATE_DIR", "PMEM_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (program,) = python_of("README.md")
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["note"] is None and names["reminder"] is None
    note = names["session"].on_tool_result(tool="bash", args={"cmd": "make"}, text=names["output"], is_error=True)
    assert "already failed at step 1" in note


def test_the_format_of_the_importing_page_is_one() -> None:
    (program,) = python_of("docs/importing.md")
    names: dict[str, Any] = {}
    exec(program, names)
    record = {
        "my_task": "Build it.",
        "id": "t1",
        "my_steps": [{"tool": "bash", "args": {"cmd": "make"}, "output": "no", "code": 2}],
    }
    assert names["FORMAT"].detects(Peek("object", [record]))
    (made,) = names["FORMAT"].convert(record, names["Document"](path=Path("runs.json")))
    assert made.task_id == "t1" and [event.is_error for event in made.events if event.kind == "tool_result"] == [True]


def test_the_runner_of_the_evaluation_page_is_one() -> None:
    (program,) = python_of("docs/evaluation.md")
    names: dict[str, Any] = {}
    exec(program, names)
    runner = names["mine"](AbConfig(num_tasks=3))
    assert len({spec.task for spec in runner.specs}) == 3 and runner.open_episode is names["MyEpisode"]
