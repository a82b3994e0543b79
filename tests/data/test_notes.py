"""The taught private status: which entry bears on what the agent does and announces, and that it fits the grammar."""

import pytest

from data.notes import NOTHING, status_note
from pmem.envelope import render_operations
from pmem.grammar import MAX_CONTENT_CHARS
from pmem.prompt import golden_snapshot
from pmem.snapshot import BankState, Entry, Snapshot

FACTS = {
    "tm-k-1": "Only grams will do as unit of the shops.",
    "tm-k-2": "Be sure to convert the trips to tons.",
    "tm-k-3": "intake to take next: ember",
    "tm-k-4": "The survey is decoded with codebook book1.",
    "tm-p-5": "bash bin/merge overlay trial failed (first at step 2): merge: method overlay failed here; merge by method union",
}


def seen(thought: str | None, *ids: str) -> Snapshot:
    """A snapshot whose newest step states `thought`, with these facts."""
    base = golden_snapshot()
    entries = tuple(
        Entry(id=name, kind="procedural" if "-p-" in name else "knowledge", content=FACTS[name], created=0, touched=0)
        for name in ids
    )
    window = (*base.window[:-1], base.window[-1].model_copy(update={"thought": thought}))
    return base.model_copy(update={"window": window, "bank": BankState(entries=entries, next_number=9)})


@pytest.mark.parametrize(
    ("thought", "note"),
    [
        (
            "Now convert the shops, unit tons. Next: ingest the intake next in line, choosing cedar as sensor.",
            "convert the shops, unit tons ~ Only grams will do as unit of the shops; "
            "ingest the intake next in line, choosing cedar as sensor ~ intake to take next: ember",
        ),
        (
            "Get the spring survey decoded with book3, then do the orders: convert it to tons.",
            f"Get the spring survey decoded with book3 ~ The survey is decoded with codebook book1; do the orders: convert it to tons ~ {NOTHING}",
        ),
        ("Merge trial by method overlay.", f"Merge trial by method overlay ~ {FACTS['tm-p-5'][:83]}"),
    ],
)
def test_every_clause_stands_beside_the_fact_about_its_thing(thought: str, note: str) -> None:
    found = status_note(seen(thought, *FACTS))
    assert found is not None and (found.op, found.content) == ("update_status", note)


def test_without_a_thought_there_is_no_note_and_a_long_one_fits_the_grammar() -> None:
    assert status_note(seen(None, "tm-k-1")) is None and status_note(seen(" . ", "tm-k-1")) is None
    long = status_note(seen(f"Now {'convert the shops and then some ' * 20}. Next: {'convert the trips ' * 30}.", *FACTS))
    assert long is not None and len(str(long.content)) <= MAX_CONTENT_CHARS and "update_status" in render_operations([long])
