"""Exchanged names: the same situation in other words; what agreed still agrees, what differed still differs."""

import random

import pytest

from data.renaming import Names, made_up, names_of
from pmem.envelope import Operation
from pmem.plan_notes import clauses_with_entries, plan_note
from pmem.prompt import golden_snapshot, render_messages
from pmem.snapshot import BankState, Entry, Snapshot

FACTS = ("Only grams will do as unit of the shops.", "Be sure to sort the trips by desk2.", "intake to take next: ember")


def told(thought: str, *facts: str, name: str = "s1") -> Snapshot:
    """A snapshot of one step."""
    base = golden_snapshot()
    entries = tuple(
        Entry(id=f"tm-k-{number}", kind="knowledge", content=fact, created=0, touched=0) for number, fact in enumerate(facts, 1)
    )
    step = base.window[-1].model_copy(update={"call": "bin/ingest ember", "digest": "through", "thought": thought})
    bank = BankState(entries=entries, next_number=9)
    return base.model_copy(
        update={"snapshot_id": name, "task_messages": (". ".join(facts),), "window": (step,), "bank": bank, "last_reminder": None}
    )


def test_names_are_words_of_few_tasks_without_another_form() -> None:
    common = [(f"t{number}", told("Sort it, take it, sorted by desk2 or desk3, hash a0b1, on top.")) for number in range(2)]
    rare = [(f"u{number}", told("take it")) for number in range(10)]
    names = names_of([*common, *rare, ("one", told("for the shops of grams: KeyError"))]).words
    assert {"shops", "grams", "KeyError", "desk2", "desk3"} <= set(names)
    assert not {"take", "ember", "Sort", "sorted", "a0b1", "for", "the"} & set(names)


@pytest.mark.parametrize("seed", range(20))
def test_what_bears_on_what_is_the_same_in_other_names(seed: int) -> None:
    names = Names(("grams", "shops", "trips", "desk2", "ember", "clara", "desk3"))
    snapshot = told("Now convert the shops to grams. Next: ingest the intake next in line from desk3.", *FACTS, name=f"s{seed}")
    operations = [Operation("save_knowledge", content=FACTS[0])]
    other, written, reminder = names.exchanged(snapshot, operations, f"{FACTS[2]} [tm-k-3]")
    assert (other, written, reminder) == names.exchanged(snapshot, operations, f"{FACTS[2]} [tm-k-3]"), "the same every time"
    assert written[0].content == other.bank.entries[0].content and other.task_messages[0].startswith(str(written[0].content))
    assert reminder == f"{other.bank.entries[2].content} [tm-k-3]" and other.window[0].call.endswith(reminder.split()[-2])
    text = render_messages(other)[-1]["content"]
    assert not any(word in text for word in ("grams", "shops", "ember")) or seed, "names are drawn from the same words"
    pairs = [(None if entry is None else entry.id) for _, entry in clauses_with_entries(other)]
    assert pairs == ["tm-k-1", "tm-k-3"] == [entry.id for _, entry in clauses_with_entries(snapshot) if entry]
    note = str(getattr(plan_note(other), "content", ""))
    unit, sensor = (part.split(" ~ ") for part in note.split("; "))
    assert unit[0].split()[-1] in unit[1] and sensor[0].split()[-1] not in sensor[1], "one plan keeps to its fact, one does not"


def test_a_snapshot_without_names_stays_as_it_is() -> None:
    snapshot = told("take it", *FACTS)
    assert Names(("paris",)).exchanged(snapshot, (), None) == (snapshot, (), None)


def test_made_up_words_can_be_spoken() -> None:
    generator = random.Random(3)
    words = {made_up(generator) for _ in range(200)}
    assert len(words) > 150 and all(4 <= len(word) <= 6 and word.isalpha() for word in words)
