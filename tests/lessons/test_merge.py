"""Merge: exact report, vetoes, one transaction, read-back, and a backup that comes back by itself."""

from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons import curation, merge
from pmem.lessons.curation import Wording
from pmem.lessons.doors import add
from pmem.lessons.records import Draft
from pmem.lessons.schema import VERSION
from pmem.lessons.store import LessonStore
from tests.lessons.test_checkpoints import published, tree
from tests.lessons.test_schema import old_file
from tests.lessons.world import MODEL, PERSON, REPOSITORY, memory, new_store, proposed


def two_stores(folder: Path) -> tuple[LessonStore, LessonStore]:
    old, new = new_store(folder / "old"), new_store(folder / "new")
    curation.approve(old, proposed(old, "only there").id, PERSON)
    add(old, Draft(kind="instruction", title="Style", repository=REPOSITORY), PERSON, tasks=["t1"])
    add(new, memory("only here"), PERSON)
    return old, new


def test_dry_run_writes_nothing_and_apply_does_what_it_reported(tmp_path: Path) -> None:
    old, new = two_stores(tmp_path)
    published(old, tree(tmp_path / "a", x="1"), "x")
    before, old_digest = new.digest(), old.digest()
    report = merge.plan(old.path, new)
    assert new.digest() == before == report.target_digest
    assert len(report.added) == 3 and report.tasks == ("t1",) and not report.conflicts
    merge.apply(old.path, new, backup=tmp_path / "backup", expect=report.target_digest, person=PERSON)
    assert new.digest() == report.result_digest and old.digest() == old_digest
    assert new.records(kind="guidance")[0].approved and new.sources("linked_task", "t1")
    assert new.observations(new.records(kind="guidance")[0].id)
    from pmem.lessons.materialize import materialize

    materialize(new, new.records(kind="checkpoint")[0].id, tmp_path / "out")
    again = merge.plan(old.path, new)
    assert not again.added and len(again.identical) == 3 and again.relations_added == 0
    merge.apply(old.path, new, backup=tmp_path / "backup2", expect=again.target_digest, person=PERSON)
    assert len(new.observations(new.records(kind="guidance")[0].id)) == 1


def test_conflicting_identities_veto_all_of_it(tmp_path: Path) -> None:
    old, new = two_stores(tmp_path)
    theirs, ours = proposed(old, "both"), proposed(new, "both")
    wording = Wording(title="both, edited", body="", tags=ours.tags, collection="bank")
    curation.edit_record(new, ours.id, PERSON, expected=Wording.of(ours), wording=wording)
    report = merge.plan(old.path, new)
    assert report.conflicts == (theirs.id,)
    before = new.digest()
    with pytest.raises(UserError, match=theirs.id):
        merge.apply(old.path, new, backup=tmp_path / "backup", expect=report.target_digest, person=PERSON)
    assert new.digest() == before


def test_a_target_that_changed_since_the_report_vetoes(tmp_path: Path) -> None:
    old, new = two_stores(tmp_path)
    report = merge.plan(old.path, new)
    late = proposed(new, "came in between")
    with pytest.raises(UserError, match="changed since the report"):
        merge.apply(old.path, new, backup=tmp_path / "backup", expect=report.target_digest, person=PERSON)
    assert {record.title for record in new.records()} == {"only here", late.title}


def test_backup_folder_must_be_new_and_a_person_must_merge(tmp_path: Path) -> None:
    old, new = two_stores(tmp_path)
    (tmp_path / "backup").mkdir()
    with pytest.raises(UserError, match="name a new one"):
        merge.apply(old.path, new, backup=tmp_path / "backup", expect="", person=PERSON)
    with pytest.raises(UserError, match="only a person"):
        merge.apply(old.path, new, backup=tmp_path / "b", expect="", person=MODEL)
    with pytest.raises(UserError, match="is not there"):
        merge.plan(tmp_path / "nope.db", new)


def test_a_result_that_does_not_read_back_restores_the_backup_by_itself(tmp_path: Path) -> None:
    old, new = two_stores(tmp_path)
    before = new.digest()
    with new.transaction() as connection:  # a disk that answers otherwise than it was told, once the merge is committed
        connection.execute(
            "CREATE TRIGGER spoil AFTER INSERT ON history WHEN new.action = 'merge' BEGIN "
            "UPDATE nodes SET title = 'spoilt' WHERE title = 'only here'; END"
        )
    report = merge.plan(old.path, new)
    with pytest.raises(UserError, match="was restored from"):
        merge.apply(old.path, new, backup=tmp_path / "backup", expect=report.target_digest, person=PERSON)
    assert new.digest() == before
    with LessonStore(new.path) as again:
        assert again.digest() == before and again.rows("PRAGMA integrity_check")[0][0] == "ok"


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_old_store_of_an_older_version_is_read_and_left_as_it_was(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old.db"
    old_file(old, version)
    held = old.read_bytes()
    new = new_store(tmp_path / "new")
    report = merge.plan(old, new)
    merge.apply(old, new, backup=tmp_path / "backup", expect=report.target_digest, person=PERSON)
    assert new.records()[0].approved and old.read_bytes() == held


def test_policy_migration_by_tag_is_idempotent_and_reported(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    one = add(store, memory("a", tags=("saved",), relevance_required=False), PERSON)
    add(store, memory("b", tags=("saved",)), PERSON)
    add(store, memory("c", relevance_required=False), PERSON)
    dry = curation.require_relevance(store, "saved", PERSON, apply=False)
    assert dry.changed == (one.id,) and not store.get(one.id).relevance_required
    assert curation.require_relevance(store, "saved", PERSON, apply=True).changed == (one.id,)
    again = curation.require_relevance(store, "saved", PERSON, apply=True)
    assert again.changed == () and again.num_already == 2 and store.get(one.id).relevance_required
