"""A small world of lessons for the tests: a store, a person, drafts."""

from pathlib import Path

from pmem.lessons.doors import Observation, propose
from pmem.lessons.records import Actor, Draft, Record, this_person
from pmem.lessons.store import LessonStore

PERSON = this_person("ann")
MODEL = Actor(role="model", name="small")
REPOSITORY = "/src/app"


class Clock:
    """Seconds that grow by one a reading."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def new_store(folder: Path, clock: Clock | None = None) -> LessonStore:
    return LessonStore(folder / "lessons" / "lessons.db", clock=clock or Clock())


def guidance(title: str, *, body: str = "", repository: str | None = REPOSITORY, collection: str = "bank") -> Draft:
    values = {"kind": "guidance", "title": title, "body": body, "repository": repository, "collection": collection}
    return Draft.model_validate({**values, "scope": "repository" if repository else "global"})


def memory(title: str, *, tags: tuple[str, ...] = (), relevance_required: bool = True, body: str = "") -> Draft:
    return Draft(
        kind="session_memory", title=title, body=body, tags=tags, repository=REPOSITORY, relevance_required=relevance_required
    )


def seen(session: str = "s1", step: str = "s1-1", entry: str = "tm-k-1") -> Observation:
    return Observation(session=session, step=step, entry=entry, text="Remember the unit [tm-k-1].")


def proposed(store: LessonStore, title: str = "The unit is EUR", **values: str) -> Record:
    return propose(store, guidance(title, **values), seen())
