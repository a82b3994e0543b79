"""`pmem lessons`: the commands about files and whole stores: import, export, agents, publish, materialize, merge, serve."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pmem.atomic import write_text
from pmem.errors import UserError
from pmem.lessons import merge
from pmem.lessons.agents_file import assemble
from pmem.lessons.checkpoints import publish
from pmem.lessons.command_records import as_json, opened, person_of, say
from pmem.lessons.doors import review, take_in
from pmem.lessons.export import exported_lines, read_drafts
from pmem.lessons.materialize import materialize
from pmem.lessons.records import Actor
from pmem.lessons.repository import repository_of
from pmem.lessons.store import LessonStore, lessons_folder


class _Review(BaseModel):
    """What a reviewer hands in: ids with reasons, and who it is."""

    model_config = ConfigDict(extra="forbid")

    candidates: list[str]
    kept: dict[str, str]
    rejected: dict[str, str] = Field(default_factory=dict)
    purpose: str
    model: str | None = None
    """Name of the model that reviewed; None: the person at the command."""


def review_candidates(options: argparse.Namespace) -> int:
    try:
        said = _Review.model_validate(json.loads(options.file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{options.file}: key {'.'.join(map(str, first['loc']))!r}: {first['msg'].lower()}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{options.file} cannot be read as JSON: {error}; write candidates, kept, rejected and purpose") from None
    reviewer = Actor(role="model", name=said.model) if said.model else person_of(options)
    with opened(options) as store:
        done = review(store, said.candidates, said.kept, reviewer, purpose=said.purpose, rejections=said.rejected)
    unknown = [f"no candidate: {name}" for name in done.unknown] + [f"decided already: {name}" for name in done.decided_meanwhile]
    counts = f"{len(done.kept)} kept (they still wait for a person), {len(done.rejected)} rejected with their reasons"
    return say(options, asdict(done), counts, *unknown)


def import_records(options: argparse.Namespace) -> int:
    drafts = read_drafts(options.file)
    with opened(options) as store:
        report = take_in(store, drafts, person_of(options), source=options.file.name)
    found = {"added": report.added, "known": report.num_known}
    return say(options, found, f"{len(report.added)} records wait for review, {report.num_known} were known")


def export_records(options: argparse.Namespace) -> int:
    with opened(options) as store:
        lines = list(exported_lines(store))
    if options.file is None:
        print("\n".join(lines))
        return 0
    write_text(options.file, "".join(line + "\n" for line in lines))
    return say(options, {"file": str(options.file), "records": len(lines)}, f"wrote {len(lines)} records to {options.file}")


def agents(options: argparse.Namespace) -> int:
    with opened(options) as store:
        done = assemble(store, task=options.task, folder=options.folder, replace=options.replace)
    found = {"path": done.path and str(done.path), "delivered": done.delivered, "waiting": done.waiting}
    waiting = [f"{name} is linked but not approved, so it was left out" for name in done.waiting]
    return say(options, found, f"{len(done.delivered)} instructions in {done.path or 'no file'}", *waiting)


def publish_checkpoint(options: argparse.Namespace) -> int:
    with opened(options) as store:
        done = publish(
            store, options.folder, options.paths, title=options.title, base=[store.get(name).id for name in options.base],
            repository=repository_of(options.folder),
        )  # fmt: skip
    found = {**asdict(done), "record": done.record and as_json(done.record)}
    name = done.record.id if done.record else done.manifest
    say(
        options, found, f"{done.status}: {done.num_files} files as {name}", *[f"left out: {problem}" for problem in done.problems]
    )
    return 0 if done.status == "complete" else 1


def materialize_checkpoint(options: argparse.Namespace) -> int:
    with opened(options) as store:
        done = materialize(store, options.id, options.folder)
    return say(options, asdict(done), f"{done.num_files} files in {options.folder}, from {', '.join(done.order)}")


def merge_stores(options: argparse.Namespace) -> int:
    target = options.into or lessons_folder(options.loaded) / "lessons.db"
    if options.into is not None and not target.is_file():
        raise UserError(f"{target} is not there; name the lessons.db to merge into")
    with LessonStore(target) as store:
        if not options.apply:
            report = merge.plan(options.old, store)
            more = f"--apply --expect {report.target_digest} --backup NEW_FOLDER"
            again = f"apply it: pmem lessons merge {options.old} --into {target} {more}"
            last = "conflicts veto the merge" if report.conflicts else again
        else:
            backup, expect = _needed(options)
            report = merge.apply(options.old, store, backup=backup, expect=expect, person=person_of(options))
            last = f"merged and read back; copies of both stores stand in {backup}"
    lines = [f"add        {name}" for name in report.added] + [f"conflict   {name}" for name in report.conflicts]
    counts = f"{len(report.added)} to add, {len(report.identical)} identical, {len(report.conflicts)} conflicts"
    say(
        options,
        asdict(report),
        *lines,
        f"{counts}, {report.relations_added} relations, tasks: {', '.join(report.tasks) or '–'}",
        last,
    )
    return 1 if report.conflicts else 0


def serve_page(options: argparse.Namespace) -> int:
    from pmem.lessons.page.serve import serve

    return serve(options.loaded, person_of(options), port=options.port)


def _needed(options: argparse.Namespace) -> tuple[Path, str]:
    if options.backup is None:
        raise UserError("--apply wants --backup with a new folder")
    if options.expect is None:
        raise UserError("--apply wants --expect with the target's digest from the report; run it without --apply first")
    return options.backup, options.expect
