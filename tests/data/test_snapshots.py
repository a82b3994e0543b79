"""Schemas of the data files: what is written is read back, in order of id, with the same bytes, and strangers are named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.labels import group_labels, read_labels, write_labels
from data.rows import read_pivots, read_sft, write_pivots, write_sft
from data.snapshots import SNAPSHOT_SCHEMA, read_snapshots, to_policy_snapshot, write_snapshots
from pmem.errors import UserError
from tests.data.make import SNAPSHOT, label_row, snapshot_row


def test_a_snapshot_comes_back_as_the_policy_saw_it(tmp_path: Path) -> None:
    path = tmp_path / "snapshots.parquet"
    assert write_snapshots(path, [snapshot_row()]) == 1
    row = next(read_snapshots(path))
    assert row["format"] == "pmem.snapshot/1"
    assert to_policy_snapshot(row) == SNAPSHOT.model_copy(update={"snapshot_id": row["snapshot_id"]})


def test_rows_are_sorted_and_bytes_do_not_depend_on_the_order_given(tmp_path: Path) -> None:
    rows = [snapshot_row(boundary_index=index) for index in range(20)]
    write_snapshots(tmp_path / "a", rows)
    write_snapshots(tmp_path / "b", reversed(rows))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    ids = [row["snapshot_id"] for row in read_snapshots(tmp_path / "a")]
    assert ids == sorted(ids) and len(set(ids)) == 20


def test_the_id_ignores_the_split() -> None:
    assert snapshot_row(split="test")["snapshot_id"] == snapshot_row()["snapshot_id"]


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'colour' in a pmem\.snapshot/1"):
        write_snapshots(tmp_path / "a", [{**snapshot_row(), "colour": 1}])
    assert not list(tmp_path.iterdir())


def test_a_foreign_or_cut_off_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    with pytest.raises(UserError, match="does not exist"):
        list(read_snapshots(path))
    write_labels(path, [label_row()])
    with pytest.raises(UserError, match="rollout_id"):
        list(read_snapshots(path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="not a whole Parquet file"):
        list(read_labels(path))
    table = pa.Table.from_pylist(
        [{**snapshot_row(), "format": "pmem.snapshot/1"}], schema=pa.schema([*SNAPSHOT_SCHEMA, pa.field("x", pa.int64())])
    )
    pq.write_table(table, path)
    with pytest.raises(UserError, match="unknown column 'x'"):
        list(read_snapshots(path))


def test_labels_group_by_snapshot_and_kind(tmp_path: Path) -> None:
    reminder = label_row(
        candidate_id="c1", reminder_text="Use it [tm-k-4].", cited_ids=["tm-k-4"], value=1.0, paired_diff=0.5, cost=0.1
    )
    write_labels(tmp_path / "l", [reminder, label_row(), label_row(snapshot_id="s2", divergence=True)])
    groups = group_labels(read_labels(tmp_path / "l"))
    first = groups["s1"][0]
    assert first.silence is not None and first.verdict == "need" and not first.voided
    assert first.advantage(first.candidates[0]) == pytest.approx(0.4)
    assert groups["s2"][0].voided


def test_sft_and_pivot_rows_round_trip(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    sft = {
        "format": "pmem.sft/1",
        "row_id": "1",
        "snapshot_id": "s",
        "split": "train",
        "prompt_messages": messages,
        "completion": "x",
        "decision": "silence",
        "weight": 1.0,
    }
    write_sft(tmp_path / "sft", [sft])
    assert list(read_sft(tmp_path / "sft")) == [sft]
    candidate = {"candidate_id": "c", "text": "t", "cited_ids": ["tm-k-1"], "value": 1.0, "std_error": 0.1}
    pivot = {
        "format": "pmem.pivot/1",
        "snapshot_id": "s",
        "split": "train",
        "prompt_messages": messages,
        "value_silent": 0.5,
        "std_error_silent": 0.1,
        "candidates": [candidate],
        "pivot_mean": 0.7,
        "pivot_var": 0.1,
        "policy_hash": None,
    }
    write_pivots(tmp_path / "pivots", [pivot])
    assert list(read_pivots(tmp_path / "pivots")) == [pivot]


def test_damaged_pages_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    write_labels(path, [label_row(snapshot_id=f"{index:016x}", value=index / 97) for index in range(400)])
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for index in range(4, len(content) - footer):
        content[index] ^= 0x5A
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"labels\.parquet is damaged .*run its stage again") as caught:
        list(read_labels(path))
    assert "\n" not in str(caught.value)
