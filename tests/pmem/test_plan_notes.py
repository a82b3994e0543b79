"""Plan notes: which entry bears on what the agent does and announces, and that a request shows nothing by them that it did not hold."""

import pytest

from pmem.errors import UserError
from pmem.plan_notes import MAX_CLAUSE_CHARS, MAX_ENTRY_CHARS, NOTHING, plan_notes
from pmem.prompt import NOTES_VERSION, PROMPT_VERSION, golden_snapshot, render_messages, with_notes
from pmem.snapshot import Entry

FACTS = {
    "tm-k-1": "Only grams will do as unit of the shops.",
    "tm-k-2": "Be sure to convert the trips to tons.",
    "tm-k-3": "intake to take next: ember",
    "tm-k-4": "The survey is decoded with codebook book1.",
    "tm-p-5": "bash bin/merge overlay trial failed (first at step 2): merge: method overlay failed here; merge by method union",
}
ENTRIES = [
    Entry(id=name, kind="procedural" if "-p-" in name else "knowledge", content=content, created=0, touched=0)
    for name, content in FACTS.items()
]


@pytest.mark.parametrize(
    ("thought", "notes"),
    [
        (
            "Now convert the shops, unit tons. Next: ingest the intake next in line, choosing cedar as sensor.",
            [
                f"- convert the shops, unit tons ~ [tm-k-1] {FACTS['tm-k-1']}",
                f"- ingest the intake next in line, choosing cedar as sensor ~ [tm-k-3] {FACTS['tm-k-3']}",
            ],
        ),
        (
            "Get the spring survey decoded with book3, then do the orders: convert it to tons.",
            [
                f"- Get the spring survey decoded with book3 ~ [tm-k-4] {FACTS['tm-k-4']}",
                f"- do the orders: convert it to tons ~ {NOTHING}",
            ],
        ),
        ("Merge trial by method overlay.", [f"- Merge trial by method overlay ~ [tm-p-5] {FACTS['tm-p-5'][:MAX_ENTRY_CHARS]}"]),
        (None, []),
        (" . ", []),
    ],
)
def test_every_clause_stands_beside_the_fact_about_its_thing(thought: str | None, notes: list[str]) -> None:
    assert plan_notes(thought, ENTRIES) == notes


def test_long_clauses_and_entries_are_cut() -> None:
    long = Entry(id="tm-k-9", kind="knowledge", content="convert the shops " * 60, created=0, touched=0)
    notes = plan_notes(f"Now {'convert the shops and then some ' * 20}. Next: {'convert the trips ' * 30}.", [long, *ENTRIES])
    assert len(notes) == 2 and max(map(len, notes)) <= len("- ") + MAX_CLAUSE_CHARS + len(" ~ [tm-k-9] ") + MAX_ENTRY_CHARS


def test_a_request_ends_with_the_notes_where_they_are_asked_for() -> None:
    snapshot = golden_snapshot()
    plain, noted = (render_messages(snapshot, plan_notes=wanted)[1]["content"] for wanted in (False, True))
    assert noted == (
        f"{plain}\n# Plan beside bank\n- Checked out/ ~ {NOTHING}\n- write out/report.csv ~ [tm-k-1] Write the report as JSON."
    )
    silent = snapshot.model_copy(update={"window": ()})
    assert render_messages(silent, plan_notes=True) == render_messages(silent)
    hidden = render_messages(snapshot, plan_notes=True, bank_budget_tokens=16)[1]["content"]
    assert "[tm-k-1]" not in hidden and hidden.endswith(f"write out/report.csv ~ {NOTHING}"), (
        "an entry the bank does not show stays unseen"
    )


def test_the_version_of_the_notes_travels_by_itself() -> None:
    assert NOTES_VERSION != PROMPT_VERSION
    assert with_notes(NOTES_VERSION, "x") and not with_notes(None, "x")
    with pytest.raises(UserError, match=r"rows\.parquet was made with plan notes of version old"):
        with_notes("old", "rows.parquet")
