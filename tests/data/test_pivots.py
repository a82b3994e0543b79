"""Pivots: where sampled answers differ in measured value, with enough snapshots where silence is right."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.labels import SnapshotLabels, write_labels
from data.pivots import PivotConfig, Scored, pick, sample_value, select
from data.rows import read_pivots
from data.snapshots import write_snapshots
from pmem.errors import UserError
from pmem.plan_notes import NOTES_VERSION
from tests.data.make import label_row, snapshot_row


def labels(diff: float = 0.4, name: str = "s1") -> SnapshotLabels:
    silence = label_row(snapshot_id=name, value=0.5)
    measured = {"value": 0.5 + diff, "paired_diff": diff, "cost": 0.02, "std_error": 0.1}
    reminder = label_row(snapshot_id=name, candidate_id="c", reminder_text="Say. [tm-k-4]", cited_ids=["tm-k-4"], **measured)
    return SnapshotLabels(name, "counterfactual", silence, (reminder,))


def sample(decision: str, reason: str, *, spoke: bool = False, matched: str | None = None) -> dict[str, Any]:
    return {"decision": decision, "reason": reason, "spoke": spoke, "matched_candidate_id": matched}


SILENT, SPOKEN = sample("silent", "model_silent"), sample("injected", "intervened", spoke=True, matched="c")


VALUES = [
    (SILENT, 0.5),
    (SPOKEN, 0.88),
    (sample("injected", "intervened", spoke=True), None),
    (sample("malformed", "unparseable"), -1.0),
    (sample("gated", "uncited", spoke=True), -0.5),
    (sample("gated", "below_threshold"), 0.5),
    (sample("timeout", "deadline"), None),
]


@pytest.mark.parametrize(("answer", "value"), VALUES)
def test_the_value_of_a_sample_is_the_measured_one(answer: dict[str, Any], value: float | None) -> None:
    assert sample_value(answer, labels(), PivotConfig()) == (pytest.approx(value) if value is not None else None)


def scored(number: int, values: tuple[float, ...], diff: float) -> Scored:
    return Scored({"snapshot_id": f"{number}"}, labels(diff, f"{number}"), values, "hash")


def test_agreeing_samples_and_solved_snapshots_are_no_pivots() -> None:
    chosen = select([scored(1, (0.5, 0.9), 0.4), scored(2, (0.9, 0.9), 0.4), scored(3, (0.96, 1.0), 0.5)],
                    PivotConfig(min_share_silent=0.0, max_share_silent=0.5))  # fmt: skip
    assert [one.snapshot["snapshot_id"] for one in chosen] == ["1"]


def test_without_the_filter_every_sampled_snapshot_is_taken() -> None:
    three = [scored(1, (0.5, 0.9), 0.4), scored(2, (0.9, 0.9), 0.4), scored(3, (0.96, 1.0), 0.5)]
    assert {one.snapshot["snapshot_id"] for one in select(three, PivotConfig(filtered=False))} == {"1", "2", "3"}
    assert len(select(three, PivotConfig(filtered=False, max_pivots=2))) == 2


@pytest.mark.parametrize("num_quiet", [0, 2, 30])
def test_silence_is_right_in_a_third_to_a_half(num_quiet: int) -> None:
    speak = [scored(number, (0.5, 0.9), 0.4) for number in range(20)]
    quiet = [scored(100 + number, (0.5, 0.4), -0.1) for number in range(num_quiet)]
    spare = [scored(200 + number, (0.5, 0.5), -0.1) for number in range(50)]
    chosen = select([*speak, *quiet, *spare], PivotConfig())
    share = sum(one.silence_is_right for one in chosen) / len(chosen)
    assert 0.3 <= share <= 0.5 and sum(not one.silence_is_right for one in chosen) == 20
    assert len(select([*speak, *quiet, *spare], PivotConfig(max_pivots=10))) <= 10


def run(folder: Path, num: int, **changes: Any) -> PivotConfig:
    snapshots = [snapshot_row(step=number) for number in range(num)] + [snapshot_row(step=99, split="test")]
    write_snapshots(folder / "s.parquet", snapshots)
    rows = [row for one in snapshots for group in [labels(0.4 if one["step"] % 2 else -0.1, one["snapshot_id"])]
            for row in (group.silence, *group.candidates)]  # fmt: skip
    write_labels(folder / "l.parquet", [row for row in rows if row])
    answers = [{**answer, "snapshot_id": one["snapshot_id"], "sample_index": index, "model_hash": "abc", "list_text": None}
               for one in snapshots for index, answer in enumerate([SILENT, SPOKEN])]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(answers), folder / "d.parquet")
    paths = {"decisions": folder / "d.parquet", "snapshots": folder / "s.parquet", "labels": (folder / "l.parquet",)}
    return PivotConfig(**paths, out=folder / "p.parquet", **changes)


def test_the_stage_writes_train_pivots_with_their_measured_branches(tmp_path: Path) -> None:
    pick(run(tmp_path, 20))
    rows = list(read_pivots(tmp_path / "p.parquet"))
    first = (tmp_path / "p.parquet").read_bytes()
    assert 14 <= len(rows) <= 20 and {row["split"] for row in rows} == {"train"}
    row = next(row for row in rows if row["candidates"][0]["value"] > 0.5)
    assert row["value_silent"] == 0.5 and row["candidates"][0]["value"] == pytest.approx(0.9)
    assert row["pivot_mean"] == pytest.approx(0.69) and row["pivot_var"] > 0 and row["policy_hash"] == "abc"
    pick(run(tmp_path, 20))
    assert (tmp_path / "p.parquet").read_bytes() == first


def test_pivots_hold_the_list_of_their_samples_where_a_note_ended_it(tmp_path: Path) -> None:
    config = run(tmp_path, 20)
    written = '<operations>[{"op":"update_status","content":"a ~ b"}]</operations>'
    answers = [
        {**row, "list_text": written if row["sample_index"] else None} for row in pq.read_table(config.decisions).to_pylist()
    ]
    for version in (None, NOTES_VERSION):
        asked = pa.Table.from_pylist(answers).replace_schema_metadata({"plan_notes": version} if version else None)
        pq.write_table(asked, config.decisions)
        pick(config)
        row = next(read_pivots(config.out))
        begun = [message["content"] for message in row["prompt_messages"] if message["role"] == "assistant"]
        assert begun == ([written + "\n"] if version else [])


def test_too_few_pivots_or_no_samples_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only 3 pivots among 4 scored snapshots, one GRPO batch needs 8"):
        pick(run(tmp_path, 4, max_share_silent=0.34))
    config = run(tmp_path, 4)
    table = pq.read_table(config.decisions)
    pq.write_table(table.drop_columns(["reason"]), config.decisions)
    with pytest.raises(UserError, match="column 'reason' is missing"):
        pick(config)
    pq.write_table(table.slice(0, 0), config.decisions)
    with pytest.raises(UserError, match="holds no samples"):
        pick(config)
    rows = table.to_pylist()
    pq.write_table(pa.Table.from_pylist([{**rows[0], "model_hash": "other"}, *rows[1:]]), config.decisions)
    with pytest.raises(UserError, match="holds samples of 2 models"):
        pick(config)
