"""What the store keeps: records (nodes), their states, where they count, where they come from.

A record's id is derived from its first text, so that the same proposal is the same record; later edits keep the id.
"""

import getpass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pmem.canonical import content_id

Kind = Literal["guidance", "preference", "session_memory", "instruction", "directory", "checkpoint", "receipt"]
KINDS: tuple[Kind, ...] = ("guidance", "preference", "session_memory", "instruction", "directory", "checkpoint", "receipt")
GOVERNED: frozenset[str] = frozenset({"guidance", "preference"})
"""Kinds that reach every session of a repository at its start: never without a person's approval of this very text."""
LOCATORS: frozenset[str] = frozenset({"directory", "checkpoint"})
SESSION_KINDS: frozenset[str] = frozenset({"session_memory", "directory", "checkpoint", "receipt"})
"""Kinds that the same session may see unapproved, marked so."""

Collection = Literal["trigger", "bank", "speak", "cite", "compose"]
COLLECTIONS: dict[str, str] = {
    "trigger": "when to look at all",
    "bank": "what is worth keeping",
    "speak": "when a warning is due",
    "cite": "what a statement may rest on",
    "compose": "how to word it",
}
"""One collection of guidance for each layer of the memory decision."""

State = Literal["proposed", "approved", "rejected", "withdrawn"]
Scope = Literal["repository", "global"]
Door = Literal["proposal", "review", "remember", "person", "import", "receipt", "publication", "merge"]
RELATIONS = ("linked_task", "part_of", "base", "refers_to")
"""`linked_task`: record -> task id · `part_of`: child -> parent · `base`: checkpoint -> the locator it builds on."""

MAX_TITLE_CHARS, MAX_BODY_CHARS, MAX_TAGS = 200, 8_000, 16


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Actor(_Strict):
    """Who acts. The store cannot prove that a person sits there; it keeps the claim in the history."""

    role: Literal["person", "model", "code"]
    name: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


def this_person(name: str | None = None) -> Actor:
    """The person at this machine (login name unless given)."""
    return Actor(role="person", name=name or getpass.getuser())


CODE = Actor(role="code", name="pmem")


class Provenance(_Strict):
    """Where a record comes from."""

    door: Door
    session: str | None = None
    entry_ids: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    """References: `step:…`, `receipt:…`, `file:…`."""
    redactions: int = 0


class Draft(_Strict):
    """A record before it is kept."""

    kind: Kind
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)]
    body: Annotated[str, Field(max_length=MAX_BODY_CHARS)] = ""
    collection: Collection | None = None
    tags: Annotated[tuple[str, ...], Field(max_length=MAX_TAGS)] = ()
    scope: Scope = "repository"
    repository: str | None = None
    relevance_required: bool = False
    payload: dict[str, Any] = Field(default_factory=dict)

    def key(self) -> str:
        """Equal for drafts that say the same for the same place."""
        said = " ".join(f"{self.title}\n{self.body}".casefold().split())
        return content_id([self.kind, self.scope, self.repository, said, self.payload])


class Record(_Strict):
    """A kept record. Times in seconds since 1970: `read` when looked up, `used` when delivered; neither says that it is true."""

    id: str
    key: str
    kind: Kind
    collection: Collection | None
    title: str
    body: str
    tags: tuple[str, ...]
    scope: Scope
    repository: str | None
    state: State
    relevance_required: bool
    provenance: Provenance
    payload: dict[str, Any]
    reason: str | None
    """Why it was approved, rejected or withdrawn, in the words of who did it."""
    decided_by: str | None
    approved_text: str | None
    """Hash of the very text that a person approved; a record whose text differs is not delivered."""
    revision: int
    created: float
    updated: float
    read: float | None = None
    used: float | None = None

    def text_hash(self) -> str:
        """Hash of everything a delivery would show or that decides where it shows."""
        return content_id([self.kind, self.title, self.body, self.scope, self.repository])

    @property
    def approved(self) -> bool:
        """Approved by a person, and unchanged since but by a person."""
        return self.state == "approved" and self.approved_text == self.text_hash()


CONTENT_FIELDS = tuple(name for name in Record.model_fields if name not in ("read", "used"))
"""Fields that the history, undo and merge treat as the record; access times are not part of it."""
