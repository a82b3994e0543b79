"""`pmem lessons`: the commands that a session's harness runs: receipts, verified facts, selection; and cases of it for the benchmark."""

import argparse
import time
from dataclasses import asdict

from pmem.errors import UserError
from pmem.lessons.command_records import as_json, draft_of, opened, say
from pmem.lessons.doors import remember
from pmem.lessons.receipts import Receipt, record_receipt
from pmem.lessons.records import Actor
from pmem.lessons.repository import repository_of
from pmem.lessons.selection import Depth, Request, Selector, candidates, select
from pmem.lessons.selection_cases import case_of, read_cases, write_cases
from pmem.lessons.selectors import ModelSelector, WordSelector
from pmem.lessons.session_start import record_delivery
from pmem.settings import Settings

DAY_S = 86_400.0


def keep_receipt(options: argparse.Namespace) -> int:
    """What one call of a task's attempt came to."""
    receipt = Receipt(
        call=options.call, task=options.task, attempt=options.attempt, tool=options.tool, status=options.status,
        summary=options.summary,
    )  # fmt: skip
    with opened(options) as store:
        record = record_receipt(store, receipt, session=options.session, repository=repository_of(options.folder))
    return say(options, as_json(record), f"kept {record.id}: {record.title}")


def remember_fact(options: argparse.Namespace) -> int:
    """A fact that completed successful calls of this attempt verify; it waits for a person."""
    draft = draft_of(
        kind="session_memory", title=options.title, body=options.body, repository=repository_of(options.folder),
        tags=tuple(tag for tag in options.tags.split(",") if tag),
    )  # fmt: skip
    agent = Actor(role="model", name=options.by or "agent")
    with opened(options) as store:
        record = remember(
            store, draft, session=options.session, task=options.task, attempt=options.attempt, calls=options.call, agent=agent
        )
    return say(options, as_json(record), f"kept {record.id}; other sessions see it once a person approves it")


def select_records(options: argparse.Namespace) -> int:
    """What a session is told on request. Without a depth there is no history."""
    repository = repository_of(options.folder)
    with opened(options) as store:
        chosen = select(store, _request(options), _selector(options), repository=repository, session=options.session)
        if chosen.delivered or chosen.cut:
            record_delivery(store, chosen.as_start(options.session, repository), route="selection")
    nothing = "nothing bears on it" if _depth(options) else "no depth was asked for, so no history; say --days N or --all"
    cut = [f"cut by the {one.why}: {one.id}" for one in chosen.cut]
    return say(options, asdict(chosen), chosen.text or nothing, *cut)


def freeze_case(options: argparse.Namespace) -> int:
    """The candidates of a request with the ids an expert expects, as one line of a benchmark file."""
    request = _request(options)
    with opened(options) as store:
        found = candidates(store, request, repository=repository_of(options.folder), session=options.session)
        expected = [store.get(name).id for name in options.expect]
    if not found:
        raise UserError("the request has no candidates, so there is nothing to choose; use other words, or say --all")
    case = case_of(request, found, expected=expected, family=options.family)
    known = read_cases(options.file) if options.file.exists() else []
    num = write_cases(options.file, {one.id: one for one in [*known, case]}.values())
    said = f"{len(found)} candidates, {len(expected)} expected; {options.file} holds {num} cases for `python -m eval.selection`"
    return say(options, case.model_dump(mode="json"), said)


def model_selector(settings: Settings) -> ModelSelector:
    """A selector that asks the settings' chat route, else the memory route. Raises UserError when there is none."""
    from pmem.router import make_backend

    route = settings.chat or settings.route
    if route is None:
        raise UserError("no route is set, so no model can be asked; set chat or route in the settings, or leave --model out")
    return ModelSelector(make_backend(route), timeout_s=settings.timeout_ms / 1000)


def _selector(options: argparse.Namespace) -> Selector:
    return model_selector(options.loaded) if options.model else WordSelector()


def _request(options: argparse.Namespace) -> Request:
    return Request(strings=tuple(options.words), tags=tuple(options.tag), depth=_depth(options))


def _depth(options: argparse.Namespace) -> Depth | None:
    if options.days is not None:
        return Depth(updated_after=time.time() - options.days * DAY_S)
    return Depth() if options.all else None
