"""After promotion: the monitor keeps a policy that behaves, and says demote when risk, rate, failures or inputs leave their
bounds.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from eval import monitor, selection, sweep
from eval.run_files import RunFiles
from eval.selection_figures import Case, Kept, figures
from pmem.errors import UserError
from pmem.telemetry import StepRow
from pmem.threshold import Threshold, write_threshold
from tests.eval.synthetic import World, make_run

THRESHOLD = Threshold(
    threshold=0.5, certified=True, alpha=0.05, delta=0.05, model_hash="ab" * 32, prompt_version="0" * 16, created=""
)


def rows(number: int, speak: float = 0.1, failed: float = 0.0, tokens: int = 250, seed: int = 0) -> list[StepRow]:
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(number):
        decision = "injected" if generator.random() < speak else "malformed" if generator.random() < failed else "silent"
        reason = {"injected": "intervened", "malformed": "truncated", "silent": "model_silent"}[decision]
        size = tokens + int(generator.integers(-40, 40))
        made.append(StepRow(
            at="2026-01-01T00:00:00Z", triggers=("interval",), tier="llm", decision=decision, reason=reason, tokens_in=size,
            tokens_total=size, prob_speak=float(generator.beta(1, 8)), threshold_id=THRESHOLD.threshold_id,
        ))  # fmt: skip
    return made


def files(tmp_path: Path, steps: list[StepRow], labels: list[dict] | None = None) -> list[str]:
    (tmp_path / "steps.jsonl").write_text("".join(row.model_dump_json() + "\n" for row in steps))
    write_threshold(tmp_path / "threshold.json", THRESHOLD)
    command = [f"steps={tmp_path / 'steps.jsonl'}", f"threshold={tmp_path / 'threshold.json'}", "exit_code=true",
               f"out={tmp_path / 'monitor.json'}"]  # fmt: skip
    if labels is not None:
        (tmp_path / "labels.jsonl").write_text("".join(json.dumps(label) + "\n" for label in labels))
        command.append(f"labels={tmp_path / 'labels.jsonl'}")
    return command


def labelled(number: int, rate: float, seed: int = 1) -> list[dict]:
    generator = np.random.default_rng(seed)
    return [{"needed": False, "spoke": bool(generator.random() < rate), "kind": "hindsight"} for _ in range(number)]


def test_a_policy_that_keeps_its_word_stays(tmp_path: Path) -> None:
    assert monitor.main(files(tmp_path, rows(400), labelled(400, 0.02))) == 0
    assert json.loads((tmp_path / "monitor.json").read_text())["demote"] is False


@pytest.mark.parametrize(
    ("steps", "labels", "name"),
    [
        (rows(400), labelled(400, 0.25), "certified risk"),
        (rows(1_200, speak=0.0), None, "action rate"),
        (rows(400, speak=0.9), None, "action rate"),
        (rows(400, failed=0.3), None, "failures"),
    ],
)
def test_it_says_demote(tmp_path: Path, steps: list[StepRow], labels: list[dict] | None, name: str) -> None:
    assert monitor.main(files(tmp_path, steps, labels)) == 1
    watched = {one["name"]: one["fine"] for one in json.loads((tmp_path / "monitor.json").read_text())["watched"]}
    assert watched[name] is False


def test_drift_of_prompts_is_seen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", World(episodes={"test": 20}))
    reference = f"reference={RunFiles(run).decisions('sft_grpo')}"
    assert monitor.main([*files(tmp_path, rows(400, tokens=900)), reference]) == 1


def test_few_steps_are_no_verdict(tmp_path: Path) -> None:
    assert monitor.main(files(tmp_path, rows(20, speak=1.0))) == 0


def test_rows_of_another_threshold_are_named(tmp_path: Path) -> None:
    foreign = [row.model_copy(update={"threshold_id": "f" * 16}) for row in rows(200)]
    assert monitor.main(files(tmp_path, foreign)) == 1


@pytest.mark.slow
def test_peeking_after_every_label_keeps_the_level() -> None:
    """100 policies exactly at alpha, looked at after each of 300 labels: at most delta of them are ever demoted, up to noise."""
    demoted = sum(monitor.watch_risk(THRESHOLD, labelled(300, 0.05, seed)).fine is False for seed in range(100))
    assert demoted <= 12


@pytest.mark.parametrize("line", ["{", '{"needed": 1}', '{"needed": "no", "spoke": false, "kind": "human"}'])
def test_bad_labels_name_their_line(tmp_path: Path, line: str) -> None:
    command = files(tmp_path, rows(120), [])
    (tmp_path / "labels.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match="line 1"):
        monitor.main(command)


def test_steps_that_cannot_be_read_do_not_keep_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, path = files(tmp_path, rows(120)), tmp_path / "steps.jsonl"
    with path.open("a") as stream:
        stream.write('{"what": 1}\n')
    assert monitor.main(command) == 0 and "1 lines of" in capsys.readouterr().err
    path.write_text('{"what": 1}\n')
    with pytest.raises(UserError, match=r"steps\.jsonl holds no row"):
        monitor.main(command)
    path.unlink()
    with pytest.raises(UserError, match=r"steps\.jsonl is not a file"):
        monitor.main(command)
    with pytest.raises(UserError, match=r"nowhere\.jsonl is not a file"):
        selection.main([f"run={tmp_path}", f"cases={tmp_path / 'nowhere.jsonl'}"])


def test_selection_counts_exact_sets_precision_and_recall(tmp_path: Path) -> None:
    from eval.decisions import Decision

    sets = {"a": frozenset({"x"}), "b": frozenset(), "c": frozenset({"y", "z"})}
    common = {"arm": "sft", "decision": "injected", "reason": "intervened", "spoke": True}
    pairs = [
        (Case(name, f"task {name}", "git", sets[name]), Kept.of(Decision(snapshot_id=name, cited_ids=ids, **common)))
        for name, ids in (("a", ["x"]), ("b", ["x"]), ("c", ["y"]))
    ]
    found = figures(pairs, 0)
    assert found["exact"]["value"] == pytest.approx(1 / 3)
    assert found["precision"]["value"] == pytest.approx(2 / 3) and found["recall"]["value"] == pytest.approx(2 / 3)


def test_selection_over_a_run_and_over_own_cases(tmp_path: Path) -> None:
    run = make_run(tmp_path, World(episodes={"dev": 10, "fit": 20, "certify": 20, "test": 20}))
    assert sweep.main([f"run={run}"]) == 0 and selection.main([f"run={run}"]) == 0
    arms = json.loads((run / "selection.json").read_text())["arms"]
    assert arms["sft_grpo"]["all"]["recall"]["value"] > arms["prompted"]["all"]["recall"]["value"]
    own = tmp_path / "own.jsonl"
    own.write_text('{"snapshot_id": "test-0000-00", "expected_ids": []}\n')
    assert selection.main([f"run={run}", f"cases={own}"]) == 0
    own.write_text('{"snapshot_id": "nowhere", "expected_ids": []}\n')
    with pytest.raises(UserError, match="line 1"):
        selection.main([f"run={run}", f"cases={own}"])


def test_of_an_episode_one_label_counts() -> None:
    labels = [{"needed": False, "spoke": True, "kind": "human", "episode": "a"} for _ in range(50)]
    alone = {"needed": False, "spoke": False, "kind": "human"}
    assert monitor.first_of_each([*labels, alone, alone]) == [labels[0], alone, alone]
