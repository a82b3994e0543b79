"""The plan note: which entry bears on what the agent does and announces, that it fits the grammar, and how it ends a step's list."""

import pytest

from pmem.envelope import MAX_OPERATIONS, OPERATIONS_CLOSE, Operation, render_operations
from pmem.errors import UserError
from pmem.gates import GateProfile
from pmem.grammar import MAX_CONTENT_CHARS
from pmem.plan_notes import NOTES_VERSION, NOTHING, plan_note, with_notes
from pmem.policy import ModelPolicy
from pmem.prompt import golden_snapshot
from pmem.scripted import ScriptedBackend
from pmem.snapshot import BankState, Entry, Snapshot
from pmem.step import STATUS_OPEN, closed_before_status

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
    found = plan_note(seen(thought, *FACTS))
    assert found is not None and (found.op, found.content) == ("update_status", note)


def test_without_a_thought_there_is_no_note_and_a_long_one_fits_the_grammar() -> None:
    assert plan_note(seen(None, "tm-k-1")) is None and plan_note(seen(" . ", "tm-k-1")) is None
    long = plan_note(seen(f"Now {'convert the shops and then some ' * 20}. Next: {'convert the trips ' * 30}.", *FACTS))
    assert long is not None and len(str(long.content)) <= MAX_CONTENT_CHARS and "update_status" in render_operations([long])


def test_the_version_of_the_notes_travels_by_itself() -> None:
    assert with_notes(NOTES_VERSION, "x") and not with_notes(None, "x")
    with pytest.raises(UserError, match=r"rows\.parquet was made with plan notes of version old"):
        with_notes("old", "rows.parquet")


SAVE = '{"op":"save_knowledge","content":"Write UTF-8."}'


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f"<operations>[{STATUS_OPEN}", []),
        (f"<operations>[{SAVE},{STATUS_OPEN}", ["Write UTF-8."]),
        (f"<operations>[{SAVE}, {STATUS_OPEN}", ["Write UTF-8."]),
        (f"<operations>[{SAVE}]</operations>", ["Write UTF-8."]),
        (f'<operations>[{STATUS_OPEN},"content":"mine"}},{SAVE}]</operations>', ["Write UTF-8."]),
        (f"<operations>[{','.join([SAVE] * MAX_OPERATIONS)}]</operations>", ["Write UTF-8."] * (MAX_OPERATIONS - 1)),
    ],
)
def test_the_note_ends_the_list_whatever_status_the_model_had_begun(written: str, kept: list[str]) -> None:
    snapshot = seen("Next: convert the shops to tons.", *FACTS)
    backend = ScriptedBackend(lists=[written], probs=[0.2], reminders=[])
    result = ModelPolicy(backend, plan_notes=True).step(snapshot)
    note = plan_note(snapshot)
    assert note is not None and result.operations == (*(Operation("save_knowledge", content=text) for text in kept), note)
    assert result.list_text == render_operations(result.operations) and result.bank_after.status == note.content
    assert backend.requests[0].stop == (OPERATIONS_CLOSE, STATUS_OPEN)
    assert backend.requests[1].prefix == result.list_text + "\n", "the decision is read behind the note"


PLAN = "Now convert the shops to tons. Next: get the spring survey decoded with book3."


@pytest.mark.parametrize(("alone", "cited"), [((0.9, 0.2), "tm-k-1"), ((0.3, 0.8), "tm-k-4"), ((0.5, 0.5), "tm-k-4")])
def test_of_two_noted_entries_the_one_whose_clause_alone_speaks_louder_is_said(alone: tuple[float, float], cited: str) -> None:
    snapshot = seen(PLAN, *FACTS)
    backend = ScriptedBackend(lists=[f"<operations>[{STATUS_OPEN}"], probs=[0.9, *alone], reminders=[])
    result = ModelPolicy(backend, plan_notes=True).step(snapshot)
    assert result.speaks and result.cited == (cited,) and result.prob_raw == 0.9
    assert result.reminder == f"{FACTS[cited].rstrip('.')}. [{cited}]", "word for word"
    clauses = [request.prefix.count(" ~ ") for request in backend.requests[1:]]
    assert clauses == [2, 1, 1] and len({request.step_id for request in backend.requests}) == 1
    assert result.tokens_in > 3 * 10


def test_one_noted_entry_is_said_without_asking_and_where_none_is_the_step_is_silent_unasked() -> None:
    one = ScriptedBackend(lists=[f"<operations>[{STATUS_OPEN}"], probs=[0.9], reminders=[])
    assert ModelPolicy(one, plan_notes=True).step(seen("Next: convert the shops to tons.", *FACTS)).cited == ("tm-k-1",)
    assert len(one.requests) == 2
    for thought in ("Look around.", None):
        none = ScriptedBackend(lists=[f"<operations>[{SAVE}]</operations>"], probs=[], reminders=[])
        result = ModelPolicy(none, plan_notes=True).step(seen(thought, *FACTS))
        assert (result.decision, result.reason, result.prob_raw) == ("silent", "nothing_noted", None)
        assert len(none.requests) == 1 and result.operations[0] == Operation("save_knowledge", content="Write UTF-8.")
    always = ScriptedBackend(
        lists=[f"<operations>[{STATUS_OPEN}"], probs=[0.9], reminders=["Mind this [tm-k-3]</context_for_action>"]
    )
    result = ModelPolicy(always, plan_notes=True, profile=GateProfile(noted=False)).step(seen("Look around.", *FACTS))
    assert result.reminder == "Mind this [tm-k-3]" and len(always.requests) == 3, "an arm that lifts the gate writes by itself"


def test_a_broken_list_stays_broken_and_without_a_plan_the_list_is_the_models_own() -> None:
    broken = ModelPolicy(ScriptedBackend(lists=["<operations>[oops"], probs=[], reminders=[]), plan_notes=True)
    assert broken.step(seen("Next: convert the shops.", *FACTS)).reason == "unparseable"
    backend = ScriptedBackend(lists=[f"<operations>[{SAVE}]</operations>"], probs=[], reminders=[])
    result = ModelPolicy(backend, plan_notes=True).step(seen(None, "tm-k-1"))
    assert [operation.op for operation in result.operations] == ["save_knowledge"]
    assert backend.requests[0].stop == (OPERATIONS_CLOSE,)
    assert closed_before_status("as it is") == "as it is"


def test_notes_need_a_decision_that_is_read_apart() -> None:
    with pytest.raises(UserError, match="set mode: scored"):
        ModelPolicy(ScriptedBackend(lists=[], probs=[], reminders=[]), plan_notes=True, mode="completion")
