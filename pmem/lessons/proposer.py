"""Door (a): entries cited by a model-tier reminder that really reached the agent become unapproved proposals of the repository.

The handler runs on the host's thread: it copies the cited entries and queues them; the store is written in the background.
"""

from functools import partial

from pmem.delivery import Delivered
from pmem.lessons.background import BackgroundWriter
from pmem.lessons.doors import Observation, propose
from pmem.lessons.records import MAX_TITLE_CHARS, Draft
from pmem.lessons.store import LessonStore
from pmem.session import MemorySession
from pmem.snapshot import Entry

COLLECTION_OF = {"knowledge": "bank", "procedural": "speak"}
"""A kept fact says what is worth keeping, a recorded failure when a warning is due; a person may move either."""


class Proposer:
    """Hears deliveries of one session. Rules-tier ones, and sessions outside a repository, propose nothing."""

    def __init__(self, writer: BackgroundWriter, repository: str | None, session: MemorySession) -> None:
        self._writer = writer
        self._repository = repository
        self._session = session

    def on_delivered(self, event: Delivered) -> None:
        """Queue the cited entries. Quick; touches no file."""
        if event.tier != "llm" or self._repository is None:
            return
        for entry_id in event.entry_ids:
            entry = self._session.bank.get(entry_id)
            if entry is None or entry.kind not in COLLECTION_OF:
                continue
            seen = Observation(session=self._session.session_id, step=event.step_id, entry=entry_id, text=event.text)
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


def _propose(draft: Draft, seen: Observation, store: LessonStore) -> object:
    return propose(store, draft, seen)
