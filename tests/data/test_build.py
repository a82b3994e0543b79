"""SFT rows: targets from the best measured branch, silence on ties, decisions balanced, a card beside them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data.build import BuildConfig, Target, balance, build, reweight
from data.labels import SnapshotLabels, write_labels
from data.rows import lesson_file, read_sft, shown_in
from data.snapshots import snapshot_columns, to_policy_snapshot, write_snapshots
from data.would_say import would_say
from pmem.envelope import Envelope, parse_envelope
from pmem.errors import UserError
from pmem.plan_notes import NOTES_VERSION
from pmem.prompt import render_messages
from pmem.snapshot import BankState, Entry
from tests.data.make import SNAPSHOT, label_row, snapshot_row

CITED = {"cited_ids": ["tm-k-4"], "num_branches": 8}


def candidate(name: str, diff: float, **changes: Any) -> dict[str, Any]:
    return label_row(candidate_id=name, reminder_text=f"Say {name}. [tm-k-4]", value=0.5 + diff, paired_diff=diff,
                     paired_std_error=0.1, cost=0.02, **CITED, **changes)  # fmt: skip


def labels_of(snapshot: dict[str, Any], verdict: str, *candidates: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    rows = (label_row(), *candidates)
    return [{**row, "snapshot_id": snapshot["snapshot_id"], "verdict": verdict, **changes} for row in rows]


def built(folder: Path, snapshots: list[dict[str, Any]], labels: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    write_snapshots(folder / "s.parquet", snapshots)
    write_labels(folder / "l.parquet", labels)
    settings = {"share_speak": None, "probes": False, **changes}
    build(BuildConfig(snapshots=folder / "s.parquet", labels=(folder / "l.parquet",), out=folder / "sft.parquet", **settings))
    return list(read_sft(folder / "sft.parquet"))


def reminder_of(row: dict[str, Any]) -> str | None:
    read = parse_envelope(row["completion"])
    assert isinstance(read, Envelope)
    return read.reminder


def test_need_takes_the_best_candidate_and_not_needed_is_silence(tmp_path: Path) -> None:
    need, quiet = snapshot_row(step=1), snapshot_row(step=2)
    labels = labels_of(need, "need", candidate("a", 0.2), candidate("b", 0.4)) + labels_of(
        quiet, "not_needed", candidate("a", 0.0)
    )
    rows = {row["snapshot_id"]: row for row in built(tmp_path, [need, quiet], labels)}
    assert reminder_of(rows[need["snapshot_id"]]) == "Say b. [tm-k-4]" and rows[need["snapshot_id"]]["decision"] == "reminder"
    assert reminder_of(rows[quiet["snapshot_id"]]) is None and rows[quiet["snapshot_id"]]["decision"] == "silence"
    assert rows[need["snapshot_id"]]["prompt_messages"] == list(render_messages(to_policy_snapshot(need)))


@pytest.mark.parametrize(("diff", "decision"), [(0.3, "reminder"), (0.02, "silence"), (-0.3, "silence")])
def test_unknown_keeps_its_measured_best_at_a_lower_weight_and_ties_are_silence(
    diff: float, decision: str, tmp_path: Path
) -> None:
    (row,) = built(tmp_path, [only := snapshot_row()], labels_of(only, "unknown", candidate("a", diff)))
    assert (row["decision"], row["weight"]) == (decision, 0.3)


def test_voided_and_uncited_labels_teach_nothing(tmp_path: Path) -> None:
    good, voided, uncited = (snapshot_row(step=number) for number in (1, 2, 3))
    labels = [
        *labels_of(good, "not_needed"), *labels_of(voided, "not_needed", divergence=True),
        *labels_of(uncited, "need", {**candidate("a", 0.4), "cited_ids": []}),
    ]  # fmt: skip
    assert [row["snapshot_id"] for row in built(tmp_path, [good, voided, uncited], labels)] == [good["snapshot_id"]]


def test_a_measured_label_comes_before_an_opinion(tmp_path: Path) -> None:
    only = snapshot_row()
    opinion = labels_of(only, "need", candidate("a", 0.4, label_kind="teacher"), label_kind="teacher")
    (row,) = built(tmp_path, [only], [*opinion, *labels_of(only, "not_needed")])
    assert row["decision"] == "silence"
    (row,) = built(tmp_path, [only], opinion)
    assert (row["decision"], row["weight"]) == ("reminder", 0.5)


def test_only_train_is_balanced_and_the_file_is_the_same_bytes_again(tmp_path: Path) -> None:
    snapshots = [snapshot_row(step=number, split="train" if number < 40 else "dev") for number in range(60)]
    labels = [row for number, one in enumerate(snapshots)
              for row in labels_of(one, "need" if number % 10 == 0 else "not_needed", candidate("a", 0.4))]  # fmt: skip
    rows = built(tmp_path, snapshots, labels, share_speak=0.5)
    first = (tmp_path / "sft.parquet").read_bytes(), (tmp_path / "card.md").read_bytes()
    assert Counter((row["split"], row["decision"]) for row in rows) == {
        ("train", "reminder"): 4, ("train", "silence"): 4, ("dev", "reminder"): 2, ("dev", "silence"): 18}  # fmt: skip
    built(tmp_path, snapshots, labels, share_speak=0.5)
    assert ((tmp_path / "sft.parquet").read_bytes(), (tmp_path / "card.md").read_bytes()) == first


def targets(num_speak: int, num_silent: int) -> list[Target]:
    labels = SnapshotLabels("s", "counterfactual", None, ())
    rows = [{**snapshot_row(), "snapshot_id": str(number)} for number in range(num_speak + num_silent)]
    return [Target(row, labels, "x" if number < num_speak else None, 1.0) for number, row in enumerate(rows)]


def test_the_twin_of_a_reminder_is_kept_before_any_other_silence() -> None:
    labels = SnapshotLabels("s", "counterfactual", None, ())
    rows = [{**snapshot_row(rollout_id=f"r{number}"), "snapshot_id": str(number), "mechanism": None} for number in range(40)]
    for row in rows[1:]:
        row["window"] = [{**row["window"][-1], "call": f"bash other {row['snapshot_id']}"}]
    rows[7]["window"] = rows[0]["window"]
    made = [Target(row, labels, None if number else "x", 1.0) for number, row in enumerate(rows)]
    assert [one.snapshot["snapshot_id"] for one in balance(made, 0.5)] == ["0", "7"]


def test_silences_of_an_episode_that_also_speaks_are_kept_first() -> None:
    labels = SnapshotLabels("s", "counterfactual", None, ())
    rows = [
        {**snapshot_row(rollout_id=f"r{number // 2}"), "task_id": f"t{number // 2}", "snapshot_id": str(number)}
        for number in range(40)
    ]
    made = [Target(row, labels, "x" if number in (0, 20) else None, 1.0) for number, row in enumerate(rows)]
    kept = [int(one.snapshot["snapshot_id"]) for one in balance(made, 0.5) if one.reminder is None]
    assert sorted(kept) == [1, 21]


@pytest.mark.parametrize(("num_speak", "num_silent"), [(10, 90), (90, 10), (50, 50)])
def test_leaving_out_and_weighing_both_reach_the_share(num_speak: int, num_silent: int) -> None:
    left = balance(targets(num_speak, num_silent), 0.4)
    assert sum(one.reminder is not None for one in left) / len(left) == pytest.approx(0.4, abs=0.03)
    weighed = reweight(targets(num_speak, num_silent), 0.4)
    assert len(weighed) == 100 and sum(one.weight for one in weighed) == pytest.approx(100, abs=0.01)
    assert sum(one.weight for one in weighed if one.reminder is not None) == pytest.approx(40, abs=0.01)


def test_a_limit_keeps_the_shares() -> None:
    kept = balance(targets(40, 60), 0.4, limit=50)
    assert Counter(one.reminder is not None for one in kept) == {True: 20, False: 30}
    assert balance(targets(0, 5), 0.4) == targets(0, 5) or len(balance(targets(0, 5), 0.4)) == 5


def test_the_card_tells_what_was_built(tmp_path: Path) -> None:
    need, quiet = snapshot_row(step=1), snapshot_row(step=2, task_id="t2", split="test")
    labels = labels_of(need, "need", candidate("a", 0.4), need_true=True) + labels_of(quiet, "not_needed", need_true=False)
    built(tmp_path, [need, quiet], labels, probes=True)
    card = (tmp_path / "card.md").read_text()
    for words in (
        "| train | counterfactual | 1 | 1 | 1 | 1 | 0 | 0 | 1.000 | 0 | 0.100 |",
        "| counterfactual | 2 |",
        "Leakage checks",
        "too few",
        "needed in truth (n = 1): need 1.00",
        "mean prompt chars",
        "tasks that stand in two splits: 0",
    ):
        assert words in card


def test_zero_usable_labels_is_one_sentence(tmp_path: Path) -> None:
    only = snapshot_row()
    for labels, words in [
        ([], "holds none"),
        ([label_row(snapshot_id="elsewhere")], "share no snapshot"),
        (labels_of(only, "unknown", candidate("a", 0.4), label_kind="teacher"), "none with a usable verdict"),
    ]:
        if labels and labels[0]["label_kind"] == "teacher":
            labels = [{**row, "value": None, "paired_diff": None} for row in labels]
        with pytest.raises(UserError, match=words):
            built(tmp_path, [only], labels)
    with pytest.raises(UserError, match="no labels given"):
        build(BuildConfig(labels=()))
    with pytest.raises(UserError, match=r"nope\.jsonl does not exist"):
        build(BuildConfig(rollouts=(tmp_path / "nope.jsonl",)))
    only, cut_off = snapshot_row(), tmp_path / "cut_off.jsonl"
    cut_off.write_text('{"format": "pmem.rollout/1"', encoding="utf-8")
    with pytest.raises(UserError, match=r"cut_off\.jsonl line 1"):
        built(tmp_path, [only], labels_of(only, "not_needed"), rollouts=(cut_off,))
    assert not (tmp_path / "sft.parquet").exists()
    with pytest.raises(UserError, match="unknown label kind 'guess'"):
        BuildConfig(kinds={"guess": 1.0})


def test_snapshots_of_another_prompt_version_are_refused(tmp_path: Path) -> None:
    old = snapshot_row(prompt_version="0" * 16)
    with pytest.raises(UserError, match=r"run data\.replay and data\.label again"):
        built(tmp_path, [old], labels_of(old, "not_needed"))


def test_a_silent_train_row_comes_with_what_it_would_have_said(tmp_path: Path) -> None:
    plan = SNAPSHOT.window[0].model_copy(update={"thought": "Now list the folder. Next: sign the late fable for anna."})
    entries = tuple(
        Entry(id=f"tm-k-{number}", kind="knowledge", content=content, created=number, touched=number)
        for number, content in enumerate(("Sign the late fable for clara.", "The early fable is dated to 2020."), start=1)
    )
    seen = SNAPSHOT.model_copy(update={"window": (plan,), "bank": BankState(entries=entries, next_number=3)})
    quiet = snapshot_row(**snapshot_columns(seen))
    labels = labels_of(quiet, "not_needed", candidate("a", 0.0))
    rows = {row["decision"]: row for row in built(tmp_path, [quiet], labels)}
    assert set(rows) == {"silence", "would_say"}
    assert reminder_of(rows["silence"]) is None and reminder_of(rows["would_say"]) == "Sign the late fable for clara. [tm-k-1]"
    assert [row["decision"] for row in built(tmp_path, [quiet], labels, would_say=False)] == ["silence"]


@pytest.mark.parametrize(
    ("thought", "content"),
    [
        (None, "Sign the late fable for clara."),
        ("Now sort. Next: count the rows.", "Sign the late fable for clara."),
    ],
)
def test_without_a_plan_that_an_entry_bears_on_nothing_would_be_said(thought: str | None, content: str) -> None:
    step = SNAPSHOT.window[0].model_copy(update={"thought": thought})
    bank = BankState(entries=(Entry(id="tm-k-1", kind="knowledge", content=content, created=1, touched=1),), next_number=2)
    assert would_say(SNAPSHOT.model_copy(update={"window": (step,), "bank": bank})) is None


def test_lessons_and_plan_notes(tmp_path: Path) -> None:
    spoken = SNAPSHOT.window[0].model_copy(update={"thought": "Next: write with semicolons."})
    sees = snapshot_columns(SNAPSHOT.model_copy(update={"window": (spoken,)}))
    need, quiet, opinion = snapshot_row(step=1, **sees), snapshot_row(step=2), snapshot_row(step=3, **sees)
    labels = [
        *labels_of(need, "need", candidate("it", 0.4)), *labels_of(quiet, "not_needed"),
        *labels_of(opinion, "unknown", candidate("a", 0.4)),
    ]  # fmt: skip
    rows = built(tmp_path, [need, quiet, opinion], labels, course=(1,), plan_notes=True)
    (only,) = list(read_sft(lesson_file(tmp_path / "sft.parquet", 1)))
    assert only["snapshot_id"] == need["snapshot_id"], "an unknown verdict and a silence about nothing teach no lesson"
    assert "write with semicolons ~ semicolons" in only["completion"]
    assert shown_in(tmp_path / "sft.parquet") == {"trajectory_steps": 8, "plan_notes": NOTES_VERSION}
    assert (
        "# Task\n(none)\n" in only["prompt_messages"][1]["content"] and only["prompt_messages"][1]["content"].count("- [tm-") == 1
    )
    for row in (*rows, only):
        (operation,) = [one for one in _envelope(row).operations if one.op == "update_status"]
        assert " ~ " in str(operation.content)
    assert not any("update_status" in row["completion"] for row in built(tmp_path, [need, quiet], labels[:3]))
    assert "plan_notes" not in shown_in(tmp_path / "sft.parquet")
    assert not lesson_file(tmp_path / "sft.parquet", 1).exists(), "a lesson of an earlier build does not stay behind"
    unseen = snapshot_row(step=4)
    built(tmp_path, [need, unseen], labels[:2] + labels_of(unseen, "need", candidate("b", 0.4)), course=(1,), plan_notes=True)
    assert [row["snapshot_id"] for row in read_sft(lesson_file(tmp_path / "sft.parquet", 1))] == [need["snapshot_id"]], (
        "a reminder of what the note does not name teaches no lesson"
    )
    with pytest.raises(UserError, match=r"sft\.bank3\.parquet has the name of a lesson of out"):
        BuildConfig(snapshots=tmp_path / "sft.bank3.parquet", out=tmp_path / "sft.parquet")
    with pytest.raises(UserError, match="each bank size once, the smallest first"):
        BuildConfig(course=(3, 1))


def test_names_are_exchanged_in_train_rows_only(tmp_path: Path) -> None:
    rows = [snapshot_row(step=1), snapshot_row(step=2, split="dev"), *(snapshot_row(step=9, task_id=f"t{n}") for n in range(9))]
    rows[2:] = [
        {**row, "task_messages": ["Go."], "window": [], "bank_before": {"status": None, "entries": []}} for row in rows[2:]
    ]
    labels = [label for row in rows for label in labels_of(row, "not_needed")]
    plain = {row["snapshot_id"]: row for row in built(tmp_path, rows, labels, would_say=False)}
    other = {row["snapshot_id"]: row for row in built(tmp_path, rows, labels, would_say=False, renamed=1.0)}
    changed = {name for name, row in plain.items() if row["prompt_messages"] != other[name]["prompt_messages"]}
    assert changed == {rows[0]["snapshot_id"]}
    assert all(row["decision"] == other[name]["decision"] for name, row in plain.items())


def test_without_lists_the_decision_comes_first(tmp_path: Path) -> None:
    need = snapshot_row(step=1)
    (row,) = built(tmp_path, [need], labels_of(need, "need", candidate("it", 0.4)), lists=False)
    assert row["completion"].startswith("<operations>[]</operations>\n<context_for_action>")
    with pytest.raises(UserError, match="plan_notes=true ends the list"):
        BuildConfig(lists=False, plan_notes=True)


def _envelope(row: dict[str, Any]) -> Envelope:
    read = parse_envelope(row["completion"])
    assert isinstance(read, Envelope)
    return read


def test_what_builds_nothing_or_is_no_number_is_said_first(tmp_path: Path) -> None:
    need = snapshot_row(step=1)
    for changes in ({"kinds": {}}, {"splits": ()}):
        with pytest.raises(UserError, match="is empty, so no row would be built"):
            BuildConfig(**changes)
    with pytest.raises(UserError, match=f"value of snapshot {need['snapshot_id']} is nan, no number"):
        built(tmp_path, [need], labels_of(need, "need", {**candidate("it", 0.4), "value": float("nan")}))
    (tmp_path / "card.md").mkdir()
    with pytest.raises(UserError, match=r"card\.md, which is a folder"):
        built(tmp_path, [need], labels_of(need, "need", candidate("it", 0.4)))
    assert not (tmp_path / "sft.parquet").exists()
