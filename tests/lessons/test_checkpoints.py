"""Checkpoints: content-addressed, bases first, refused with the id, finished after a crash, partial when partial."""

import os
from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons import curation
from pmem.lessons.agents_file import MARK
from pmem.lessons.blobs import blob_path, manifest_path, read_manifest
from pmem.lessons.changes import change
from pmem.lessons.checkpoints import Published, publish, recover
from pmem.lessons.doors import add
from pmem.lessons.materialize import directory_payload, materialize, resolve
from pmem.lessons.records import Draft, Record
from pmem.lessons.store import LessonStore
from tests.lessons.world import PERSON, REPOSITORY, new_store


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def published(store: LessonStore, folder: Path, *paths: str, base: tuple[str, ...] = ()) -> tuple[Published, Record]:
    done = publish(store, folder, paths, title="work", base=base, repository=REPOSITORY, session="s1")
    assert done.record is not None
    return done, done.record


def test_bases_come_before_what_builds_on_them(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    _, base = published(store, tree(tmp_path / "a", common="old", kept="kept", sub__x="deep"), "common", "kept", "sub")
    done, top = published(store, tree(tmp_path / "b", common="new"), "common", base=(base.id,))
    assert done.status == "complete" and store.targets(top.id, "base") == [base.id]
    brought = materialize(store, top.id, tmp_path / "out")
    assert brought.order == (base.id, top.id)
    assert (tmp_path / "out/common").read_text() == "new" and (tmp_path / "out/kept").read_text() == "kept"
    assert (tmp_path / "out/sub/x").read_text() == "deep" and store.get(top.id).used is not None
    assert [row["route"] for row in store.rows("SELECT route FROM deliveries")] == ["materialize"]
    with pytest.raises(UserError, match="not empty"):
        materialize(store, top.id, tmp_path / "out")


def test_a_checkpoints_words_hold_no_secret(tmp_path: Path) -> None:
    done = publish(
        new_store(tmp_path), tree(tmp_path / "a", x="1"), ["x"], title="key ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        repository=REPOSITORY,
    )  # fmt: skip
    assert done.record is not None and "ghp_" not in done.record.title and done.record.provenance.redactions == 1


def test_publishing_the_same_again_is_the_same_record(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    folder = tree(tmp_path / "a", x="1")
    assert published(store, folder, "x")[1] == published(store, folder, "x")[1]


def test_partial_success_says_what_is_missing(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    folder = tree(tmp_path / "a", x="1", y="2")
    (folder / "link").symlink_to(folder / "y")
    done, _ = published(store, folder, "x", "nope", "link")
    assert done.status == "partial" and done.num_files == 1
    assert any("nope: not there" in problem for problem in done.problems) and any("link" in problem for problem in done.problems)
    with pytest.raises(UserError, match="nothing of"):
        publish(store, folder, ["nope"], title="t", repository=REPOSITORY)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b"])
def test_paths_stay_inside_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(UserError, match="would leave its folder"):
        publish(new_store(tmp_path), tree(tmp_path / "a", x="1"), [path], title="t", repository=REPOSITORY)


def test_a_link_that_leads_out_is_left_out(tmp_path: Path) -> None:
    folder = tree(tmp_path / "a", x="1")
    (folder / "out").symlink_to("/etc")
    assert "leads out" in published(new_store(tmp_path), folder, "x", "out")[0].problems[0]


def test_the_assembled_agents_file_is_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    folder = tree(tmp_path / "a", sub__x="1")
    (folder / "sub/AGENTS.md").write_text(MARK)
    store = new_store(tmp_path)
    done, _ = published(store, folder, "sub")
    manifest = read_manifest(store.folder, done.manifest)
    assert manifest is not None and [file.path for file in manifest.files] == ["sub/x"]


def test_cycles_missing_bases_and_missing_bytes_are_refused_with_the_id(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    done, one = published(store, tree(tmp_path / "a", x="1"), "x")
    _, two = published(store, tree(tmp_path / "b", x="2"), "x", base=(one.id,))
    with change(store, PERSON, "link") as edit:
        edit.relate((one.id, "base", two.id))
    with pytest.raises(UserError, match=f"cycle at {two.id}"):
        resolve(store, two.id)
    curation.unlink(store, one.id, two.id, PERSON, kind="base")
    manifest = read_manifest(store.folder, done.manifest)
    assert manifest is not None
    blob_path(store.folder, manifest.files[0].sha256).unlink()
    with pytest.raises(UserError, match=f"{one.id}: bytes of x are missing"):
        materialize(store, two.id, tmp_path / "out")
    manifest_path(store.folder, done.manifest).write_text("{}")
    with pytest.raises(UserError, match=f"{one.id}: its manifest"):
        materialize(store, two.id, tmp_path / "out")
    curation.delete(store, one.id, PERSON)
    with pytest.raises(UserError, match=one.id):
        materialize(store, two.id, tmp_path / "out")
    with pytest.raises(UserError, match="base les-none"):
        publish(store, tmp_path / "b", ["x"], title="t", base=("les-none",), repository=REPOSITORY)
    assert not (tmp_path / "out").exists()


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    done, record = published(store, tree(tmp_path / "a", x="1"), "x")
    manifest = read_manifest(store.folder, done.manifest)
    assert manifest is not None
    blob_path(store.folder, manifest.files[0].sha256).write_text("2")
    with pytest.raises(UserError, match="damaged"):
        materialize(store, record.id, tmp_path / "out")


def test_a_changed_directory_is_refused_with_the_id(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    folder = tree(tmp_path / "a", x="1")
    draft = Draft(
        kind="directory", title="work", repository=REPOSITORY, payload=directory_payload(folder), relevance_required=True
    )
    record = add(store, draft, PERSON)
    materialize(store, record.id, tmp_path / "out")
    (folder / "x").write_text("changed")
    with pytest.raises(UserError, match=f"{record.id}: its directory .* changed"):
        materialize(store, record.id, tmp_path / "out2")


def test_a_crash_before_the_record_is_finished_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path)
    folder = tree(tmp_path / "a", x="1")
    published(store, folder, "x")
    manifest = store.rows("SELECT manifest FROM publications")[0][0]
    with store.transaction() as connection:  # the state a crash leaves: announced, no record
        connection.execute("DELETE FROM nodes")
        connection.execute("UPDATE publications SET state = 'pending', node = NULL")
    store.close()
    again = LessonStore(store.path)
    assert recover(again) == [manifest] and recover(again) == []
    assert again.records()[0].payload["manifest"] == manifest
    assert again.rows("SELECT state FROM publications")[0][0] == "complete"


def test_what_a_killed_publication_left_is_swept(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    published(store, tree(tmp_path / "a", x="1"), "x")
    left = store.folder / "blobs" / "abc.tmp-pmem"
    left.write_text("half")
    recover(store)
    assert left.exists(), "a young one may belong to a process at work"
    os.utime(left, (1.0, 1.0))
    recover(store)
    assert not left.exists()


def test_a_publication_without_its_bytes_is_marked_failed(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    done, _ = published(store, tree(tmp_path / "a", x="1"), "x")
    with store.transaction() as connection:
        connection.execute("DELETE FROM nodes")
        connection.execute("UPDATE publications SET state = 'pending'")
    manifest_path(store.folder, done.manifest).unlink()
    assert recover(store) == [] and "missing" in store.rows("SELECT problem FROM publications")[0][0]
