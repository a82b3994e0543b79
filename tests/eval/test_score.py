"""Scoring: rows, cache, resume, matching, and bad input; with a scripted model, and with a tiny real one in this process."""

from dataclasses import replace
from pathlib import Path

import pytest

from data.labels import write_labels
from data.matching import match_candidate
from data.snapshots import read_snapshots, write_snapshots
from data.tables import metadata
from eval import score
from eval.decisions import read_decisions
from eval.truth import Candidate
from pmem.bank import estimate_tokens
from pmem.errors import UserError
from pmem.plan_notes import NOTES_VERSION
from pmem.policy_file import PolicyFile, write_policy
from pmem.prompt import PROMPT_VERSION, render_messages
from tests.eval.scripted import ScriptedBackend
from tests.eval.synthetic import label_rows, snapshot_row
from tests.tiny import tiny_model


def small_run(folder: Path, number: int = 12) -> Path:
    """Snapshots of split test whose every third plan goes wrong."""
    rows, labels = [], []
    for index in range(number):
        row = snapshot_row(f"s{index:03d}", f"e{index // 3}", "git", "test", index % 3)
        row["prompt_version"] = PROMPT_VERSION
        row["bank_before"]["entries"][0]["content"] = "the report belongs into out/summary.json"
        row["window"][0]["thought"] = f"turn {index}: {'plan-off' if index % 3 == 0 else 'on course'}"
        rows.append(row)
        labels.extend(label_rows(row["snapshot_id"], need=index % 3 == 0))
    write_snapshots(folder / "snapshots.parquet", rows)
    write_labels(folder / "labels.parquet", labels)
    return folder


def scorer(run: Path, backend: ScriptedBackend, **changes: object) -> tuple[score.Scorer, list]:
    config = replace(score.ScoreConfig(arm="sft", run=run, splits=("test",), chunk=5), **changes)
    snapshots, truths = score.load(config)
    return score.Scorer(config, backend, truths), snapshots


def test_rows_hold_probability_text_and_match(tmp_path: Path) -> None:
    asked, snapshots = scorer(small_run(tmp_path), ScriptedBackend())
    rows = [row for chunk in asked.chunks(snapshots) for row in asked.rows(chunk)]
    assert len(rows) == 12 and {row.model_hash for row in rows} == {"cd" * 32}
    spoken = [row for row in rows if row.spoke]
    assert {row.snapshot_id for row in spoken} == {"s000", "s003", "s006", "s009"}
    assert all(row.prob_raw == 0.9 and row.cited_ids == ["tm-k-1"] for row in spoken)
    assert all(row.reason == "below_threshold" and row.prob_raw == 0.02 for row in rows if not row.spoke)


def test_needed_snapshots_are_written_even_below_the_floor(tmp_path: Path) -> None:
    asked, snapshots = scorer(small_run(tmp_path), ScriptedBackend(prob_plan=0.05))
    rows = [row for chunk in asked.chunks(snapshots) for row in asked.rows(chunk)]
    assert sum(row.reminder_text is not None for row in rows) == 4


def test_a_stopped_run_goes_on_and_a_second_costs_nothing(tmp_path: Path) -> None:
    run, backend = small_run(tmp_path), ScriptedBackend()
    asked, snapshots = scorer(run, backend)
    first = list(asked.rows(asked.chunks(snapshots)[0]))
    before = backend.calls
    again, snapshots = scorer(run, backend)
    assert list(again.rows(again.chunks(snapshots)[0])) == first and backend.calls == before
    list(again.rows(again.chunks(snapshots)[1]))
    assert backend.calls > before


def test_a_chunk_holds_no_more_prompts_than_the_backend_keeps(tmp_path: Path) -> None:
    asked, snapshots = scorer(small_run(tmp_path), ScriptedBackend())
    assert [len(chunk) for chunk in asked.chunks(snapshots)] == [5, 5, 2]
    a_prompt = max(estimate_tokens("".join(part["content"] for part in render_messages(one))) for one in snapshots)
    asked.backend.kept_tokens = 2 * score.TOKENS_OVER_ESTIMATE * a_prompt
    assert [len(chunk) for chunk in asked.chunks(snapshots)] == [2] * 6
    asked.backend.kept_tokens = 1
    assert [chunk for (chunk,) in asked.chunks(snapshots)] == snapshots, "a prompt that cannot be kept is asked alone"


def test_another_model_is_another_cache(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    left, snapshots = scorer(run, ScriptedBackend())
    right, _ = scorer(run, ScriptedBackend(model_hash="ef" * 32))
    assert left.key(snapshots) != right.key(snapshots)


def test_low_label_mass_is_malformed_never_silence(tmp_path: Path) -> None:
    asked, snapshots = scorer(small_run(tmp_path), ScriptedBackend(label_mass=0.5))
    rows = [row for chunk in asked.chunks(snapshots) for row in asked.rows(chunk)]
    assert {(row.decision, row.reason, row.spoke) for row in rows} == {("malformed", "low_label_mass", False)}


def test_samples_are_counted_and_repeatable(tmp_path: Path) -> None:
    asked, snapshots = scorer(small_run(tmp_path), ScriptedBackend(prob_plan=0.5), samples=8)
    rows = asked.ask(snapshots)
    assert len(rows) == 96 and sorted({row.sample_index for row in rows}) == list(range(8))
    assert [row.spoke for row in rows] == [row.spoke for row in asked.ask(snapshots)]
    assert 0 < sum(row.spoke for row in rows if row.snapshot_id == "s000") < 8


def test_rules_decisions_are_the_same_bytes(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    out = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in out:
        assert score.main(["arm=rules", f"run={run}", f"out={path}"]) == 0
    assert out[0].read_bytes() == out[1].read_bytes()


def test_a_real_tiny_model_scores_in_this_process(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, model = small_run(tmp_path, 6), tiny_model(tmp_path)
    assert (
        score.main(
            ["arm=prompted", f"run={run}", f"model={model}", "list_max_tokens=16", "reminder_max_tokens=8", "grammar=false"]
        )
        == 0
    )
    rows = read_decisions(run / "decisions" / "prompted.parquet")
    assert len(rows) == 6 and all(row.decision == "malformed" and row.tokens_in > 0 for row in rows)


def test_the_lists_of_a_trained_model_end_as_its_policy_file_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, model = small_run(tmp_path, 6), tiny_model(tmp_path)
    for version in (None, NOTES_VERSION, "old"):
        policy = PolicyFile(
            model_hash="m",
            base="b",
            prompt_version=PROMPT_VERSION,
            template_hash="t",
            created="now",
            config={"plan_notes": version},
        )
        write_policy(model, policy)
        out = run / f"{version}.parquet"
        asked = ["arm=sft", "lists=false", "reminder_max_tokens=4", f"run={run}", f"model={model}", f"out={out}"]
        if version == "old":
            with pytest.raises(UserError, match="plan notes of version old"):
                score.main(asked)
            continue
        assert score.main(asked) == 0 and metadata(out).get("plan_notes") == version
        ends = {" ~ " in str(row.list_text) for row in read_decisions(out)}
        assert ends == {version is not None}, "asked anew, not taken from the cache"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["arm=nobody"], "unknown arm"),
        (["arm=oracle"], "eval.promote"),
        (["arm=rules", "splits=[train]"], "no usable label"),
        (["arm=sft"], "train.sft"),
        (["arm=rules", "samples=4"], "cannot be sampled"),
        (["arm=rules", "colour=red"], "unknown key"),
        (["arm=rules", "split=test", "splits=[dev]"], "split and splits both"),
        (["arm=rules", "splits=[]"], "nothing to score"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, overrides: list[str], sentence: str) -> None:
    run = small_run(tmp_path)
    with pytest.raises(UserError, match=sentence):
        score.main([*overrides, f"run={run}"])


def test_snapshots_of_another_prompt_are_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    rows = [{**row, "prompt_version": "f" * 16} for row in read_snapshots(run / "snapshots.parquet")]
    write_snapshots(run / "snapshots.parquet", rows)
    with pytest.raises(UserError, match="replay again"):
        score.main(["arm=rules", f"run={run}"])


def candidate(name: str, text: str, *ids: str) -> Candidate:
    return Candidate(candidate_id=name, text=text, cited_ids=ids, advantage=0.1, std_error=0.1, cost=0.01)


CANDIDATES = (
    candidate("json", "Write the report to out/summary.json as JSON. [tm-k-1]", "tm-k-1"),
    candidate("port", "The service listens on port 8410. [tm-k-2]", "tm-k-2"),
)


@pytest.mark.parametrize(
    ("text", "cited", "expected"),
    [
        ("write report to out/summary.json as JSON [tm-k-1]", ["tm-k-1"], "json"),
        ("Remember: write out/summary.json, the JSON report [tm-k-1]", ["tm-k-1"], "json"),
        ("Write the report to out/summary.json as JSON", [], "json"),
        ("Remember: out/summary.json [tm-k-1]", ["tm-k-1"], None),
        ("Write the report to out/summary.json as CSV [tm-k-1]", ["tm-k-1"], None),
        ("purple monkey dishwasher [tm-k-1]", ["tm-k-1"], None),
        ("The service listens on port 8410 [tm-k-1]", ["tm-k-1"], "port"),
        ("The service listens on port 9999 [tm-k-2]", ["tm-k-2"], None),
        ("The service does not listen on port 8410, listens [tm-k-2]", ["tm-k-2"], None),
        (None, [], None),
    ],
)
def test_matching_reads_the_claim_not_the_number(text: str | None, cited: list[str], expected: str | None) -> None:
    assert match_candidate(text, cited, CANDIDATES) == expected


def test_limits_hold_for_single_splits_and_draws_do_not_depend_on_order(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    config = score.ScoreConfig(arm="sft", run=run, splits=("test",), limits={"test": 5})
    assert len(score.load(config)[0]) == 5
    drawn, truths = score.load(replace(config, limits={}, quiet_per_episode={"test": 1}))
    assert len(drawn) == 4 and not any(truths[one.snapshot_id].need for one in drawn)
    assert score.drawn_quiet(truths, {"test": 1}, 17) == score.drawn_quiet(dict(reversed(truths.items())), {"test": 1}, 17)


def test_lean_arms_skip_what_only_a_candidate_needs() -> None:
    assert score.ScoreConfig(arm="prompted").wanted_splits == ("fit", "test", "heldout")
    assert score.ScoreConfig(arm="sft_grpo").wanted_splits == score.ALL_SPLITS
    assert score.ScoreConfig(arm="sft", splits=("train",)).wanted_splits == ("train",)
