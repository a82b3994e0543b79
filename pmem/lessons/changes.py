"""The one writer of records. Every change is one transaction, stands in the history with before and after, and can be undone.

    with change(store, actor, "approve", reason) as edit:
        edit.put(before, after)

Undo is a change of its own, so undoing an undo does it again. It is refused when a record changed since.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pmem.canonical import canonical_json
from pmem.errors import UserError
from pmem.lessons.records import Actor, Record
from pmem.lessons.store import LessonStore, Relation, columns, content, record_of


@dataclass(slots=True)
class Change:
    """One change under way: several records and relations, all or nothing."""

    store: LessonStore
    connection: sqlite3.Connection
    actor: Actor
    action: str
    reason: str | None
    at: float
    number: int
    subjects: list[str] = field(default_factory=list)

    def put(self, before: Record | None, after: Record) -> Record:
        """Insert (`before` None) or replace a record, and read it back."""
        if after.state == "approved" and not (before and before.approved) and self.actor.role != "person":
            raise UserError(f"only a person approves; {self.actor} may propose {after.id}")
        values = columns(after)
        names = list(values)
        if before is None:
            marks = ", ".join(f":{name}" for name in names)
            self.connection.execute(f"INSERT INTO nodes ({', '.join(names)}) VALUES ({marks})", values)
        else:
            kept = [name for name in names if name not in ("id", "read", "used")]
            values["was"] = before.revision
            sets = ", ".join(f"{name} = :{name}" for name in kept)
            done = self.connection.execute(f"UPDATE nodes SET {sets} WHERE id = :id AND revision = :was", values)
            if done.rowcount != 1:
                raise UserError(f"{after.id} changed meanwhile; look at it again")
        self._log(after.id, content(before) if before else None, content(after))
        return self._read_back(after)

    def remove(self, before: Record) -> tuple[Relation, ...]:
        """Delete a record and the relations at it, never what it points at. Gives the relations that went."""
        edges = tuple(self.store.relations(before.id))
        for edge in edges:
            self.unrelate(edge)
        self.connection.execute("DELETE FROM nodes WHERE id = ?", (before.id,))
        self._log(before.id, content(before), None)
        return edges

    def relate(self, edge: Relation) -> bool:
        """Add a relation; False when it stands already."""
        done = self.connection.execute("INSERT OR IGNORE INTO relations VALUES (?, ?, ?, ?)", (*edge, self.at))
        if done.rowcount:
            self._log(edge[0], None, {"relation": list(edge)})
        return bool(done.rowcount)

    def unrelate(self, edge: Relation) -> bool:
        """Remove a relation; False when there is none."""
        done = self.connection.execute("DELETE FROM relations WHERE source = ? AND kind = ? AND target = ?", edge)
        if done.rowcount:
            self._log(edge[0], {"relation": list(edge)}, None)
        return bool(done.rowcount)

    def _log(self, subject: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self.subjects.append(subject)
        self.connection.execute(
            "INSERT INTO history (change, at, actor, action, subject, before, after, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.number, self.at, str(self.actor), self.action, subject, _text(before), _text(after), self.reason),
        )

    def _read_back(self, wanted: Record) -> Record:
        row = self.connection.execute("SELECT * FROM nodes WHERE id = ?", (wanted.id,)).fetchone()
        found = record_of(row) if row else None
        if found is None or content(found) != content(wanted):
            raise UserError(f"{wanted.id} does not read back as it was written, so nothing was changed; check the disk")
        return found


@contextmanager
def change(store: LessonStore, actor: Actor, action: str, reason: str | None = None) -> Iterator[Change]:
    """One change: number, time, actor and reason of everything done inside."""
    with store.transaction() as connection:
        number = int(connection.execute("SELECT coalesce(max(change), 0) + 1 FROM history").fetchone()[0])
        yield Change(store, connection, actor, action, reason, store.clock(), number)


@dataclass(frozen=True, slots=True)
class PastChange:
    """One line of the history: what a change did to one record or relation."""

    number: int
    change: int
    at: float
    actor: str
    action: str
    subject: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    reason: str | None


def history(store: LessonStore, subject: str | None = None, *, limit: int = 100) -> list[PastChange]:
    """Newest first; of one record or of all."""
    where = "WHERE subject = ?" if subject is not None else ""
    rows = store.rows(
        f"SELECT * FROM history {where} ORDER BY number DESC LIMIT ?", [*([subject] if subject is not None else []), limit]
    )
    return [_past(row) for row in rows]


def undo(store: LessonStore, number: int, actor: Actor) -> list[str]:
    """Take one change back, as a new change. Gives the ids it touched. Raises UserError when something changed since."""
    if actor.role != "person":
        raise UserError(f"only a person undoes changes; {actor} may propose")
    with change(store, actor, f"undo {number}") as edit:
        lines = [_past(row) for row in store.rows("SELECT * FROM history WHERE change = ? ORDER BY number DESC", (number,))]
        if not lines:
            raise UserError(f"no change {number} in the history; `pmem lessons history` lists them")
        for line in lines:
            _take_back(edit, line)
        return list(dict.fromkeys(edit.subjects))


def _take_back(edit: Change, line: PastChange) -> None:
    edge = (line.before or line.after or {}).get("relation")
    if edge is not None:
        relation: Relation = (edge[0], edge[1], edge[2])
        done = edit.unrelate(relation) if line.before is None else edit.relate(relation)
        if not done:
            raise UserError(f"change {line.change} cannot be undone: a relation of {line.subject} changed since")
        return
    found = edit.store.rows("SELECT * FROM nodes WHERE id = ?", (line.subject,))
    current = record_of(found[0]) if found else None
    if _said(content(current) if current else None) != _said(line.after):
        later = history(edit.store, line.subject, limit=1)
        raise UserError(
            f"change {line.change} cannot be undone: {line.subject} changed since (change {later[0].change}); undo that first"
        )
    if line.before is None:
        assert current is not None
        edit.remove(current)
        return
    revision = (current.revision if current else line.before["revision"]) + 1
    edit.put(current, Record.model_validate({**line.before, "revision": revision}))


def _said(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record without its revision, which only ever grows."""
    return record and {name: value for name, value in record.items() if name != "revision"}


def _past(row: sqlite3.Row) -> PastChange:
    values = dict(row)
    for name in ("before", "after"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return PastChange(**values)


def _text(value: dict[str, Any] | None) -> str | None:
    return None if value is None else canonical_json(value)
