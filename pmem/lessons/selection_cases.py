"""Cases for the selection benchmark: frozen candidates, the ids an expert expects, and the ids a selector kept.

    write_cases(path, [case_of(request, found, expected=["les-…"], family="release")])      # `pmem lessons case` does this
    for case in read_cases(path): result = judged(case, kept)                               # `python -m eval.selection` does this

One JSON object a line, `pmem.selection_case/1`; people may write their own. Candidates stand in the case with their text, so a
case needs no store and every selector sees the same ones.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pmem.atomic import write_text
from pmem.canonical import canonical_json, content_id
from pmem.errors import UserError
from pmem.lessons.records import Record
from pmem.lessons.selection import Request

FORMAT = "pmem.selection_case/1"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Candidate(_Strict):
    """What a selector sees of a record."""

    id: str
    kind: str
    title: str
    body: str = ""
    tags: tuple[str, ...] = ()


class SelectionCase(_Strict):
    """`expected`: ids among the candidates that a right selection keeps, and no other."""

    format: Literal["pmem.selection_case/1"] = "pmem.selection_case/1"
    family: str
    strings: tuple[str, ...]
    tags: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...]
    expected: tuple[str, ...]

    @property
    def id(self) -> str:
        return content_id(self.model_dump(mode="json"))


class SelectionResult(_Strict):
    """Expected against kept. `precision` and `recall` are None where nothing was kept or expected."""

    case_id: str
    expected: tuple[str, ...]
    kept: tuple[str, ...]
    correct: bool
    precision: float | None
    recall: float | None


def case_of(request: Request, found: Iterable[Record], *, expected: Iterable[str], family: str) -> SelectionCase:
    """Freeze the candidates of a request. Raises UserError for an expected id that is none of them."""
    frozen = tuple(Candidate(id=r.id, kind=r.kind, title=r.title, body=r.body, tags=r.tags) for r in found)
    wanted = tuple(dict.fromkeys(expected))
    case = SelectionCase(family=family, strings=request.strings, tags=request.tags, candidates=frozen, expected=wanted)
    _check(case, f"case of family {family}")
    return case


def judged(case: SelectionCase, kept: Iterable[str]) -> SelectionResult:
    """Code intersects first, as in delivery; then exact-set correctness, precision and recall."""
    offered = {candidate.id for candidate in case.candidates}
    kept_ids = tuple(name for name in dict.fromkeys(kept) if name in offered)
    hits = len(set(kept_ids) & set(case.expected))
    return SelectionResult(
        case_id=case.id, expected=case.expected, kept=kept_ids, correct=set(kept_ids) == set(case.expected),
        precision=hits / len(kept_ids) if kept_ids else None, recall=hits / len(case.expected) if case.expected else None,
    )  # fmt: skip


def write_cases(path: Path, cases: Iterable[SelectionCase]) -> int:
    """Write cases sorted by id; the number written."""
    lines = sorted((case.id, canonical_json(case.model_dump(mode="json"))) for case in cases)
    write_text(path, "".join(line + "\n" for _, line in lines))
    return len(lines)


def read_cases(path: Path) -> list[SelectionCase]:
    """Read cases. Raises UserError naming file and line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; name a file of {FORMAT}") from None
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _parsed(line: str, where: str) -> SelectionCase:
    try:
        value: Any = json.loads(line)
        case = SelectionCase.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: key {'.'.join(map(str, first['loc']))!r}: {first['msg'].lower()}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{where}: not JSON; write one case a line") from None
    _check(case, where)
    return case


def _check(case: SelectionCase, where: str) -> None:
    unknown = set(case.expected) - {candidate.id for candidate in case.candidates}
    if unknown:
        raise UserError(f"{where}: expected id {min(unknown)} is no candidate; add it to the candidates or drop it")
