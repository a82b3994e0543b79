"""`pmem lessons`: the commands about single records. Stored text is printed with its control characters made visible."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pmem.cli_output import print_json
from pmem.errors import UserError
from pmem.lessons import curation
from pmem.lessons.changes import history, undo
from pmem.lessons.curation import EditConflict, Wording
from pmem.lessons.doors import add
from pmem.lessons.receipts import render_history
from pmem.lessons.records import Actor, Draft, Record, this_person
from pmem.lessons.repository import repository_of
from pmem.lessons.search import search
from pmem.lessons.session_start import session_start
from pmem.lessons.shown import visible
from pmem.lessons.store import LessonStore, open_store


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[LessonStore]:
    """The settings' store."""
    from pmem.lessons.checkpoints import recover

    with open_store(options.loaded) as store:
        recover(store)
        yield store


def person_of(options: argparse.Namespace) -> Actor:
    """Who decides: the login name unless said."""
    return this_person(options.by)


def say(options: argparse.Namespace, found: Any, *lines: str) -> int:
    """JSON for machines, lines for people."""
    if options.json:
        print_json(found)
    else:
        for line in lines:
            print(visible(line))
    return 0


def list_records(options: argparse.Namespace) -> int:
    repository = _repository(Path()) if options.here else None
    with opened(options) as store:
        found = store.records(state=options.state, kind=options.kind, repository=repository, limit=options.limit)
        num = store.count(state=options.state, kind=options.kind, repository=repository)
    lines = [_line(record) for record in found]
    return say(options, [as_json(record) for record in found], *lines, f"{len(found)} of {num} records")


def show(options: argparse.Namespace) -> int:
    with opened(options) as store:
        record = store.get(options.id)
        found = {
            **as_json(record), "relations": store.relations(record.id), "observations": store.observations(record.id),
            "reviews": store.reviews(record.id),
        }  # fmt: skip
    lines = [_line(record), "", record.body or record.title, ""]
    lines += [f"{name:<11} {value}" for name, value in _facts(record).items()]
    lines += [f"relation    {source} {kind} {target}" for source, kind, target in found["relations"]]
    lines += [f"delivered   {when(seen['at'])} session {seen['session']}: {seen['text']}" for seen in found["observations"]]
    lines += [
        f"reviewed    {when(seen['at'])} {seen['reviewer']}: {_verdict(seen)}: {seen['reason']}" for seen in found["reviews"]
    ]
    return say(options, found, *lines)


def search_records(options: argparse.Namespace) -> int:
    with opened(options) as store:
        hits = search(store, " ".join(options.words))
    return say(options, [as_json(hit.record) for hit in hits], *[_line(hit.record) for hit in hits], f"{len(hits)} found")


def approve(options: argparse.Namespace) -> int:
    with opened(options) as store:
        record = curation.approve(store, options.id, person_of(options), options.reason, everywhere=options.everywhere)
    where = "every repository" if record.scope == "global" else record.repository
    return say(options, as_json(record), f"approved {record.id} for {where}; sessions that start from now on are told")


def reject(options: argparse.Namespace) -> int:
    with opened(options) as store:
        record = curation.reject(store, options.id, person_of(options), options.reason)
    return say(options, as_json(record), f"rejected {record.id}; it stays, and the same text is not proposed again")


def withdraw(options: argparse.Namespace) -> int:
    with opened(options) as store:
        record = curation.withdraw(store, options.id, person_of(options), options.reason)
    return say(options, as_json(record), f"withdrew {record.id}; prompts that are under way keep it")


def delete(options: argparse.Namespace) -> int:
    with opened(options) as store:
        record = store.get(options.id)
        if not options.yes:
            _confirm(f"delete {_line(record)}")
        edges = curation.delete(store, record.id, person_of(options), options.reason)
        number = history(store, record.id, limit=1)[0].change
    return say(
        options, {"deleted": record.id, "relations": edges, "change": number},
        f"deleted {record.id} and {len(edges)} relations; `pmem lessons undo {number}` brings it back",
    )  # fmt: skip


DECISIONS = {"approve": approve, "reject": reject, "withdraw": withdraw, "delete": delete}


def edit(options: argparse.Namespace) -> int:
    with opened(options) as store:
        before = store.get(options.id)
        if options.revision not in (None, before.revision) or options.expect not in (None, before.body):
            raise EditConflict(before)
        expected = Wording.of(before)
        tags = expected.tags if options.tags is None else tuple(options.tags.split(","))
        wording = Wording(
            title=expected.title if options.title is None else options.title,
            body=expected.body if options.body is None else options.body,
            tags=tags, collection=options.collection or expected.collection,
        )  # fmt: skip
        after = curation.edit_record(
            store, before.id, person_of(options), expected=expected, wording=wording, reason=options.reason
        )
    return say(
        options, as_json(after), f"edited {after.id}, now revision {after.revision}; sessions that start from now on see it"
    )


def link_record(options: argparse.Namespace) -> int:
    with opened(options) as store:
        new = curation.link(store, options.id, options.target, person_of(options), kind=options.relation)
    return say(options, {"linked": new}, "linked" if new else "was linked already")


def unlink_record(options: argparse.Namespace) -> int:
    with opened(options) as store:
        gone = curation.unlink(store, options.id, options.target, person_of(options), kind=options.relation)
    return say(options, {"unlinked": gone}, "unlinked; both stay" if gone else "was not linked")


def show_history(options: argparse.Namespace) -> int:
    with opened(options) as store:
        known = store.find(options.id) if options.id is not None else None
        lines = history(store, known.id if known else options.id, limit=options.limit)
    if options.id is not None and not lines:
        raise UserError(f"no record {options.id!r} and no change of one; `pmem lessons history` lists the changes there are")
    found = [{name: getattr(line, name) for name in line.__slots__} for line in lines]
    return say(
        options, found,
        *[
            f"{line.change:>6}  {when(line.at)}  {line.actor:<18} {line.action:<12} {line.subject}  {line.reason or ''}"
            for line in lines
        ],
    )  # fmt: skip


def undo_change(options: argparse.Namespace) -> int:
    with opened(options) as store:
        touched = undo(store, options.change, person_of(options))
    return say(options, {"undone": options.change, "records": touched}, f"undid change {options.change}: {', '.join(touched)}")


def add_record(options: argparse.Namespace) -> int:
    scope = "global" if options.everywhere else "repository"
    values: dict[str, Any] = {
        "kind": options.kind, "title": options.title, "body": options.body, "collection": options.collection,
        "scope": scope, "repository": None if options.everywhere else _repository(options.folder),
        "tags": tuple(tag for tag in options.tags.split(",") if tag),
    }  # fmt: skip
    with opened(options) as store:
        if options.kind == "directory":
            from pmem.lessons.materialize import directory_payload

            values |= {"payload": directory_payload(Path(options.body or options.title)), "relevance_required": True}
        record = add(store, draft_of(**values), person_of(options), tasks=options.task, session=options.session)
    return say(options, as_json(record), f"kept {record.id}, approved by {record.decided_by}")


def show_start(options: argparse.Namespace) -> int:
    with opened(options) as store:
        start = session_start(store, repository=repository_of(options.folder), session="preview")
    found = {"text": start.text, "delivered": start.delivered, "num_cut": start.num_cut, "tokens": start.tokens}
    cut = [f"cut by the {one.why}: {one.id}" for one in start.cut]
    return say(
        options, found, start.text or "a session here is told nothing", *cut, f"{start.tokens} tokens, {start.num_cut} cut"
    )


def show_deliveries(options: argparse.Namespace) -> int:
    with opened(options) as store:
        rows = [dict(row) for row in store.rows("SELECT * FROM deliveries ORDER BY number DESC LIMIT ?", (options.limit,))]
    lines = [
        f"{when(row['at'])}  session {row['session']}  {row['route']}  {row['delivered']}  "
        f"{row['num_cut']} cut, {row['tokens']} tokens"
        for row in rows
    ]
    return say(options, rows, *lines, f"{len(rows)} deliveries")


def show_receipts(options: argparse.Namespace) -> int:
    with opened(options) as store:
        rendered = render_history(store, options.task, attempt=options.attempt, budget_tokens=options.budget)
    found = {"text": rendered.text, "shown": rendered.num_shown, "left_out": rendered.num_left_out, "tokens": rendered.tokens}
    return say(options, found, rendered.text)


def policy(options: argparse.Namespace) -> int:
    with opened(options) as store:
        report = curation.require_relevance(store, options.tag, person_of(options), apply=options.apply)
    did = "changed" if options.apply else "would change"
    found = {"tag": report.tag, "applied": options.apply, "records": report.changed, "already": report.num_already}
    return say(options, found, f"{did} {len(report.changed)} records of tag {report.tag}; {report.num_already} were so already")


def draft_of(**values: Any) -> Draft:
    """A draft from a command's words. Raises UserError."""
    try:
        return Draft.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]}: {first['msg'].lower()}; shorten or mend it") from None


def as_json(record: Record) -> dict[str, Any]:
    """A record for machines: stored text as it is (JSON escapes it)."""
    return record.model_dump(mode="json")


def when(at: float | None) -> str:
    """A time for people, UTC."""
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _line(record: Record) -> str:
    layer = f"{record.kind}/{record.collection}" if record.collection else record.kind
    title = " ".join(record.title.split())
    return f"{record.id}  {record.state:<9}  {layer:<18}  {title}"


def _facts(record: Record) -> dict[str, Any]:
    made = record.provenance
    return {
        "scope": record.repository if record.scope == "repository" else "global", "tags": ", ".join(record.tags) or "–",
        "revision": record.revision, "decided": f"{record.decided_by or '–'} {record.reason or ''}".strip(),
        "created": when(record.created), "updated": when(record.updated), "read": when(record.read), "used": when(record.used),
        "came by": f"{made.door}, session {made.session or '–'}, entries {', '.join(made.entry_ids) or '–'}",
        "evidence": ", ".join(made.evidence) or "–", "redactions": made.redactions,
    }  # fmt: skip


def _verdict(seen: dict[str, Any]) -> str:
    return "kept" if seen["kept"] else "not kept"


def _repository(folder: Path) -> str:
    found = repository_of(folder)
    if found is None:
        raise UserError(f"{folder.resolve()} is in no repository; go into one, or say --global")
    return found


def _confirm(question: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError("say --yes to delete without being asked")
    print(visible(question) + "? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted; answer y to delete")
