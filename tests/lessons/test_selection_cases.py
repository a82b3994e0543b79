"""Selection cases: frozen candidates, expected against kept ids, and files that people may write."""

from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons.doors import add
from pmem.lessons.selection import Depth, Request, candidates
from pmem.lessons.selection_cases import case_of, judged, read_cases, write_cases
from tests.lessons.world import PERSON, REPOSITORY, memory, new_store


def test_expected_against_kept_over_the_same_frozen_candidates(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    right, wrong = (add(store, memory(f"release {name}"), PERSON).id for name in ("notes", "party"))
    request = Request(strings=("release",), depth=Depth())
    found = candidates(store, request, repository=REPOSITORY, session="s2")
    case = case_of(request, found, expected=[right], family="release")
    path = tmp_path / "cases.jsonl"
    assert write_cases(path, [case]) == 1 and read_cases(path) == [case]
    assert judged(case, [right, "les-invented"]).correct
    both = judged(case, [right, wrong])
    assert (both.correct, both.precision, both.recall) == (False, 0.5, 1.0)
    none = judged(case, [])
    assert (none.correct, none.precision, none.recall) == (False, None, 0.0)
    with pytest.raises(UserError, match="no candidate"):
        case_of(request, found, expected=["les-none"], family="release")


@pytest.mark.parametrize("line", ["{", '{"format":"other"}', "[1]"])
def test_a_bad_case_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(line)
    with pytest.raises(UserError, match="line 1"):
        read_cases(path)
