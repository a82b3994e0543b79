"""Records as JSON lines, `pmem.lesson/1`: one draft a line with what became of it. An import reads the drafts alone.

States in a file do not count: whoever imports reviews again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pmem.canonical import canonical_json
from pmem.errors import UserError
from pmem.lessons.records import Draft, Record
from pmem.lessons.store import LessonStore, record_of

FORMAT = "pmem.lesson/1"


def exported_lines(store: LessonStore) -> Iterator[str]:
    """All records but receipts, oldest first, one canonical JSON line each."""
    for row in store.rows("SELECT * FROM nodes WHERE kind != 'receipt' ORDER BY number"):
        record = record_of(row)
        yield canonical_json({
            "format": FORMAT, "draft": draft_of(record).model_dump(mode="json"), "id": record.id, "state": record.state,
            "reason": record.reason, "provenance": record.provenance.model_dump(mode="json"), "created": record.created,
            "updated": record.updated, "relations": [list(edge) for edge in store.relations(record.id) if edge[0] == record.id],
        })  # fmt: skip


def draft_of(record: Record) -> Draft:
    """The part of a record that an import may take."""
    return Draft.model_validate(record.model_dump(include=set(Draft.model_fields)))


def read_drafts(path: Path) -> list[Draft]:
    """Drafts of an export. Raises UserError naming file and line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; name a file that `pmem lessons export` wrote") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; export it again") from None
    return [_draft(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _draft(line: str, where: str) -> Draft:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{where}: not JSON; export it again") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT or "draft" not in value:
        raise UserError(f"{where}: no record of {FORMAT}; export it again")
    try:
        draft = Draft.model_validate(value["draft"])
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: key {'.'.join(map(str, first['loc']))!r}: {first['msg'].lower()}") from None
    if draft.kind == "receipt":
        raise UserError(f"{where}: receipts are not imported, they belong to the attempt that earned them")
    return draft
