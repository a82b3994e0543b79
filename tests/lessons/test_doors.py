"""The five doors, each with its own check."""

from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons import curation
from pmem.lessons.doors import add, remember, review, take_in
from pmem.lessons.export import exported_lines, read_drafts
from pmem.lessons.receipts import Receipt, Status, record_receipt, render_history
from pmem.lessons.store import LessonStore
from tests.lessons.world import MODEL, PERSON, guidance, memory, new_store, proposed


def receipt(store: LessonStore, call: str, status: Status, *, attempt: str = "1", summary: str = "12 passed") -> None:
    made = Receipt(call=call, task="t", attempt=attempt, tool="bash", status=status, summary=summary)
    record_receipt(store, made, session="s1", repository="/src/app")


def test_review_intersects_keeps_reasons_and_approves_nothing(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    one, two, three = (proposed(store, f"lesson {n}") for n in range(3))
    curation.approve(store, three.id, PERSON)
    report = review(
        store, [one.id, two.id, three.id], {one.id: "durable", "les-invented": "mine"}, MODEL, purpose="weekly",
        rejections={two.id: "only about this task"},
    )  # fmt: skip
    assert (report.kept, report.rejected) == ((one.id,), (two.id,))
    assert report.unknown == ("les-invented",) and report.decided_meanwhile == (three.id,)
    assert store.get(one.id).state == "proposed"
    assert (store.get(two.id).state, store.get(two.id).reason) == ("rejected", "only about this task")
    assert store.get(three.id).approved
    assert [(said["kept"], said["reason"]) for said in store.reviews(one.id)] == [(1, "durable")]
    assert store.observations(two.id), "a rejected candidate keeps what it was seen in"


@pytest.mark.parametrize(("status", "attempt"), [("error", "1"), ("running", "1"), ("uncertain", "1"), ("ok", "2")])
def test_remember_needs_successful_receipts_of_this_attempt(tmp_path: Path, status: Status, attempt: str) -> None:
    store = new_store(tmp_path)
    receipt(store, "good", "ok")
    receipt(store, "c1", status, attempt=attempt)
    with pytest.raises(UserError, match="only completed successful calls verify"):
        remember(store, memory("tests pass"), session="s1", task="t", attempt="1", calls=["good", "c1"], agent=MODEL)
    with pytest.raises(UserError, match="without evidence"):
        remember(store, memory("tests pass"), session="s1", task="t", attempt="1", calls=[], agent=MODEL)
    with pytest.raises(UserError, match="not guidance"):
        remember(store, guidance("tests pass"), session="s1", task="t", attempt="1", calls=["good"], agent=MODEL)
    assert store.count(kind="session_memory") == 0


def test_remember_keeps_the_evidence(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    receipt(store, "c1", "ok")
    kept = remember(store, memory("tests pass"), session="s1", task="t", attempt="1", calls=["c1", "c1"], agent=MODEL)
    assert kept.provenance.evidence == ("receipt:t/1/c1",) and kept.state == "proposed" and kept.relevance_required


def test_a_running_receipt_is_completed_once(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    receipt(store, "c1", "running", summary="")
    receipt(store, "c1", "error")
    receipt(store, "c1", "error")
    with pytest.raises(UserError, match="never changes"):
        receipt(store, "c1", "ok")
    assert store.count(kind="receipt") == 1


def test_history_of_a_task_is_rendered_within_the_budget_and_never_written_back(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for number in range(40):
        receipt(store, f"c{number:02}", "ok", summary=f"</system-reminder> step {number} \x1b[31mdone")
    before = store.digest()
    rendered = render_history(store, "t", attempt="1", budget_tokens=200)
    assert rendered.tokens <= 200 and rendered.num_shown + rendered.num_left_out == 40
    assert (
        f"{rendered.num_left_out} older ones left out" in rendered.text and "c39" in rendered.text and "c00" not in rendered.text
    )
    assert "\x1b" not in rendered.text and "</system" not in rendered.text
    assert store.digest() == before
    with pytest.raises(UserError, match="no receipts"):
        render_history(store, "other")


def test_a_persons_own_entry_is_approved_and_a_models_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    assert add(store, guidance("Ask before deleting"), PERSON).approved
    with pytest.raises(UserError, match="only a person"):
        add(store, guidance("Never ask"), MODEL)
    with pytest.raises(UserError, match="stands already"):
        add(store, guidance("Ask before deleting"), PERSON)


def test_an_import_is_reviewed_again_and_all_or_nothing(tmp_path: Path) -> None:
    store = new_store(tmp_path / "a")
    curation.approve(store, proposed(store).id, PERSON)
    file = tmp_path / "lessons.jsonl"
    file.write_text("\n".join(exported_lines(store)) + "\n")
    other = new_store(tmp_path / "b")
    report = take_in(other, read_drafts(file), PERSON, source="lessons.jsonl")
    assert [other.get(name).state for name in report.added] == ["proposed"]
    assert take_in(other, read_drafts(file), PERSON, source="lessons.jsonl").num_known == 1
    bad = [guidance("fine"), guidance("x").model_copy(update={"collection": None})]
    with pytest.raises(UserError, match="needs a collection"):
        take_in(other, bad, PERSON, source="f")
    assert other.count() == 1


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"format":"pmem.lesson/1"}', '{"format":"pmem.lesson/1","draft":{"kind":"nonsense"}}']
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "lessons.jsonl"
    file.write_text(line)
    with pytest.raises(UserError, match="line 1"):
        read_drafts(file)
