"""Door (a): entries cited by a model-tier reminder that really reached the agent become unapproved proposals of the repository.

    with_lessons = open_session_with_lessons(settings, folder=Path.cwd())

The handler runs on the host's thread: it copies the cited entries and queues them; the store is written in the background.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pmem.delivery import Delivered
from pmem.lessons.background import BackgroundWriter
from pmem.lessons.doors import Observation, propose
from pmem.lessons.records import MAX_TITLE_CHARS, Draft
from pmem.lessons.repository import repository_of
from pmem.lessons.store import LessonStore
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.snapshot import Entry

COLLECTION_OF = {"knowledge": "bank", "procedural": "speak"}
"""A kept fact says what is worth keeping, a recorded failure when a warning is due; a person may move either."""


class Proposer:
    """Hears deliveries of one session. Rules-tier ones, and sessions outside a repository, propose nothing."""

    def __init__(self, writer: BackgroundWriter, repository: str | None) -> None:
        self._writer = writer
        self._repository = repository
        self._session: MemorySession | None = None

    def watch(self, session: MemorySession) -> None:
        """The session whose bank the ids of an event name."""
        self._session = session

    def on_delivered(self, event: Delivered) -> None:
        """Queue the cited entries. Quick; touches no file."""
        session = self._session
        if event.tier != "llm" or not event.entry_ids or self._repository is None or session is None:
            return
        for entry_id in event.entry_ids:
            entry = session.bank.get(entry_id)
            if entry is None or entry.kind not in COLLECTION_OF:
                continue
            seen = Observation(session=session.session_id, step=event.step_id, entry=entry_id, text=event.text)
            self._writer.put(partial(_propose, draft_of(entry, self._repository), seen))


def draft_of(entry: Entry, repository: str) -> Draft:
    """A bank entry as a proposal: its first sentence is the title, its text the body when it says more."""
    text = " ".join(entry.content.split())
    title = text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1].rsplit(" ", 1)[0] + "…"
    collection = COLLECTION_OF[entry.kind]
    return Draft.model_validate({
        "kind": "guidance", "collection": collection, "title": title, "body": "" if title == text else text,
        "repository": repository, "tags": (entry.kind,),
    })  # fmt: skip


def open_session_with_lessons(
    settings: Settings, *, folder: Path, notice: Callable[[str], None] | None = None, session_id: str | None = None,
    on_delivered: Callable[[Delivered], None] | None = None, clock: Callable[[], float] = time.time,
) -> tuple[MemorySession, BackgroundWriter]:  # fmt: skip
    """A session as the settings ask for, whose deliveries are proposed as lessons. Raises UserError for unusable settings."""
    from pmem.connect import open_session

    writer = BackgroundWriter(settings, notice)
    proposer = Proposer(writer, repository_of(folder))

    def heard(event: Delivered) -> None:
        proposer.on_delivered(event)
        if on_delivered is not None:
            on_delivered(event)

    session = open_session(settings, on_delivered=heard, notice=notice, session_id=session_id, clock=clock)
    proposer.watch(session)
    return session, writer


def _propose(draft: Draft, seen: Observation, store: LessonStore) -> object:
    return propose(store, draft, seen)
