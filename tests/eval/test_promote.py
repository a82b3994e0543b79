"""From saved decisions and trials to verdict and report: rules, keys, mutations, escaping, and a second run with the same
bytes.
"""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from data.labels import read_labels, write_labels
from eval import promote, summary, sweep
from eval.ab import AbConfig
from eval.ab import summary as ab_summary
from eval.decisions import read_decisions, write_decisions
from eval.live import TrialResult
from eval.metrics import METRICS
from eval.run_files import RunFiles
from pmem.errors import UserError
from tests.eval.synthetic import World, make_run

BIG = World(episodes={"dev": 20, "fit": 30, "certify": 80, "test": 60, "heldout": 20})


def trial(arm: str, index: int, success: bool) -> TrialResult:
    talks = arm not in {"never", "rules"}
    return TrialResult(
        family="git", seed=index, agent="weak", agent_seed=index, success=success, score=float(success), num_acts=16,
        num_boundaries=8,
        num_reminders=int(talks and index % 2), num_annotations=0, num_cited=int(talks and index % 2), num_rows=8 * talks,
        tokens_in=2000 * talks, tokens_out=100 * talks, model_ms=900.0 * talks,
        outcomes={"silent/model_silent": 8} if talks else {},
    )  # fmt: skip


def write_ab(run: Path, lift: float = 0.3, number: int = 200) -> None:
    """Trials in which the candidate passes `lift` more of the tasks than never and rules."""
    results = {}
    for arm, gain in {"never": 0.0, "rules": 0.0, "sft_grpo": lift, "random": 0.0}.items():
        results[arm] = [trial(arm, index, index < number * (0.4 + gain)) for index in range(number)]
    RunFiles(run).ab.write_text(json.dumps(ab_summary(AbConfig(run=run), results)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("run"), BIG)
    assert sweep.main([f"run={folder}"]) == 0
    write_ab(folder)
    assert promote.main([f"run={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def verdict(run: Path) -> dict:
    return json.loads(RunFiles(run).verdict.read_text())


def test_a_good_policy_is_promoted(verdict: dict) -> None:
    assert verdict["promoted"], [reason for reason in verdict["reasons"] if not reason["held"]]


def test_keys_are_those_of_the_design(verdict: dict) -> None:
    assert set(verdict) == {"promoted", "reasons", "arms", "certificate", "hashes", "seeds", "commands"}
    assert all(set(reason) == {"rule", "held", "figure", "interval"} for reason in verdict["reasons"])
    for arm, metrics in verdict["arms"].items():
        assert tuple(metrics) == METRICS, arm
        assert all(set(figure) == {"value", "ci_low", "ci_high", "n"} for figure in metrics.values())
    assert {"never", "always", "random", "rules", "prompted", "sft", "sft_grpo", "oracle"} <= set(verdict["arms"])


def test_cheap_arms_are_where_they_must_be(verdict: dict) -> None:
    arms = verdict["arms"]
    assert arms["never"]["false_intervention_rate"]["value"] == 0 and arms["never"]["recall_needed"]["value"] == 0
    assert arms["always"]["false_intervention_rate"]["value"] == 1 and arms["always"]["auroc"]["value"] == pytest.approx(0.5)
    assert arms["oracle"]["regret"]["value"] == pytest.approx(0) and arms["oracle"]["recall_needed"]["value"] == 1
    assert arms["oracle"]["regret"]["value"] < arms["sft_grpo"]["regret"]["value"] < arms["random"]["regret"]["value"]
    assert arms["prompted"]["auroc"]["value"] < arms["sft"]["auroc"]["value"] < arms["sft_grpo"]["auroc"]["value"]


def test_a_second_run_writes_the_same_bytes(run: Path) -> None:
    before = [path.read_bytes() for path in (RunFiles(run).verdict, RunFiles(run).report, RunFiles(run).figures)]
    assert promote.main([f"run={run}"]) == 0
    assert before == [path.read_bytes() for path in (RunFiles(run).verdict, RunFiles(run).report, RunFiles(run).figures)]


def test_labels_that_were_not_measured_are_compared_and_marked(run: Path, tmp_path: Path) -> None:
    before = [path.read_bytes() for path in (RunFiles(run).verdict, RunFiles(run).report, RunFiles(run).figures)]
    other = tmp_path / "other"
    shutil.copytree(run, other)
    labels = [{**row, "label_kind": "teacher"} for row in read_labels(RunFiles(other).labels)]
    write_labels(RunFiles(other).labels, labels)
    try:
        assert promote.main([f"run={run}", f"others={{recorded: {other}}}"]) == 0
        found = json.loads(RunFiles(run).figures.read_text())["others"]["recorded"]
        assert set(found["label_kinds"]) == {"teacher"} and found["need"] > 0 and found["not_needed"] > 0
        never = found["not_needed"] / (found["need"] + found["not_needed"])
        assert found["arms"]["rules"]["agreement"]["value"] == pytest.approx(never, abs=0.05)
        assert found["arms"]["sft_grpo"]["agreement"]["value"] > never
        assert found["arms"]["prompted"]["auroc"]["value"] < found["arms"]["sft_grpo"]["auroc"]["value"]
        assert "Labels that were not measured" in RunFiles(run).report.read_text()
        shutil.rmtree(other / "decisions")
        with pytest.raises(UserError, match=r"others\.recorded: .* holds no decisions"):
            promote.main([f"run={run}", f"others={{recorded: {other}}}"])
    finally:
        for path, content in zip((RunFiles(run).verdict, RunFiles(run).report, RunFiles(run).figures), before):
            path.write_bytes(content)


def test_the_page_stands_alone_and_escapes_what_models_say(run: Path) -> None:
    page = RunFiles(run).report.read_text()
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "out/summary.json &lt;b&gt;" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) and "@import" not in page and "url(" not in page
    assert page.count("<svg") == page.count("<title id=") == page.count("<desc id=")


def test_the_page_is_well_formed(run: Path) -> None:
    checker = _Balance()
    checker.feed(RunFiles(run).report.read_text())
    assert checker.open == [] and checker.wrong == []
    assert len(checker.ids) == len(set(checker.ids))
    assert checker.examples == 10


class _Balance(HTMLParser):
    """Every opened element is closed in order."""

    VOID = frozenset({"meta", "input", "br", "rect", "line", "circle", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.examples = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.examples += values.get("class") == "example"
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def judged(run: Path, **changes: object) -> dict[str, bool]:
    """Rule name -> held, after promoting a run again."""
    promote.main([f"run={run}", *(f"{key}={value}" for key, value in changes.items())])
    reasons = json.loads(RunFiles(run).verdict.read_text())["reasons"]
    return {reason["rule"].partition(":")[0]: reason["held"] for reason in reasons}


def fresh(tmp_path: Path, world: World = BIG, lift: float = 0.3) -> Path:
    folder = make_run(tmp_path, world)
    assert sweep.main([f"run={folder}"]) == 0
    write_ab(folder, lift)
    return folder


def test_an_uncertified_candidate_is_not_promoted(tmp_path: Path) -> None:
    folder = fresh(tmp_path, replace(BIG, episodes={**BIG.episodes, "certify": 30}))
    assert not judged(folder)["certificate"]


def test_certify_rows_moved_after_the_sweep_break_the_certificate(tmp_path: Path) -> None:
    from data.labels import read_labels, write_labels

    folder = fresh(tmp_path)
    rows = [
        {**row, "verdict": "unknown"} if row["snapshot_id"] == "certify-0000-00" else row
        for row in read_labels(folder / "labels.parquet")
    ]
    for row in rows:
        row.pop("format")
    write_labels(folder / "labels.parquet", rows)
    assert not judged(folder)["certificate"]


def test_a_threshold_for_another_model_stops_the_verdict(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    path = RunFiles(folder).decisions("sft_grpo")
    write_decisions(path, [replace(row, model_hash="0" * 64) for row in read_decisions(path)])
    with pytest.raises(UserError, match="was made for model"):
        promote.main([f"run={folder}"])


def test_a_harmful_policy_is_refused(tmp_path: Path) -> None:
    held = judged(fresh(tmp_path, replace(BIG, good_text=0.0), lift=-0.2))
    assert not held["non_inferior_to_rules"] and not held["better_than_random"]


def test_random_at_rate_is_refused(tmp_path: Path) -> None:
    """A candidate whose probabilities know nothing: no better than the coin."""
    blind = replace(BIG, separation={"prompted": 0.2, "sft": 3.0, "sft_grpo": 0.0})
    held = judged(fresh(tmp_path, blind, lift=0.0))
    assert not held["better_than_random"]


def test_noise_without_gain_is_named(tmp_path: Path) -> None:
    folder = fresh(tmp_path, lift=0.0)
    content = json.loads(RunFiles(folder).ab.read_text())
    content["arms"]["sft_grpo"]["always_noisy_regression"] = True
    RunFiles(folder).ab.write_text(json.dumps(content))
    assert not judged(folder)["not_always_noisy"]


def test_what_was_not_measured_is_not_held(tmp_path: Path) -> None:
    folder = make_run(tmp_path, BIG)
    assert sweep.main([f"run={folder}"]) == 0
    held = judged(folder)
    assert not held["non_inferior_to_rules"] and not held["not_always_noisy"]
    assert "No live trials were run" in RunFiles(folder).report.read_text()


def test_rules_can_be_switched_off_and_the_report_says_so(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    assert "malformed" not in judged(folder, **{"rules.malformed": "null"})
    assert "Rules switched off in the policy: malformed" in RunFiles(folder).report.read_text()


def test_exit_code_for_pipelines(tmp_path: Path) -> None:
    folder = fresh(tmp_path, replace(BIG, episodes={**BIG.episodes, "certify": 30}))
    assert promote.main([f"run={folder}", "exit_code=true"]) == 1


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("rules.luck=1", "rules"),
        ("rules.malformed=2", "malformed is 2.0; it must be between 0 and 1"),
        ("rules.action_rate=[0.5,0.1]", "the lower end of the band first"),
        ("split=foo", "unknown split 'foo'"),
        ("also=[foo]", "unknown split 'foo'"),
    ],
)
def test_an_unknown_rule_or_split_is_one_sentence(run: Path, override: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        promote.main([f"run={run}", override])


def test_summary_prints_every_arm_and_the_paths(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary.main([str(run)]) == 0
    shown = capsys.readouterr().out
    assert "sft_grpo" in shown and "report.html" in shown and "verdict.json" in shown and "promoted" in shown


def test_first_result_needs_no_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path, World(episodes={"fit": 30, "test": 40}, separation={"prompted": 0.5}))
    assert summary.main([str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "First result" in shown and "prompted" in shown and "rules" in shown


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"promoted": tr', "line 1: not valid JSON"),
        (b"[]", "no JSON object"),
        (b"\xff", "no JSON object"),
        (b"{}", "is no verdict"),
    ],
)
def test_a_verdict_that_was_cut_is_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    RunFiles(tmp_path).verdict.write_bytes(content)
    with pytest.raises(UserError, match=rf"verdict\.json.*{says}"):
        summary.main([str(tmp_path)])
