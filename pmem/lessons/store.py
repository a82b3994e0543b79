"""The file that holds the lessons: one SQLite database in WAL mode, opened by any number of processes at once.

    store = LessonStore(settings.data_dir / "lessons" / "lessons.db")
    store.get("les-…"); store.records(state="proposed"); store.relations("les-…")

Reads only; whatever changes a record goes through `changes.py`. Faults of the file (full, read-only, locked, damaged) are a
`UserError` of one sentence.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pmem.canonical import canonical_json, content_id
from pmem.errors import UserError
from pmem.lessons.records import CONTENT_FIELDS, Record
from pmem.lessons.schema import check_version, migrate
from pmem.settings import Settings

PATIENCE_S = 20.0
"""How long a writer waits for another process's transaction."""

Relation = tuple[str, str, str]
"""Source id, kind, target id."""


def lessons_folder(settings: Settings) -> Path:
    """Where the store and the files of its checkpoints stand."""
    return settings.data_dir / "lessons"


def open_store(settings: Settings, *, clock: Callable[[], float] = time.time) -> "LessonStore":
    """The person's store. Raises UserError when memory is disabled or the file cannot be used."""
    if not settings.enabled:
        raise UserError("memory is disabled (enabled: false), so no lesson is read or written; set enabled: true first")
    return LessonStore(lessons_folder(settings) / "lessons.db", clock=clock)


def place_of(scope: str, repository: str | None) -> str:
    """One search token for where a record counts: `global`, or a hash of the repository."""
    return "global" if scope == "global" or repository is None else f"r{content_id(repository)}"


def sentence(error: sqlite3.Error | OSError, path: Path) -> str:
    """What a fault of the file means and how to mend it."""
    text = str(error).lower()
    if "readonly" in text or "read-only" in text or "unable to open" in text or "permission" in text:
        return f"lessons in {path} cannot be written or opened; make the folder writable, or name another with data_dir"
    if "full" in text or "no space" in text or "i/o error" in text or "too large" in text:
        return f"lessons in {path} were not changed: the disk is full or failing; free space and try again"
    if "locked" in text or "busy" in text:
        return f"lessons in {path} are held by another process for over {PATIENCE_S:.0f} s; stop it or try again"
    if "not a database" in text or "malformed" in text:
        return f"{path} is damaged or no lessons store; restore a backup, or move it away to start anew"
    return f"lessons in {path} could not be used: {error}; try again, or check the file with sqlite3"


class LessonStore:
    """One connection, safe to use from several threads of a process."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time, read_only: bool = False) -> None:
        self.path = Path(path)
        self.folder = self.path.parent
        self.clock = clock
        self.lock = threading.RLock()
        self._depth = 0
        with self.faults():
            if not read_only:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.connection = _connect(self.path, read_only)
            try:
                check_version(self.connection, str(self.path))
                if not read_only:
                    _use_wal(self.connection)
                migrate(self.connection, where=str(self.path))
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    def __enter__(self) -> "LessonStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Faults of the file as sentences."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UserError(sentence(error, self.path)) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise UserError(f"a text is not Unicode, or a number too large ({error}); nothing was changed, mend it") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of a block or nothing of it, against other processes too; a block inside joins the outer one."""
        with self.lock, self.faults():
            if self._depth == 0:
                self.connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield self.connection
            except BaseException:
                self._depth -= 1
                if self._depth == 0 and self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                _commit(self.connection)

    def rows(self, query: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """All rows of a reading query."""
        with self.lock, self.faults():
            return self.connection.execute(query, values).fetchall()

    # Records

    def get(self, record_id: str) -> Record:
        """The record of an id or of a prefix that only it has. Raises UserError."""
        found = self.find(record_id)
        if found is None:
            raise UserError(f"no record {record_id!r} in {self.path}; `pmem lessons list` names those there are")
        return found

    def find(self, record_id: str) -> Record | None:
        """Like `get`, but None when there is none."""
        rows = self.rows("SELECT * FROM nodes WHERE id = ?", (record_id,))
        if not rows and len(record_id) >= 6:
            upper = record_id + "\U0010ffff"
            rows = self.rows("SELECT * FROM nodes WHERE id >= ? AND id < ? LIMIT 2", (record_id, upper))
        if len(rows) > 1:
            raise UserError(f"{record_id!r} begins several ids, {rows[0]['id']} among them; write more of it")
        return record_of(rows[0]) if rows else None

    def by_ids(self, ids: Iterable[str]) -> dict[str, Record]:
        """Those of `ids` that exist."""
        found: dict[str, Record] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            for row in self.rows(f"SELECT * FROM nodes WHERE id IN ({marks})", part):
                found[row["id"]] = record_of(row)
        return found

    def records(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        repository: str | None = None,
        limit: int = 200,
        offset: int = 0,
    ) -> list[Record]:
        """Newest first. `repository`: those of this repository and the global ones."""
        where, values = filters(state=state, kind=kind, repository=repository)
        rows = self.rows(
            f"SELECT * FROM nodes{where} ORDER BY updated DESC, number DESC LIMIT ? OFFSET ?", [*values, limit, offset]
        )
        return [record_of(row) for row in rows]

    def count(self, *, state: str | None = None, kind: str | None = None, repository: str | None = None) -> int:
        where, values = filters(state=state, kind=kind, repository=repository)
        return int(self.rows(f"SELECT count(*) FROM nodes{where}", values)[0][0])

    def relations(self, node: str) -> list[Relation]:
        """Relations that begin or end at a record."""
        query = "SELECT source, kind, target FROM relations WHERE source = ? OR target = ? ORDER BY source, kind, target"
        return [(row[0], row[1], row[2]) for row in self.rows(query, (node, node))]

    def targets(self, source: str, kind: str) -> list[str]:
        """What a record points at by one kind of relation."""
        query = "SELECT target FROM relations WHERE source = ? AND kind = ? ORDER BY target"
        return [row[0] for row in self.rows(query, (source, kind))]

    def sources(self, kind: str, target: str) -> list[str]:
        """What points at a record or a task by one kind of relation."""
        query = "SELECT source FROM relations WHERE target = ? AND kind = ? ORDER BY source"
        return [row[0] for row in self.rows(query, (target, kind))]

    def observations(self, node: str) -> list[dict[str, Any]]:
        """The deliveries that earned a proposal, oldest first."""
        query = "SELECT at, session, step, entry, text FROM observations WHERE node = ? ORDER BY at LIMIT 200"
        return [dict(row) for row in self.rows(query, (node,))]

    def reviews(self, node: str) -> list[dict[str, Any]]:
        """What candidate reviews said of a record, oldest first."""
        return [dict(row) for row in self.rows("SELECT * FROM reviews WHERE node = ? ORDER BY number", (node,))]

    def digest(self) -> str:
        """Hash of all records and relations: equal when, and only when, nothing changed."""
        nodes = [content(record_of(row)) for row in self.rows("SELECT * FROM nodes ORDER BY id")]
        edges = [list(row) for row in self.rows("SELECT source, kind, target FROM relations ORDER BY source, kind, target")]
        return content_id([nodes, edges])


def record_of(row: sqlite3.Row) -> Record:
    """A row of `nodes` as a record."""
    values = {name: row[name] for name in Record.model_fields}
    for name in ("tags", "provenance", "payload"):
        values[name] = json.loads(values[name])
    values["relevance_required"] = bool(values["relevance_required"])
    return Record.model_validate(values)


def content(record: Record) -> dict[str, Any]:
    """What history, undo and merge compare."""
    return record.model_dump(mode="json", include=set(CONTENT_FIELDS))


def columns(record: Record) -> dict[str, Any]:
    """A record as columns of `nodes`."""
    values = record.model_dump(mode="json")
    for name in ("tags", "provenance", "payload"):
        values[name] = canonical_json(values[name])
    values["relevance_required"] = int(record.relevance_required)
    values["place"] = place_of(record.scope, record.repository)
    return values


def filters(*, state: str | None, kind: str | None, repository: str | None) -> tuple[str, list[Any]]:
    """A WHERE clause and its values."""
    clauses: list[str] = []
    values: list[Any] = []
    for name, value in (("state", state), ("kind", kind)):
        if value is not None:
            clauses.append(f"{name} = ?")
            values.append(value)
    if repository is not None:
        clauses.append("place IN (?, 'global')")
        values.append(place_of("repository", repository))
    return (" WHERE " + " AND ".join(clauses) if clauses else ""), values


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    place = f"file:{path.resolve().as_uri().removeprefix('file:')}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(place, uri=True, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.create_function("place_of", 2, place_of, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16000")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead log, so that readers never wait. The switch itself does not wait for others: it is asked for again."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
