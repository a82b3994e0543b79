"""Does a selector keep the lessons it should? Expected ids against kept ids, over frozen candidates (`pmem.selection_case/1`).

Run:  pmem lessons case cases.jsonl release notes --expect les-… --family release --all      (one case a call)
      python -m eval.selection cases=cases.jsonl                                             (arms: none, all, words)
      python -m eval.selection cases=cases.jsonl settings=settings.yaml kept=theirs.jsonl    (and a model, and another selector)

`none` and `all` are the bounds a selector must beat. Written beside the cases: figures with intervals for each arm and family,
and the kept ids of each case. Every id is intersected with the candidates first, as in delivery.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eval.selection_figures import Case, Kept, family_table
from eval.statistics import Figure
from pmem.atomic import write_text
from pmem.errors import UserError
from pmem.lessons.command_session import model_selector
from pmem.lessons.selection_cases import FORMAT, SelectionCase, judged, read_cases
from pmem.lessons.selectors import WordSelector
from pmem.settings import load_settings

Select = Callable[[SelectionCase], tuple[Sequence[str], int]]
"""Kept ids of a case, and tokens spent."""


def holds_lesson_cases(path: Path) -> bool:
    """Whether the first line of a cases file is a case of lessons."""
    try:
        with path.open(encoding="utf-8") as stream:
            first = json.loads(stream.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.get("format") == FORMAT


def run(path: Path, *, kept: Path | None, settings: Path | None, seed: int) -> int:
    """Judge all arms and write `<cases>.selection.json`."""
    cases = read_cases(path)
    arms = {name: arm(cases, select, seed) for name, select in arms_of(cases, kept, settings).items()}
    out = path.with_suffix(".selection.json")
    write_text(out, json.dumps({"format": "pmem.selection/1", "arms": arms}, indent=1) + "\n")
    for name, found in arms.items():
        shown = ", ".join(f"{figure} {Figure(**found['all'][figure]).text()}" for figure in ("exact", "precision", "recall"))
        print(f"  {name}: {shown}")
    expecting = sum(bool(case.expected) for case in cases)
    print(f"selection of lessons: {len(cases)} cases, {expecting} with something to keep; {out}")
    return 0


def arms_of(cases: Sequence[SelectionCase], kept: Path | None, settings: Path | None) -> dict[str, Select]:
    """The bounds, the rule, and what else was asked for. Raises UserError."""
    words = WordSelector()
    arms: dict[str, Select] = {
        "none": lambda case: ((), 0),
        "all": lambda case: ([candidate.id for candidate in case.candidates], 0),
        "words": lambda case: (words.select(case.strings, case.tags, case.candidates), 0),
    }
    if settings is not None:
        model = model_selector(load_settings(settings))
        arms["model"] = lambda case: (model.select(case.strings, case.tags, case.candidates), model.tokens)
    if kept is not None:
        theirs = read_kept(kept, cases)
        arms["kept"] = lambda case: (theirs[case.id], 0)
    return arms


def arm(cases: Sequence[SelectionCase], select: Select, seed: int) -> dict[str, Any]:
    """Figures of one arm over all cases and each family, and every case's result."""
    rows, results = [], []
    for case in cases:
        before = time.perf_counter()
        ids, tokens = select(case)
        latency_ms = (time.perf_counter() - before) * 1e3
        result = judged(case, ids)
        results.append(result.model_dump(mode="json"))
        known = Case(case.id, case.id, case.family, frozenset(case.expected))
        rows.append((known, Kept(frozenset(result.kept), latency_ms, tokens)))
    return {**family_table(rows, seed), "cases": results}


def read_kept(path: Path, cases: Sequence[SelectionCase]) -> dict[str, tuple[str, ...]]:
    """What another selector kept, for every case. Raises UserError with file and line."""
    found: dict[str, tuple[str, ...]] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; name JSON lines of case_id and kept_ids") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            found[value["case_id"]] = tuple(map(str, value["kept_ids"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{path}, line {number}: needs case_id and kept_ids; write one object a line") from None
    missing = [case.id for case in cases if case.id not in found]
    if missing:
        raise UserError(f"{path} says nothing of case {missing[0]} and {len(missing) - 1} more; add them, [] keeps nothing")
    return found
