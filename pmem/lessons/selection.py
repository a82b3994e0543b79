"""Relevance-required material: search proposes at most 32 candidates, the policy keeps ids, code intersects.

    request = Request(strings=("release",), depth=Depth())
    chosen = select(store, request, WordSelector(), repository="/src/app", session="s2")      # selectors.py
    chosen.text                  # says that it is remembered; a locator shows metadata, never bytes

`depth` None returns no history. Tag hints add candidates and never hide one that is named by id, name or description.
A record of another session needs a person's approval; one of the same session may come unapproved and is marked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pmem.bank import estimate_tokens
from pmem.lessons.records import GOVERNED, LOCATORS, SESSION_KINDS, Record
from pmem.lessons.search import search
from pmem.lessons.session_start import Cut, Start
from pmem.lessons.shown import plain
from pmem.lessons.store import LessonStore, place_of, record_of

MAX_CANDIDATES = 32
MAX_TOKENS = 800
KINDS = frozenset({"session_memory", "directory", "checkpoint"})
HEADING = "Remembered from earlier, not observed now. Check before you rely on it; the user's words and what you see come first."
_POOL = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How far back history may reach, in seconds since 1970; None: no limit of that kind. It limits search, not lifetime."""

    created_after: float | None = None
    updated_after: float | None = None
    read_after: float | None = None

    def holds(self, record: Record) -> bool:
        limits = (
            (self.created_after, record.created),
            (self.updated_after, record.updated),
            (self.read_after, record.read or 0.0),
        )
        return all(limit is None or at >= limit for limit, at in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a policy asks for. `strings`: words or ids; `tags`: hints only."""

    strings: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    depth: Depth | None = None


class Seen(Protocol):
    """What a selector sees of a candidate: a record, or a frozen candidate of a benchmark case."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


class Selector(Protocol):
    """Decides which candidates bear on a task: a model, a rule or a person."""

    def select(self, strings: Sequence[str], tags: Sequence[str], found: Sequence[Seen]) -> Iterable[str]:
        """Ids to keep; ids that were no candidates are ignored."""
        ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """What selection delivers. `ignored`: ids the policy named that were no candidates."""

    text: str
    delivered: tuple[str, ...]
    wrappers: tuple[str, ...]
    """Parents that came along because a child was kept: their title only."""
    cut: tuple[Cut, ...]
    ignored: tuple[str, ...]

    def as_start(self, session: str, repository: str | None) -> Start:
        """The delivery as `record_delivery` writes it down."""
        return Start(
            session=session, repository=repository, text=self.text, delivered=self.delivered, cut=self.cut, num_cut=len(self.cut),
            tokens=estimate_tokens(self.text),
        )  # fmt: skip


def select(store: LessonStore, request: Request, selector: Selector, *, repository: str | None, session: str) -> Chosen:
    """Search, note the lookup, let the selector keep ids, intersect. What belongs to this session and needs no selection is in."""
    here = current(store, session=session, repository=repository)
    found = candidates(store, request, repository=repository, session=session)
    mark_read(store, found)
    kept = selector.select(request.strings, request.tags, found) if found else ()
    return keep(store, (*here, *found), [*(record.id for record in here), *kept], session=session)


def candidates(store: LessonStore, request: Request, *, repository: str | None, session: str) -> tuple[Record, ...]:
    """At most 32 records a policy may choose from, best first. No depth: nothing. Reads only: `mark_read` notes the lookup."""
    if request.depth is None:
        return ()
    named = store.by_ids(word for text in request.strings for word in text.split())
    found: dict[str, Record] = dict(named)
    text = " ".join(request.strings)
    for hit in search(store, text, repository=repository, kinds=KINDS, limit=_POOL):
        found.setdefault(hit.record.id, hit.record)
    for record in _tagged(store, request.tags, repository):
        found.setdefault(record.id, record)
    here = {"global"} if repository is None else {"global", place_of("repository", repository)}
    fitting = [
        record for record in found.values()
        if record.kind in KINDS and place_of(record.scope, record.repository) in here and request.depth.holds(record)
        and may_deliver(record, session)
    ]  # fmt: skip
    return tuple(fitting[:MAX_CANDIDATES])


def may_deliver(record: Record, session: str) -> bool:
    """Whether a record may reach a prompt of this session: approved, or material of the same session that nobody rejected."""
    if record.approved:
        return True
    return record.kind in SESSION_KINDS and record.provenance.session == session and record.state == "proposed"


def keep(
    store: LessonStore, found: tuple[Record, ...], kept: Iterable[str], *, session: str, max_tokens: int = MAX_TOKENS
) -> Chosen:
    """Intersect the policy's ids with the candidates; each record is judged alone, and a parent survives through a kept child."""
    wanted = list(dict.fromkeys(kept))
    by_id = {record.id: record for record in found}
    lines: list[str] = []
    delivered: list[str] = []
    wrappers: list[str] = []
    cut: list[Cut] = []
    for record in (by_id[name] for name in wanted if name in by_id):
        parents = [
            p for p in _parents(store, record, session) if p.id not in delivered and p.id not in wrappers and p.id not in wanted
        ]
        more = [*(f"- [{parent.id}] (holds the next) {plain(parent.title)}" for parent in parents), line_of(record, session)]
        if estimate_tokens("\n".join([HEADING, *lines, *more])) > max_tokens:
            cut.append(Cut(id=record.id, why="budget"))
            continue
        lines += more
        delivered.append(record.id)
        wrappers += [parent.id for parent in parents]
    text = "\n".join([HEADING, *lines]) if lines else ""
    return Chosen(text, tuple(delivered), tuple(wrappers), tuple(cut), tuple(name for name in wanted if name not in by_id))


def current(store: LessonStore, *, session: str, repository: str | None) -> tuple[Record, ...]:
    """Material of this very session that needs no selection, oldest first."""
    query = """SELECT * FROM nodes WHERE kind = 'session_memory' AND relevance_required = 0 AND place IN ('global', ?)
               AND json_extract(provenance, '$.session') = ? ORDER BY number LIMIT 32"""
    place = place_of("repository", repository)
    return tuple(record for record in map(record_of, store.rows(query, (place, session))) if may_deliver(record, session))


def mark_read(store: LessonStore, records: Sequence[Record]) -> None:
    """Note that records were looked up: read is not used, and neither says that they are true."""
    if not records:
        return
    with store.transaction() as connection:
        at = store.clock()
        connection.executemany("UPDATE nodes SET read = ? WHERE id = ?", [(at, record.id) for record in records])


def line_of(record: Record, session: str) -> str:
    """One record as the agent reads it. A locator shows what it points at, never the bytes."""
    marks = [record.kind.replace("_", " ")]
    if not record.approved:
        marks.append("of this session, not reviewed")
    body = plain(record.body)
    if record.kind in LOCATORS:
        body = "; ".join([part for part in (body, plain(_metadata(record))) if part])
    return f"- [{record.id}] ({', '.join(marks)}) {plain(record.title)}" + (f": {body}" if body else "")


def _metadata(record: Record) -> str:
    said = record.payload
    if record.kind == "directory":
        return f"directory {said.get('path')}"
    return f"checkpoint {said.get('manifest')}, {said.get('num_files')} files, {said.get('num_bytes')} bytes, not loaded"


def _tagged(store: LessonStore, tags: tuple[str, ...], repository: str | None) -> list[Record]:
    """Records that carry one of the tags, best first."""
    found: list[Record] = []
    for tag in tags:
        hits = search(store, tag, repository=repository, kinds=KINDS, limit=_POOL)
        found += [hit.record for hit in hits if tag in hit.record.tags]
    return found


def _parents(store: LessonStore, record: Record, session: str) -> list[Record]:
    found = store.by_ids(store.targets(record.id, "part_of"))
    return [parent for parent in found.values() if parent.kind not in GOVERNED and may_deliver(parent, session)]
