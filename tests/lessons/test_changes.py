"""History and undo; decisions that stand; deletion that spares children."""

from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons import curation
from pmem.lessons.changes import history, undo
from pmem.lessons.curation import EditConflict, Wording
from pmem.lessons.doors import add, propose
from tests.lessons.world import MODEL, PERSON, guidance, memory, new_store, proposed, seen


def test_an_edit_is_refused_when_the_text_changed_meanwhile(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    first = Wording.of(record)
    curation.edit_record(store, record.id, PERSON, expected=first, wording=Wording(title="USD", body="", collection="bank"))
    with pytest.raises(EditConflict) as conflict:
        curation.edit_record(store, record.id, PERSON, expected=first, wording=Wording(title="GBP", body="", collection="bank"))
    assert conflict.value.current.title == store.get(record.id).title == "USD"
    with pytest.raises(EditConflict):
        curation.approve(store, record.id, PERSON, expected=first)


def test_undo_takes_back_any_change_and_undo_of_undo_does_it_again(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    curation.approve(store, record.id, PERSON, "seen it hold")
    number = history(store, record.id)[0].change
    undo(store, number, PERSON)
    assert store.get(record.id).state == "proposed"
    undo(store, history(store, record.id)[0].change, PERSON)
    again = store.get(record.id)
    assert again.approved and again.reason == "seen it hold"


def test_undo_of_an_older_change_is_refused_until_the_later_one_is_undone(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    curation.approve(store, record.id, PERSON)
    approved = history(store, record.id)[0].change
    curation.withdraw(store, record.id, PERSON)
    with pytest.raises(UserError, match="changed since"):
        undo(store, approved, PERSON)
    undo(store, history(store, record.id)[0].change, PERSON)
    undo(store, approved, PERSON)
    assert store.get(record.id).state == "proposed"


def test_delete_spares_children_and_undo_brings_record_and_relations_back(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    parent = add(store, memory("parent"), PERSON)
    child = add(store, memory("child"), PERSON)
    curation.link(store, child.id, parent.id, PERSON, kind="part_of")
    edges = curation.delete(store, parent.id, PERSON)
    assert edges == ((child.id, "part_of", parent.id),)
    assert store.find(parent.id) is None and store.relations(child.id) == []
    assert store.get(child.id) == child
    undo(store, history(store, parent.id)[0].change, PERSON)
    assert store.get(parent.id).title == "parent" and store.relations(child.id) == list(edges)


def test_what_a_person_decided_stands_against_the_same_proposal(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    curation.reject(store, record.id, PERSON, "wrong unit")
    again = propose(store, guidance("The  unit is eur"), seen(session="s2", step="s2-1"))
    assert again.id == record.id and again.state == "rejected" and again.reason == "wrong unit"
    assert [one["session"] for one in store.observations(record.id)] == ["s1", "s2"]


@pytest.mark.parametrize("action", [curation.approve, curation.reject, curation.withdraw, curation.delete])
def test_only_a_person_decides(tmp_path: Path, action: object) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    before = store.digest()
    with pytest.raises(UserError, match="only a person"):
        action(store, record.id, MODEL)  # type: ignore[operator]
    assert store.digest() == before


def test_the_file_itself_refuses_an_approval_without_a_person(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    with pytest.raises(UserError), store.transaction() as connection:
        connection.execute("UPDATE nodes SET state = 'approved', decided_by = 'model:x' WHERE id = ?", (record.id,))
    assert store.get(record.id).state == "proposed"


def test_text_that_was_changed_behind_the_store_is_not_approved_any_more(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = curation.approve(store, proposed(store).id, PERSON)
    with store.transaction() as connection:
        connection.execute("UPDATE nodes SET title = 'Run rm -rf' WHERE id = ?", (record.id,))
    assert not store.get(record.id).approved


def test_secrets_do_not_enter(tmp_path: Path) -> None:
    record = proposed(new_store(tmp_path), "token is ghp_16C7e42F292c6912E7710c838347Ae178B4a")
    assert "ghp_" not in record.title and record.provenance.redactions == 1


def test_only_the_separate_word_widens(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    assert curation.approve(store, record.id, PERSON).scope == "repository"
    assert curation.approve(store, record.id, PERSON, everywhere=True).scope == "global"
    with pytest.raises(UserError, match="needs a repository"):
        propose(store, guidance("x", repository=None), seen())
