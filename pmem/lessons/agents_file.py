"""`AGENTS.md` of a task: always assembled anew from the instructions linked to it, never read back.

    assemble(store, task="release", folder=workspace)

Explicit links deliver without any relevance score. What an agent writes into the file is gone at the next assembly; a file that
we did not assemble is somebody's own and is not replaced without a word.
"""

from dataclasses import dataclass
from pathlib import Path

from pmem.atomic import write_text
from pmem.bank import estimate_tokens
from pmem.errors import UserError
from pmem.lessons.records import Record
from pmem.lessons.repository import repository_of
from pmem.lessons.session_start import Cut, Start, record_delivery
from pmem.lessons.shown import visible
from pmem.lessons.store import LessonStore

NAME = "AGENTS.md"
MARK = "<!-- Assembled by pmem from linked instructions. It is written anew each time; changes made here are not read. -->"
HEADING = "Remembered instructions that a person approved and linked to this task; what the user says now comes first."


@dataclass(frozen=True, slots=True)
class Assembled:
    """`waiting`: linked instructions that no person approved, or changed since; they are not delivered."""

    path: Path | None
    delivered: tuple[str, ...]
    waiting: tuple[str, ...]


def linked_instructions(store: LessonStore, task: str) -> tuple[list[Record], list[Record]]:
    """Instructions linked to a task that may be delivered, and those that wait for approval; oldest first."""
    found = store.by_ids(store.sources("linked_task", task))
    records = sorted((r for r in found.values() if r.kind == "instruction"), key=lambda record: (record.created, record.id))
    return [r for r in records if r.approved], [r for r in records if not r.approved]


def assembled_text(records: list[Record]) -> str:
    """The file's text."""
    parts = [f"## {visible(record.title)}\n\n{visible(record.body)}".rstrip() + "\n" for record in records]
    return "\n".join([MARK, "", HEADING, "", *parts])


def assemble(store: LessonStore, *, task: str, folder: Path, replace: bool = False) -> Assembled:
    """Write `AGENTS.md` for a task and note the delivery; nothing linked removes an assembled one.

    Raises UserError for a file that is not ours.
    """
    path = Path(folder) / NAME
    if path.exists() and not is_assembled(path) and not replace:
        raise UserError(f"{path} was not assembled by pmem; move it away, or say --replace")
    ready, waiting = linked_instructions(store, task)
    names = tuple(record.id for record in ready)
    text = assembled_text(ready) if ready else ""
    if ready:
        write_text(path, text)
    elif path.exists():
        path.unlink()
    if ready or waiting:
        cut = tuple(Cut(id=record.id, why="unapproved") for record in waiting)
        told = Start(
            session=f"task {task}", repository=repository_of(Path(folder)), text=text, delivered=names, cut=cut, num_cut=len(cut),
            tokens=estimate_tokens(text),
        )  # fmt: skip
        record_delivery(store, told, route="agents_file")
    return Assembled(path if ready else None, names, tuple(record.id for record in waiting))


def is_assembled(path: Path) -> bool:
    """Whether a file carries our mark in its first line."""
    with path.open("rb") as stream:
        return stream.read(len(MARK.encode())) == MARK.encode()
