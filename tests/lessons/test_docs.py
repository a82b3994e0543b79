"""docs/lessons.md against what it speaks of: the ReframeWeb memory report, and the commands."""

import re
from pathlib import Path

import pytest

from pmem.lessons import command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")


def test_every_record_and_route_that_the_report_names_stands_in_the_table() -> None:
    reports = sorted((ROOT.parent / "shared" / "seeds").glob("001*.txt"))
    if not reports:
        pytest.skip("needs the report beside the repository")
    named = set(re.findall(r"\b(?:MEM|RT)-[A-Z]{2,4}-[a-z-]*[a-z]", reports[0].read_text(encoding="utf-8")))
    assert len(named) > 20
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert [name for name in sorted(named) if not any(f"`{name}`" in row for row in rows)] == []


def test_every_command_is_in_the_help() -> None:
    assert command.__doc__ is not None
    choices = next(action.choices for action in command._parser()._actions if action.dest != "help" and action.choices)
    missing = [name for name in choices if not re.search(rf"(?:pmem lessons|·) {name}\b", command.__doc__)]
    assert [name for name in missing if f"| {name}" not in command.__doc__] == []
