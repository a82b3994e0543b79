"""A process that works on a store until it is killed: propose, publish, edit, merge, and a line for each acknowledged change.

It writes `ack KIND ID…` after a call returned. What was acknowledged must be there afterwards, whole; the rest may or may not be.
"""

import multiprocessing
import random
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from pmem.errors import UserError
from pmem.lessons import curation, merge
from pmem.lessons.checkpoints import publish, recover
from pmem.lessons.curation import Wording
from pmem.lessons.doors import add, propose
from pmem.lessons.store import LessonStore
from tests.lessons.world import PERSON, REPOSITORY, guidance, new_store, seen


def started(folder: Path, seed: int, num: int = 10_000) -> tuple[BaseProcess, Connection]:
    """A forked process at work (no interpreter to start: a kill meets the work), and the end of a pipe with its lines."""
    fork = multiprocessing.get_context("fork")
    reading, writing = fork.Pipe(duplex=False)
    process = fork.Process(target=work, args=(folder, seed, num, writing), daemon=True)
    process.start()
    writing.close()
    return process, reading


def work(folder: Path, seed: int, num: int, out: Connection) -> None:
    rng = random.Random(seed)
    store = LessonStore(folder / "lessons" / "lessons.db")
    recover(store)
    out.send("ready")
    for number in range(num):
        name = f"{seed}-{number}"
        for act in (_propose, _publish, _edit, *([_merge] if number % 4 == seed % 4 else [])):
            try:
                out.send(" ".join(["ack", *act(store, folder, name, rng)]))
            except UserError as error:
                out.send(f"refused {error}")


def _propose(store: LessonStore, folder: Path, name: str, rng: random.Random) -> tuple[str, ...]:
    return "propose", propose(store, guidance(f"lesson {name}", body="b" * rng.randrange(2_000)), seen()).id


def _publish(store: LessonStore, folder: Path, name: str, rng: random.Random) -> tuple[str, ...]:
    work = folder / f"work-{name}"
    work.mkdir(exist_ok=True)
    (work / "file").write_bytes(rng.randbytes(rng.randrange(1, 50_000)))
    done = publish(store, work, ["file"], title=f"checkpoint {name}", repository=REPOSITORY)
    assert done.record is not None
    return "publish", done.record.id


def _edit(store: LessonStore, folder: Path, name: str, rng: random.Random) -> tuple[str, ...]:
    """One shared counter: an update that is lost would be seen in it."""
    while True:
        record = store.records(kind="preference")[0]
        wording = Wording(title=record.title, body=str(int(record.body) + 1))
        try:
            curation.edit_record(store, record.id, PERSON, expected=Wording.of(record), wording=wording)
            return "edit", wording.body
        except curation.EditConflict:
            continue


def _merge(store: LessonStore, folder: Path, name: str, rng: random.Random) -> tuple[str, ...]:
    other = new_store(folder / f"other-{name}")
    names = [add(other, guidance(f"merged {name} {part}"), PERSON).id for part in range(3)]
    other.close()
    report = merge.plan(other.path, store)
    merge.apply(other.path, store, backup=folder / f"backup-{name}", expect=report.target_digest, person=PERSON)
    return "merge", *names
