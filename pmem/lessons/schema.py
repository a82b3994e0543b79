"""Tables of the lessons file and the way from every older version to this one.

`PRAGMA user_version` holds the version. A migration is a list of statements; all due ones run in one transaction, so a kill
leaves the old version or the new one. A file of a newer version is refused: an older program must not write it.
"""

import sqlite3

from pmem.errors import UserError

NODES = """
CREATE TABLE nodes (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  key TEXT NOT NULL,
  kind TEXT NOT NULL,
  collection TEXT,
  title TEXT NOT NULL,
  body TEXT NOT NULL,
  tags TEXT NOT NULL DEFAULT '[]',
  scope TEXT NOT NULL,
  repository TEXT,
  state TEXT NOT NULL CHECK (state IN ('proposed', 'approved', 'rejected', 'withdrawn')),
  relevance_required INTEGER NOT NULL DEFAULT 0,
  provenance TEXT NOT NULL,
  payload TEXT NOT NULL DEFAULT '{}',
  reason TEXT,
  decided_by TEXT,
  approved_text TEXT,
  revision INTEGER NOT NULL DEFAULT 1,
  created REAL NOT NULL,
  updated REAL NOT NULL,
  read REAL,
  used REAL,
  CHECK (state != 'approved' OR (approved_text IS NOT NULL AND decided_by LIKE 'person:%')),
  CHECK (scope != 'repository' OR repository IS NOT NULL OR kind = 'receipt')
)"""

V1 = (
    NODES,
    "CREATE INDEX nodes_by_key ON nodes (key)",
    "CREATE INDEX nodes_by_state ON nodes (state, kind, repository, updated DESC)",
    """CREATE TABLE relations (
      source TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL, created REAL NOT NULL,
      PRIMARY KEY (source, kind, target)) WITHOUT ROWID""",
    "CREATE INDEX relations_by_target ON relations (target, kind)",
    """CREATE TABLE history (
      number INTEGER PRIMARY KEY AUTOINCREMENT, change INTEGER NOT NULL, at REAL NOT NULL, actor TEXT NOT NULL,
      action TEXT NOT NULL, subject TEXT NOT NULL, before TEXT, after TEXT, reason TEXT)""",
    "CREATE INDEX history_by_subject ON history (subject, number)",
    "CREATE INDEX history_by_change ON history (change)",
)

V2 = (
    """CREATE TABLE observations (
      node TEXT NOT NULL, at REAL NOT NULL, session TEXT NOT NULL, step TEXT NOT NULL, entry TEXT NOT NULL, text TEXT NOT NULL,
      PRIMARY KEY (node, session, step, entry)) WITHOUT ROWID""",
    """CREATE TABLE reviews (
      number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, reviewer TEXT NOT NULL, purpose TEXT NOT NULL,
      node TEXT NOT NULL, kept INTEGER NOT NULL, reason TEXT NOT NULL)""",
    "CREATE INDEX reviews_by_node ON reviews (node)",
    """CREATE TABLE deliveries (
      number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, session TEXT NOT NULL, repository TEXT, route TEXT NOT NULL,
      delivered TEXT NOT NULL, cut TEXT NOT NULL, num_cut INTEGER NOT NULL, tokens INTEGER NOT NULL)""",
    "CREATE INDEX deliveries_by_session ON deliveries (session)",
)

V3 = (
    "CREATE VIRTUAL TABLE search USING fts5(title, body, tags, place, tokenize='unicode61')",
    """INSERT INTO search (rowid, title, body, tags, place)
       SELECT number, title, body, tags, coalesce('r' || repository, 'global') FROM nodes""",
    """CREATE TABLE publications (
      manifest TEXT PRIMARY KEY, at REAL NOT NULL, state TEXT NOT NULL, draft TEXT NOT NULL, node TEXT, problem TEXT)""",
)

V4 = (
    "DROP TABLE search",
    "ALTER TABLE nodes ADD COLUMN place TEXT NOT NULL DEFAULT 'global'",
    "UPDATE nodes SET place = place_of(scope, repository)",
    """CREATE VIRTUAL TABLE search USING
      fts5(title, body, tags, place, content='nodes', content_rowid='number', tokenize='unicode61')""",
    "INSERT INTO search (search) VALUES ('rebuild')",
    """CREATE TRIGGER nodes_added AFTER INSERT ON nodes BEGIN
      INSERT INTO search (rowid, title, body, tags, place) VALUES (new.number, new.title, new.body, new.tags, new.place); END""",
    """CREATE TRIGGER nodes_removed AFTER DELETE ON nodes BEGIN
      INSERT INTO search (search, rowid, title, body, tags, place)
      VALUES ('delete', old.number, old.title, old.body, old.tags, old.place); END""",
    """CREATE TRIGGER nodes_changed AFTER UPDATE OF title, body, tags, place ON nodes BEGIN
      INSERT INTO search (search, rowid, title, body, tags, place)
      VALUES ('delete', old.number, old.title, old.body, old.tags, old.place);
      INSERT INTO search (rowid, title, body, tags, place) VALUES (new.number, new.title, new.body, new.tags, new.place); END""",
    "CREATE INDEX nodes_by_place ON nodes (place, state, kind, relevance_required, updated DESC, created DESC)",
    "CREATE INDEX nodes_by_queue ON nodes (state, updated)",
    "CREATE INDEX nodes_by_update ON nodes (updated)",
    "CREATE INDEX nodes_by_title ON nodes (title)",
    "CREATE INDEX nodes_by_time ON nodes (kind, updated DESC)",
    "CREATE INDEX receipts ON nodes (json_extract(payload, '$.task'), json_extract(payload, '$.attempt')) WHERE kind = 'receipt'",
)

V5 = (
    "DROP TRIGGER nodes_added",
    "DROP TRIGGER nodes_removed",
    "DROP TRIGGER nodes_changed",
    "DROP TABLE search",
    """CREATE VIRTUAL TABLE search USING
      fts5(title, body, tags, place, kind, content='nodes', content_rowid='number', tokenize='unicode61')""",
    "INSERT INTO search (search) VALUES ('rebuild')",
    """CREATE TRIGGER nodes_added AFTER INSERT ON nodes BEGIN
      INSERT INTO search (rowid, title, body, tags, place, kind)
      VALUES (new.number, new.title, new.body, new.tags, new.place, new.kind); END""",
    """CREATE TRIGGER nodes_removed AFTER DELETE ON nodes BEGIN
      INSERT INTO search (search, rowid, title, body, tags, place, kind)
      VALUES ('delete', old.number, old.title, old.body, old.tags, old.place, old.kind); END""",
    """CREATE TRIGGER nodes_changed AFTER UPDATE OF title, body, tags, place, kind ON nodes BEGIN
      INSERT INTO search (search, rowid, title, body, tags, place, kind)
      VALUES ('delete', old.number, old.title, old.body, old.tags, old.place, old.kind);
      INSERT INTO search (rowid, title, body, tags, place, kind)
      VALUES (new.number, new.title, new.body, new.tags, new.place, new.kind); END""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (V1, V2, V3, V4, V5)
"""`MIGRATIONS[n]` leads from version n to n + 1."""
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_version(connection: sqlite3.Connection, where: str) -> int:
    """The version of a file that this program may use. Raises UserError for a newer one; writes nothing."""
    found = version_of(connection)
    if found > VERSION:
        raise UserError(f"{where} has version {found}, this program knows {VERSION}; install the newer pmem that wrote it")
    return found


def migrate(connection: sqlite3.Connection, *, to: int = VERSION, where: str = "the lessons store") -> int:
    """Bring a file to version `to`; gives the version it had. Raises UserError for a file of a newer version."""
    found = check_version(connection, where)
    if found == to:
        return found
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(connection)  # another process may have been quicker
        for statements in MIGRATIONS[found:to]:
            for statement in statements:
                connection.execute(statement)
        if found < to:
            connection.execute(f"PRAGMA user_version = {to:d}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return found
