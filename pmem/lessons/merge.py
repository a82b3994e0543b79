"""Another store into this one: a dry run with an exact report, one vetoable transaction, read back, restored when it differs.

    report = plan(old, into)                         # nothing is written
    apply(old, into, backup=Path("new-folder"), expect=report.target_digest)

Vetoes: an id that both hold with different text, a target that changed since the report, a backup folder that exists.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmem.canonical import content_id
from pmem.errors import UserError
from pmem.lessons.blobs import copy_missing
from pmem.lessons.changes import change
from pmem.lessons.records import GOVERNED, Actor, Record
from pmem.lessons.schema import version_of
from pmem.lessons.store import LessonStore, Relation, content, record_of, sentence

SIDE_TABLES = {
    "observations": ("node", "at", "session", "step", "entry", "text"),
    "reviews": ("at", "reviewer", "purpose", "node", "kept", "reason"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What a merge does. `conflicts`: ids that both stores hold with different content; any of them vetoes all."""

    added: tuple[str, ...]
    identical: tuple[str, ...]
    conflicts: tuple[str, ...]
    relations_added: int
    tasks: tuple[str, ...]
    """Task ids that get links."""
    target_digest: str
    result_digest: str


def plan(old: Path, into: LessonStore) -> MergeReport:
    """The exact report; writes nothing but a temporary copy of the old store."""
    with tempfile.TemporaryDirectory() as folder, _copy_of(old, Path(folder)) as source:
        return _plan(source, into)


def apply(old: Path, into: LessonStore, *, backup: Path, expect: str, person: Actor) -> MergeReport:
    """Merge, as reported. Raises UserError for every veto; when the result does not read back, the backup is restored first."""
    if backup.exists():
        raise UserError(f"backup folder {backup} exists; name a new one")
    if person.role != "person":
        raise UserError(f"only a person merges stores; {person} may not")
    with into.faults():
        backup.mkdir(parents=True)
        copy_database(into.path, backup / "target.db")
    with _copy_of(old, backup) as source:
        copy_missing(Path(old).parent, into.folder)
        report = _merge(source, into, expect, person, str(old))
    _compare(into, report, backup)
    return report


def _merge(source: LessonStore, into: LessonStore, expect: str, person: Actor, name: str) -> MergeReport:
    with change(into, person, "merge", name) as edit:
        report = _plan(source, into)
        if report.target_digest != expect:
            raise UserError(f"{into.path} changed since the report ({expect} -> {report.target_digest}); make the report anew")
        if report.conflicts:
            raise UserError(
                f"{len(report.conflicts)} records conflict, {report.conflicts[0]} first; nothing was merged, edit one side"
            )
        found = source.by_ids(report.added)
        for record_id in report.added:
            edit.put(None, found[record_id])
        for edge in _edges(source):
            edit.relate(edge)
        for table, names in SIDE_TABLES.items():
            _copy_rows(source, edit.connection, table, names)
    return report


def _compare(into: LessonStore, report: MergeReport, backup: Path) -> None:
    """Read the result back; restore the backup by itself when it is not what the report promised."""
    found = into.digest()
    if found != report.result_digest:
        restore(into, backup / "target.db")
        raise UserError(f"the merged store did not read back as reported, so {into.path} was restored from {backup}")


def restore(into: LessonStore, backup: Path) -> None:
    """Put a backup in the place of a store's content, in one transaction."""
    with into.lock, into.faults():
        saved = sqlite3.connect(backup)
        try:
            saved.backup(into.connection)
        finally:
            saved.close()


def _plan(source: LessonStore, into: LessonStore) -> MergeReport:
    ours = {row["id"]: record_of(row) for row in into.rows("SELECT * FROM nodes")}
    theirs = {row["id"]: record_of(row) for row in source.rows("SELECT * FROM nodes ORDER BY id")}
    added = [name for name in theirs if name not in ours]
    conflicts = [name for name, record in theirs.items() if name in ours and content(record) != content(ours[name])]
    identical = [name for name in theirs if name in ours and name not in conflicts]
    edges_before = set(_edges(into))
    new_edges = [edge for edge in _edges(source) if edge not in edges_before]
    unapproved = [
        name for name in added if theirs[name].kind in GOVERNED and theirs[name].state == "approved" and not theirs[name].approved
    ]
    return MergeReport(
        added=tuple(added), identical=tuple(identical), conflicts=(*conflicts, *unapproved), relations_added=len(new_edges),
        tasks=tuple(sorted({edge[2] for edge in new_edges if edge[1] == "linked_task"})),
        target_digest=into.digest(), result_digest=_digest({**theirs, **ours}, edges_before | set(new_edges)),
    )  # fmt: skip


def _digest(records: dict[str, Record], edges: set[Relation]) -> str:
    """As `LessonStore.digest` would give it."""
    return content_id([[content(records[name]) for name in sorted(records)], [list(edge) for edge in sorted(edges)]])


def _edges(store: LessonStore) -> list[Relation]:
    return [
        (row[0], row[1], row[2]) for row in store.rows("SELECT source, kind, target FROM relations ORDER BY source, kind, target")
    ]


def _copy_rows(source: LessonStore, target: sqlite3.Connection, table: str, names: tuple[str, ...]) -> None:
    columns, marks = ", ".join(names), ", ".join("?" * len(names))
    same = " AND ".join(f"{name} IS ?" for name in names)
    for row in source.rows(f"SELECT {columns} FROM {table}"):
        values: list[Any] = list(row)
        target.execute(
            f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {marks} WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {same})",
            [*values, *values],
        )


@contextmanager
def _copy_of(old: Path, folder: Path) -> Iterator[LessonStore]:
    """A copy of the old store, brought to this version; the old file itself is never written."""
    if not Path(old).is_file():
        raise UserError(f"{old} is not there; name the lessons.db of the old store")
    place = folder / "source.db"
    copy_database(Path(old), place)
    shutil.copyfile(place, folder / "source-as-found.db")
    with closing(sqlite3.connect(place)) as found:
        if version_of(found) == 0:
            raise UserError(f"{old} is no lessons store; name the lessons.db of the old one")
    try:
        store = LessonStore(place)
    except UserError as error:
        raise UserError(str(error).replace(str(place), str(old))) from error
    with store:
        yield store


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy of a store that others may be using. Raises UserError."""
    try:
        reading = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, timeout=20)
        writing = sqlite3.connect(target)
        try:
            reading.backup(writing)
        finally:
            reading.close()
            writing.close()
    except sqlite3.Error as error:
        raise UserError(sentence(error, source)) from error
