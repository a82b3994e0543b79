"""What a new session of a repository is told: approved guidance and preferences, within a budget, once.

    start = session_start(store, repository="/src/app", session="s1")
    start.block      # one visible block for the session's start, "" when there is nothing to say

At most five lessons and 400 tokens; a lesson that does not fit is left out whole and recorded as cut. Guidance goes to the
agent's session start, never into the policy's prompt: that would void its threshold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pmem.bank import estimate_tokens
from pmem.canonical import canonical_json
from pmem.delivery import as_block
from pmem.errors import UserError
from pmem.lessons.records import Record
from pmem.lessons.repository import repository_of
from pmem.lessons.shown import plain
from pmem.lessons.store import LessonStore, lessons_folder, place_of, record_of
from pmem.settings import Settings

MAX_LESSONS = 5
MAX_TOKENS = 400
MAX_SEEN = 64
HEADING = (
    "Remembered from earlier sessions and approved by a person, not observed now. Check before you rely on it; "
    "the user's words and what you see come first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    id: str
    why: str
    """`limit`, `budget`, or `unapproved` (a linked instruction that no person approved)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One prepared session start. Later edits do not reach it. `num_cut` may exceed the named ones."""

    session: str
    repository: str | None
    text: str
    delivered: tuple[str, ...]
    cut: tuple[Cut, ...]
    num_cut: int
    tokens: int

    @property
    def block(self) -> str:
        return as_block(self.text) if self.text else ""


def session_start(
    store: LessonStore, *, repository: str | None, session: str, max_lessons: int = MAX_LESSONS, max_tokens: int = MAX_TOKENS
) -> Start:
    """Choose what to say: this repository before everywhere, preferences before guidance, newest first. Reads only."""
    rows, num = _approved(store, repository)
    lines: list[str] = []
    delivered: list[str] = []
    cut: list[Cut] = []
    for record in rows:
        line = line_of(record)
        tokens = estimate_tokens("\n".join([HEADING, *lines, line]))
        if len(delivered) == max_lessons:
            cut.append(Cut(id=record.id, why="limit"))
        elif tokens > max_tokens:
            cut.append(Cut(id=record.id, why="budget"))
        else:
            lines.append(line)
            delivered.append(record.id)
    text = "\n".join([HEADING, *lines]) if lines else ""
    return Start(
        session=session, repository=repository, text=text, delivered=tuple(delivered), cut=tuple(cut),
        num_cut=num - len(delivered), tokens=estimate_tokens(text),
    )  # fmt: skip


def start_of(settings: Settings, *, folder: Path, session: str, notice: Callable[[str], None] | None = None) -> Start:
    """The session start for a host: never raises, opens no store that is not there, records nothing."""
    repository = repository_of(folder)
    nothing = Start(session=session, repository=repository, text="", delivered=(), cut=(), num_cut=0, tokens=0)
    path = lessons_folder(settings) / "lessons.db"
    try:
        if not settings.enabled or not path.exists():
            return nothing
        with LessonStore(path) as store:
            return session_start(store, repository=repository, session=session)
    except Exception as error:  # the boundary to the host: memory never breaks the agent
        if notice is not None:
            notice(str(error) if isinstance(error, UserError) else f"lessons could not be read: {type(error).__name__}: {error}")
        return nothing


def record_delivery(store: LessonStore, start: Start, *, route: str, at: float | None = None) -> None:
    """Write down who was told what and what was cut; delivered records count as used."""
    at = store.clock() if at is None else at
    cut = canonical_json([{"id": one.id, "why": one.why} for one in start.cut])
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO deliveries (at, session, repository, route, delivered, cut, num_cut, tokens) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (at, start.session, start.repository, route, canonical_json(start.delivered), cut, start.num_cut, start.tokens),
        )
        connection.executemany("UPDATE nodes SET used = ? WHERE id = ?", [(at, name) for name in start.delivered])


def line_of(record: Record) -> str:
    """One lesson as the agent reads it."""
    said = plain(record.title) if not record.body else f"{plain(record.title)}: {plain(record.body)}"
    layer = f"guidance, {record.collection}" if record.collection else record.kind
    return f"- [{record.id}] ({layer}) {said}"


def _approved(store: LessonStore, repository: str | None) -> tuple[list[Record], int]:
    """The first approved records in order of delivery, and how many there are at all."""
    places = ["global"] if repository is None else [place_of("repository", repository), "global"]
    found: list[Record] = []
    num = 0
    for place in places:
        for kind in ("preference", "guidance"):
            values = (place, kind)
            where = "place = ? AND state = 'approved' AND kind = ? AND relevance_required = 0"
            rows = store.rows(
                f"SELECT * FROM nodes WHERE {where} ORDER BY updated DESC, created DESC, number DESC LIMIT {MAX_SEEN}", values
            )
            found += [record for record in map(record_of, rows) if record.approved]
            num += len(rows) if len(rows) < MAX_SEEN else _count(store, where, values)
    return found[:MAX_SEEN], num


def _count(store: LessonStore, where: str, values: tuple[str, ...]) -> int:
    return int(store.rows(f"SELECT count(*) FROM nodes WHERE {where}", values)[0][0])
