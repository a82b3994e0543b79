"""What a person does with records. Each call is one change in the history; a decision stands until a person changes it.

approve(store, "les-…", person, reason)
edit(store, "les-…", person, expected=Wording.of(record), wording=Wording(title, body, tags))   # refused if it changed meanwhile
"""

from dataclasses import dataclass, replace
from typing import Any

from pmem.errors import UserError
from pmem.lessons.changes import Change, change
from pmem.lessons.records import COLLECTIONS, GOVERNED, MAX_BODY_CHARS, MAX_TAGS, MAX_TITLE_CHARS, RELATIONS, Actor, Record
from pmem.lessons.store import LessonStore, Relation
from pmem.redaction import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The part of a record that a person may word anew."""

    title: str
    body: str
    tags: tuple[str, ...] = ()
    collection: str | None = None

    @classmethod
    def of(cls, record: Record) -> "Wording":
        return cls(title=record.title, body=record.body, tags=record.tags, collection=record.collection)


class EditConflict(UserError):
    """The text changed since the editor opened it."""

    def __init__(self, record: Record) -> None:
        super().__init__(f"{record.id} changed meanwhile (revision {record.revision}); look at it again, then edit it")
        self.current = record


def approve(
    store: LessonStore, record_id: str, person: Actor, reason: str | None = None, *, everywhere: bool = False,
    expected: Wording | None = None,
) -> Record:  # fmt: skip
    """Let a record be delivered. `everywhere`: the separate word that widens it from its repository to all of them.

    `expected`: the text the person saw; another text is never approved in its place.
    """
    _needs_person(person, "approves")
    with change(store, person, "approve", reason) as edit:
        before = _seen(store, record_id, expected)
        after = before.model_copy(update={"scope": "global"} if everywhere else {})
        return _decide(edit, before, after.model_copy(update={"state": "approved", "approved_text": after.text_hash()}))


def reject(
    store: LessonStore, record_id: str, person: Actor, reason: str | None = None, *, expected: Wording | None = None
) -> Record:
    """Refuse a proposal; it stays with its reason, and the same proposal is not made again."""
    return _close(store, record_id, person, "reject", reason, expected)


def withdraw(store: LessonStore, record_id: str, person: Actor, reason: str | None = None) -> Record:
    """Take back what was approved: not delivered any more, still there."""
    return _close(store, record_id, person, "withdraw", reason, None)


def edit_record(
    store: LessonStore, record_id: str, person: Actor, *, expected: Wording, wording: Wording, reason: str | None = None
) -> Record:
    """Word a record anew. Raises EditConflict when its text is not `expected` any more; reads back what it wrote.

    An approved record stays approved: the person who edits words it. Prompts that are under way keep the old text.
    """
    _needs_person(person, "edits")
    clean, redactions = cleaned(wording)
    with change(store, person, "edit", reason) as edit:
        before = _seen(store, record_id, expected)
        if (clean.collection is None) == (before.kind == "guidance"):
            raise UserError(f"{before.id} is a {before.kind}: guidance has a collection, and nothing else has one")
        provenance = before.provenance.model_copy(update={"redactions": before.provenance.redactions + redactions})
        after = before.model_copy(
            update={
                "title": clean.title, "body": clean.body, "tags": clean.tags, "collection": clean.collection,
                "provenance": provenance, "updated": edit.at, "revision": before.revision + 1,
            }
        )  # fmt: skip
        if before.approved:
            after = after.model_copy(update={"approved_text": after.text_hash(), "decided_by": str(person)})
        return edit.put(before, after)


def delete(store: LessonStore, record_id: str, person: Actor, reason: str | None = None) -> tuple[Relation, ...]:
    """Remove a record and the relations at it, never its children. Undo brings all of it back."""
    _needs_person(person, "deletes")
    with change(store, person, "delete", reason) as edit:
        return edit.remove(store.get(record_id))


def link(store: LessonStore, record_id: str, target: str, person: Actor, *, kind: str = "linked_task") -> bool:
    """Relate a record to a task or to another record; False when it was so already."""
    _needs_person(person, "links")
    with change(store, person, "link") as edit:
        source = store.get(record_id)
        return edit.relate(_edge(store, source, kind, target))


def unlink(store: LessonStore, record_id: str, target: str, person: Actor, *, kind: str = "linked_task") -> bool:
    """Take a relation away; what it related stays."""
    _needs_person(person, "unlinks")
    with change(store, person, "unlink") as edit:
        return edit.unrelate((store.get(record_id).id, kind, target))


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """What a policy migration did: ids changed, and how many were so already."""

    tag: str
    changed: tuple[str, ...]
    num_already: int


def require_relevance(store: LessonStore, tag: str, person: Actor, *, apply: bool) -> PolicyReport:
    """Policy migration by tag: session memories and locators of a tag enter prompts only through selection. Idempotent."""
    _needs_person(person, "migrates")
    with change(store, person, f"policy relevance_required {tag}") as edit:
        rows = store.rows("SELECT id FROM nodes WHERE EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?) ORDER BY id", (tag,))
        found = [store.get(row["id"]) for row in rows]
        due = [record for record in found if not record.relevance_required and record.kind not in GOVERNED]
        for record in due if apply else ():
            edit.put(record, record.model_copy(update={"relevance_required": True, "revision": record.revision + 1}))
        return PolicyReport(tag, tuple(record.id for record in due), len(found) - len(due))


def cleaned(wording: Wording) -> tuple[Wording, int]:
    """A wording without secrets, within the limits, and how many secrets went. Raises UserError."""
    title, first = redact(" ".join(wording.title.split()))
    body, second = redact(wording.body.strip().encode("utf-8", "replace").decode())
    title = title.encode("utf-8", "replace").decode()
    if not title or len(title) > MAX_TITLE_CHARS:
        raise UserError(f"a title needs 1 to {MAX_TITLE_CHARS} characters (got {len(title)}); shorten it")
    if len(body) > MAX_BODY_CHARS:
        raise UserError(f"a body may have {MAX_BODY_CHARS} characters (got {len(body)}); shorten it")
    if wording.collection is not None and wording.collection not in COLLECTIONS:
        raise UserError(f"unknown collection {wording.collection!r}; known are {', '.join(COLLECTIONS)}")
    tags = tuple(dict.fromkeys(" ".join(tag.split()) for tag in wording.tags if tag.strip()))
    if len(tags) > MAX_TAGS:
        raise UserError(f"a record may have {MAX_TAGS} tags (got {len(tags)}); leave some out")
    return replace(wording, title=title, body=body, tags=tags), first + second


def _decide(edit: Change, before: Record, after: Record) -> Record:
    update: dict[str, Any] = {
        "reason": edit.reason, "decided_by": str(edit.actor), "updated": edit.at, "revision": before.revision + 1,
    }  # fmt: skip
    return edit.put(before, after.model_copy(update=update))


def _close(
    store: LessonStore, record_id: str, person: Actor, action: str, reason: str | None, expected: Wording | None
) -> Record:
    _needs_person(person, f"{action}s")
    with change(store, person, action, reason) as edit:
        before = _seen(store, record_id, expected)
        state = "rejected" if action == "reject" else "withdrawn"
        return _decide(edit, before, before.model_copy(update={"state": state, "approved_text": None}))


def _seen(store: LessonStore, record_id: str, expected: Wording | None) -> Record:
    record = store.get(record_id)
    if record.kind == "receipt":
        raise UserError(f"{record.id} is a receipt; what a call came to is neither approved nor worded anew")
    if expected is not None and Wording.of(record) != expected:
        raise EditConflict(record)
    return record


def _edge(store: LessonStore, source: Record, kind: str, target: str) -> Relation:
    if kind not in RELATIONS:
        raise UserError(f"unknown relation {kind!r}; known are {', '.join(RELATIONS)}")
    if kind != "linked_task":
        target = store.get(target).id
    if not target.strip() or target == source.id:
        raise UserError(f"{source.id} cannot be linked to {target!r}; name a task or another record")
    return source.id, kind, target


def _needs_person(actor: Actor, does: str) -> None:
    if actor.role != "person":
        raise UserError(f"only a person {does} records; {actor} may propose")
