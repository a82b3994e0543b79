"""No guidance and no preference reaches a prompt that no person approved, over random sequences of everything there is.

Session memories, receipts and locators of the same session are exempt, and marked. The test keeps its own list of the texts
that a person approved, wrote or merged; whatever is delivered must stand in it.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pmem.errors import UserError
from pmem.lessons import curation, merge
from pmem.lessons.agents_file import assemble
from pmem.lessons.changes import history, undo
from pmem.lessons.curation import Wording
from pmem.lessons.doors import add, propose, remember, review, take_in
from pmem.lessons.receipts import Receipt, record_receipt
from pmem.lessons.records import GOVERNED, Actor, Draft, Record
from pmem.lessons.selection import Depth, Request, Seen, select
from pmem.lessons.session_start import session_start
from pmem.lessons.store import LessonStore
from tests.lessons.world import MODEL, PERSON, REPOSITORY, guidance, memory, new_store, seen

WORDS = st.sampled_from([f"word{letter} release" for letter in "abcdefgh"])
ACTORS = st.sampled_from([PERSON, MODEL, Actor(role="code", name="pmem")])
PICK = st.integers(0, 30)


def said(record: Record) -> tuple[str, str, str]:
    return record.kind, record.title, record.body


class Everything:
    """A selector that wants all there is, candidates or not."""

    def __init__(self, store: LessonStore) -> None:
        self.store = store

    def select(self, strings: Sequence[str], tags: Sequence[str], found: Sequence[Seen]) -> list[str]:
        return [one.id for one in found] + [record.id for record in self.store.records()]


class Governance(RuleBasedStateMachine):
    """Random curation; `blessed` holds what persons said yes to, as (kind, title, body)."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.place = Path(self.folder.name)
        self.store = new_store(self.place)
        self.blessed: set[tuple[str, str, str]] = set()
        self.num_merges = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def pick(self, number: int) -> Record | None:
        records = self.store.records()
        return records[number % len(records)] if records else None

    @rule(title=WORDS, session=st.sampled_from(["s1", "s2"]))
    def propose(self, title: str, session: str) -> None:
        propose(self.store, guidance(title), seen(session=session))

    @rule(title=WORDS, actor=ACTORS, kind=st.sampled_from(["guidance", "preference", "instruction"]))
    def own_entry(self, title: str, actor: Actor, kind: str) -> None:
        draft = Draft.model_validate(
            {"kind": kind, "title": title, "repository": REPOSITORY, "collection": "bank" if kind == "guidance" else None}
        )
        try:
            record = add(self.store, draft, actor, tasks=["t1"] if kind == "instruction" else [])
        except UserError:
            return
        assert actor.role == "person"
        self.blessed.add(said(record))

    @rule(title=WORDS, kind=st.sampled_from(["guidance", "preference"]))
    def imported(self, title: str, kind: str) -> None:
        draft = guidance(title).model_copy(update={"kind": kind, "collection": "bank" if kind == "guidance" else None})
        take_in(self.store, [draft], PERSON, source="file")

    @rule(title=WORDS, needs=st.booleans())
    def remembered(self, title: str, needs: bool) -> None:
        receipt = Receipt(call="c", task="t", attempt="1", tool="bash", status="ok")
        try:
            record_receipt(self.store, receipt, session="s1")
            remember(
                self.store, memory(title, relevance_required=needs), session="s1", task="t", attempt="1", calls=["c"], agent=MODEL
            )
        except UserError:
            return  # the receipt was deleted, or tampered with behind the store

    @rule(number=PICK, actor=ACTORS, everywhere=st.booleans())
    def approve(self, number: int, actor: Actor, everywhere: bool) -> None:
        record = self.pick(number)
        if record is None:
            return
        try:
            curation.approve(self.store, record.id, actor, everywhere=everywhere)
        except UserError:
            return
        assert actor.role == "person"
        self.blessed.add(said(record))

    @rule(number=PICK, title=WORDS, actor=ACTORS)
    def edit(self, number: int, title: str, actor: Actor) -> None:
        record = self.pick(number)
        if record is None:
            return
        expected = Wording.of(record)
        wording = Wording(title=title, body="edited", tags=record.tags, collection=record.collection)
        try:
            after = curation.edit_record(self.store, record.id, actor, expected=expected, wording=wording)
        except UserError:
            return
        assert actor.role == "person"
        if after.approved:
            self.blessed.add(said(after))

    @rule(number=PICK, action=st.sampled_from([curation.reject, curation.withdraw, curation.delete]))
    def close(self, number: int, action: object) -> None:
        record = self.pick(number)
        if record is not None and (record.kind != "receipt" or action is curation.delete):
            action(self.store, record.id, PERSON)  # type: ignore[operator]

    @rule(number=PICK, actor=ACTORS)
    def review(self, number: int, actor: Actor) -> None:
        record = self.pick(number)
        if record is not None:
            review(self.store, [record.id], {record.id: "good"} if number % 2 else {}, actor, purpose="p")

    @precondition(lambda self: bool(history(self.store, limit=1)))
    @rule(back=st.integers(0, 6), actor=ACTORS)
    def undo(self, back: int, actor: Actor) -> None:
        number = history(self.store, limit=1)[0].change - back
        try:
            undo(self.store, number, actor)
        except UserError:
            return

    @rule(number=PICK)
    def text_changed_behind_the_store(self, number: int) -> None:
        record = self.pick(number)
        if record is not None:
            with self.store.transaction() as connection:
                connection.execute("UPDATE nodes SET body = 'smuggled' WHERE id = ?", (record.id,))

    @rule(title=WORDS, approved=st.booleans())
    def merged(self, title: str, approved: bool) -> None:
        self.num_merges += 1
        other = new_store(self.place / f"other{self.num_merges}")
        record = propose(other, guidance(f"{title} elsewhere"), seen())
        if approved:
            curation.approve(other, record.id, PERSON)
            self.blessed.add(said(record))
        report = merge.plan(other.path, self.store)
        try:
            backup = self.place / f"backup{self.num_merges}"
            merge.apply(other.path, self.store, backup=backup, expect=report.target_digest, person=PERSON)
        except UserError:
            assert report.conflicts
        other.close()

    @invariant()
    def only_what_a_person_approved_is_delivered(self) -> None:
        start = session_start(self.store, repository=REPOSITORY, session="s9", max_lessons=50, max_tokens=10_000)
        for record in self.store.by_ids(start.delivered).values():
            assert record.kind in GOVERNED and said(record) in self.blessed
        for session in ("s1", "s9"):
            request = Request(strings=("release",), depth=Depth())
            chosen = select(self.store, request, Everything(self.store), repository=REPOSITORY, session=session)
            for record in self.store.by_ids([*chosen.delivered, *chosen.wrappers]).values():
                assert record.kind not in GOVERNED
                line = next(line for line in chosen.text.splitlines() if f"[{record.id}]" in line)
                own = record.provenance.session == session and "of this session, not reviewed" in line
                assert said(record) in self.blessed or own
        for name in assemble(self.store, task="t1", folder=self.place).delivered:
            assert said(self.store.get(name)) in self.blessed


Governance.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGovernance = Governance.TestCase
