"""How a record comes in. Five doors, each with its own check, and no other writer.

Receipts and publications write their own kinds only.

| door | who | check | state |
|---|---|---|---|
| `propose` | code | a cited, model-tier reminder that reached the agent, in a repository | proposed |
| `review` | a model or a person | code intersects kept ids and candidates; a rejection keeps its reason | kept stays proposed |
| `remember` | the agent | completed successful receipts of this very attempt | proposed |
| `add` | a person | the person's own words | approved |
| `take_in` | a person imports | exact keys; states of the file do not count | proposed |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pmem.canonical import canonical_json, content_id
from pmem.errors import UserError
from pmem.lessons.changes import Change, change
from pmem.lessons.curation import Wording, cleaned
from pmem.lessons.records import CODE, Actor, Draft, Provenance, Record
from pmem.lessons.store import LessonStore, place_of, record_of

MAX_OBSERVATIONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One delivery that earned a proposal."""

    session: str
    step: str
    entry: str
    text: str


def propose(store: LessonStore, draft: Draft, observation: Observation) -> Record:
    """Keep a delivered entry as an unapproved proposal of its repository. The same text again adds an observation, no record.

    What a person decided about the same text stands: a rejected proposal is not made again.
    """
    if draft.scope != "repository" or not draft.repository:
        raise UserError("an automatic proposal needs a repository; only a person widens a record")
    draft, redactions = clean_draft(draft)
    provenance = Provenance(
        door="proposal", session=observation.session, entry_ids=(observation.entry,), evidence=(f"step:{observation.step}",),
        redactions=redactions,
    )  # fmt: skip
    with change(store, CODE, "propose") as edit:
        known = _same(store, draft)
        record = known or edit.put(None, made(edit, draft, provenance))
        _observe(edit, record.id, observation)
        return record


@dataclass(frozen=True, slots=True)
class ReviewReport:
    """What came of a candidate review. `unknown`: ids the reviewer named that were no candidates."""

    kept: tuple[str, ...]
    rejected: tuple[str, ...]
    unknown: tuple[str, ...]
    decided_meanwhile: tuple[str, ...]


def review(
    store: LessonStore, candidates: Sequence[str], kept: Mapping[str, str], reviewer: Actor, *, purpose: str,
    rejections: Mapping[str, str] | None = None,
) -> ReviewReport:  # fmt: skip
    """Record which candidates a model or a person would keep, and why. Kept ones stay proposed: only a person approves.

    `kept`, `rejections`: id -> reason. Code intersects with `candidates`; a record that a person decided meanwhile is left alone.
    """
    said = rejections or {}
    offered = list(dict.fromkeys(candidates))
    with change(store, reviewer, "review", purpose) as edit:
        found = store.by_ids(offered)
        open_ones = [found[name] for name in offered if name in found and found[name].state == "proposed"]
        for record in open_ones:
            keep = record.id in kept
            reason = " ".join((kept if keep else said).get(record.id, "no reason given").split())[:500]
            edit.connection.execute(
                "INSERT INTO reviews (at, reviewer, purpose, node, kept, reason) VALUES (?, ?, ?, ?, ?, ?)",
                (edit.at, str(reviewer), purpose, record.id, int(keep), reason),
            )
            if not keep:
                update = {"state": "rejected", "reason": reason, "decided_by": str(reviewer), "updated": edit.at}
                edit.put(record, record.model_copy(update={**update, "revision": record.revision + 1}))
    names = {record.id for record in open_ones}
    return ReviewReport(
        kept=tuple(name for name in offered if name in names and name in kept),
        rejected=tuple(name for name in offered if name in names and name not in kept),
        unknown=tuple(sorted({*kept, *said} - set(offered))),
        decided_meanwhile=tuple(name for name in offered if name not in names),
    )


def remember(
    store: LessonStore, draft: Draft, *, session: str, task: str, attempt: str, calls: Sequence[str], agent: Actor
) -> Record:
    """Keep a verified fact: every named call must have a completed, successful receipt of this attempt. Raises UserError."""
    if draft.kind not in ("session_memory", "directory"):
        raise UserError(f"remember keeps session memories and directory locators, not {draft.kind}")
    if not calls:
        raise UserError("remember needs the call ids that verified the fact; a claim without evidence is not kept")
    draft, redactions = clean_draft(draft.model_copy(update={"relevance_required": True}))
    with change(store, agent, "remember") as edit:
        _verified(store, task, attempt, calls)
        evidence = tuple(f"receipt:{task}/{attempt}/{call}" for call in dict.fromkeys(calls))
        provenance = Provenance(door="remember", session=session, evidence=evidence, redactions=redactions)
        return _same(store, draft) or edit.put(None, made(edit, draft, provenance))


def add(store: LessonStore, draft: Draft, person: Actor, *, tasks: Sequence[str] = (), session: str | None = None) -> Record:
    """A person's own entry: approved, because the person wrote it. `tasks`: ids that an instruction is linked to.

    `session`: the session a session memory belongs to; unless relevance is required it is told there without selection.
    """
    if person.role != "person":
        raise UserError(f"only a person makes entries of their own; {person} may propose")
    draft, redactions = clean_draft(draft)
    with change(store, person, "add") as edit:
        if _same(store, draft):
            raise UserError(f"the same text stands already as {_same_id(store, draft)}; edit or approve that one")
        record = made(edit, draft, Provenance(door="person", session=session, redactions=redactions))
        approval = {"state": "approved", "approved_text": record.text_hash(), "decided_by": str(person)}
        kept = edit.put(None, record.model_copy(update=approval))
        for task in tasks:
            edit.relate((kept.id, "linked_task", task))
        return kept


@dataclass(frozen=True, slots=True)
class ImportReport:
    added: tuple[str, ...]
    num_known: int


def take_in(store: LessonStore, drafts: Iterable[Draft], person: Actor, *, source: str) -> ImportReport:
    """Import drafts, all of them or none, as proposals. `source` stands in their provenance."""
    added: list[str] = []
    num_known = 0
    with change(store, person, "import", source) as edit:
        for draft in drafts:
            clean, redactions = clean_draft(draft)
            if _same(store, clean):
                num_known += 1
                continue
            provenance = Provenance(door="import", evidence=(f"file:{source}",), redactions=redactions)
            added.append(edit.put(None, made(edit, clean, provenance)).id)
    return ImportReport(tuple(added), num_known)


def made(edit: Change, draft: Draft, provenance: Provenance) -> Record:
    """A new proposed record of a draft. Its id comes from the text, with a count when another record holds that id."""
    key = draft.key()
    stem = f"les-{key}"
    name, count = stem, 1
    while edit.connection.execute("SELECT 1 FROM nodes WHERE id = ?", (name,)).fetchone():
        count += 1
        name = f"les-{content_id([key, count])}"
    return Record(
        id=name, key=key, kind=draft.kind, collection=draft.collection, title=draft.title, body=draft.body, tags=draft.tags,
        scope=draft.scope, repository=draft.repository, state="proposed", relevance_required=draft.relevance_required,
        provenance=provenance, payload=draft.payload, reason=None, decided_by=None, approved_text=None, revision=1,
        created=edit.at, updated=edit.at,
    )  # fmt: skip


def clean_draft(draft: Draft) -> tuple[Draft, int]:
    """A draft as a door keeps it: without secrets, within the limits; and how many secrets went. Raises UserError."""
    wording, redactions = cleaned(Wording(title=draft.title, body=draft.body, tags=draft.tags, collection=draft.collection))
    if draft.kind == "guidance" and wording.collection is None:
        raise UserError("guidance needs a collection: trigger, bank, speak, cite or compose")
    if draft.kind != "guidance" and wording.collection is not None:
        raise UserError(f"a collection belongs to guidance, not to a {draft.kind}; leave it out")
    if draft.scope == "repository" and draft.repository is None:
        raise UserError("a record of repository scope needs its repository; name one, or a person says --global")
    clean = draft.model_copy(update={"title": wording.title, "body": wording.body, "tags": wording.tags})
    try:
        canonical_json([clean.model_dump(mode="json"), clean.payload]).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{wording.title[:60]!r} holds what cannot be kept as JSON text ({error}); mend it") from None
    return clean, redactions


def _same(store: LessonStore, draft: Draft) -> Record | None:
    """The record that was first written with this text, whatever became of it, or one that reads so now."""
    rows = store.rows("SELECT * FROM nodes WHERE key = ? ORDER BY number LIMIT 1", (draft.key(),))
    if not rows:
        place = place_of(draft.scope, draft.repository)
        query = "SELECT * FROM nodes WHERE title = ? AND +place = ? AND +kind = ? AND body = ? ORDER BY number LIMIT 1"
        rows = store.rows(query, (draft.title, place, draft.kind, draft.body))
    same = [record for record in map(record_of, rows) if record.payload == draft.payload]
    return same[0] if same else None


def _same_id(store: LessonStore, draft: Draft) -> str:
    known = _same(store, draft)
    return known.id if known else "–"


def _observe(edit: Change, node: str, seen: Observation) -> None:
    num = edit.connection.execute("SELECT count(*) FROM observations WHERE node = ?", (node,)).fetchone()[0]
    if num < MAX_OBSERVATIONS:
        edit.connection.execute(
            "INSERT OR IGNORE INTO observations VALUES (?, ?, ?, ?, ?, ?)",
            (node, edit.at, seen.session, seen.step, seen.entry, seen.text),
        )


def _verified(store: LessonStore, task: str, attempt: str, calls: Sequence[str]) -> None:
    """Raises UserError unless every call has a completed successful receipt of this attempt."""
    query = """SELECT json_extract(payload, '$.call') AS call, json_extract(payload, '$.status') AS status FROM nodes
               WHERE kind = 'receipt' AND json_extract(payload, '$.task') = ? AND json_extract(payload, '$.attempt') = ?"""
    statuses: dict[Any, Any] = {row["call"]: row["status"] for row in store.rows(query, (task, attempt))}
    for call in calls:
        if statuses.get(call) != "ok":
            was = statuses.get(call, "not recorded")
            raise UserError(
                f"call {call} of task {task}, attempt {attempt} is {was}; only completed successful calls verify a fact"
            )
