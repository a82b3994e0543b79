"""Thresholds from saved decisions: what is shipped, what is certified, and what every kind of bad input answers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from eval import sweep
from eval.calibrate import Scorer, clipped_logit, fit_calibrator
from eval.decisions import read_decisions, write_decisions
from eval.run_files import RunFiles
from pmem.errors import UserError
from pmem.threshold import Threshold, read_threshold
from tests.eval.synthetic import MODEL_HASH, PROMPT_VERSION, SMALL, World, label_rows, make_run, snapshot_row


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("run"))
    assert sweep.main([f"run={folder}"]) == 0
    return folder


def test_a_good_policy_is_certified(run: Path) -> None:
    threshold = read_threshold(RunFiles(run).threshold, model_hash=MODEL_HASH, prompt_version=PROMPT_VERSION)
    assert threshold.certified and threshold.unit == "snapshot_per_episode" and threshold.num_units == 80
    assert threshold.threshold >= 1 / 3
    assert threshold.families == ("git", "python", "sql")


def test_a_threshold_for_another_model_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="was made for model"):
        read_threshold(RunFiles(run).threshold, model_hash="cd" * 32, prompt_version=PROMPT_VERSION)


def test_the_grid_has_all_its_points_and_every_arm_its_threshold(run: Path) -> None:
    content = json.loads(RunFiles(run).sweep.read_text())
    assert len(content["grid"]) == 3 * 2 * 3 * 5 * 4
    assert set(content["arms"]) == {"prompted", "sft", "sft_grpo"}
    for arm in ("prompted", "sft"):
        assert Threshold.model_validate_json(RunFiles(run).arm_threshold(arm).read_text()).model_hash == MODEL_HASH
    by_cadence = {row["cadence"]: row["recall_needed"] for row in content["grid"] if row["arm"] == "sft_grpo" and
    row["alpha"] == 0.05
                  and row["cost_missed"] == 2.0 and row["calibrator"] == "sigmoid"}  # fmt: skip
    assert by_cadence[1] > by_cadence[2] > by_cadence[10]


def test_dearer_mistakes_never_lower_the_threshold(run: Path) -> None:
    """The sign of the cost: a missed reminder that costs more must make the policy speak sooner."""
    rows = json.loads(RunFiles(run).sweep.read_text())["grid"]
    chosen = [row for row in rows if (row["arm"], row["alpha"], row["cadence"], row["calibrator"]) == ("sft", 0.1, 1, "sigmoid")]
    thresholds = [row["threshold"] for row in sorted(chosen, key=lambda row: row["cost_missed"])]
    assert thresholds == sorted(thresholds, reverse=True) and thresholds[0] > thresholds[-1]
    assert thresholds[0] == pytest.approx(1 / 1.5, abs=1e-5)


def test_too_few_episodes_give_an_uncertified_threshold_and_the_number_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path, World(episodes={"dev": 20, "fit": 30, "certify": 25}))
    assert sweep.main([f"run={folder}", "candidate=sft"]) == 0
    threshold = Threshold.model_validate_json(RunFiles(folder).threshold.read_text())
    assert not threshold.certified and threshold.num_units == 25
    assert "more silence-is-right episodes" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["sigmoid", "temperature", "isotonic"])
def test_plain_numbers_equal_scikit_learn(method: str) -> None:
    """The runtime's arithmetic gives what scikit-learn's fitted calibrator predicts."""
    generator = np.random.default_rng(0)
    need = generator.random(1_200) < 0.3
    prob = np.clip(generator.beta(1, 4, 1_200) + 0.4 * need, 0, 1)
    calibrator = fit_calibrator(prob, need, method)
    features = (prob if method == "isotonic" else clipped_logit(prob))[:, None]
    model = CalibratedClassifierCV(FrozenEstimator(Scorer()), method=method).fit(features, need.astype(int))
    assert [calibrator.apply(value) for value in prob] == pytest.approx(model.predict_proba(features)[:, 1].tolist(), abs=1e-6)


def test_isotonic_needs_rows() -> None:
    with pytest.raises(UserError, match=r"more than 1000 rows"):
        fit_calibrator(np.array([0.1, 0.9]), np.array([False, True]), "isotonic")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prob_raw": 1.5}, "outside"),
        ({"prob_raw": float("nan")}, "NaN"),
        ({"label_mass": 0.5}, "label mass"),
        ({"arm": "mystery"}, "unknown arm"),
    ],
)
def test_bad_rows_are_one_sentence(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    folder = make_run(tmp_path, World(episodes={"dev": 5, "fit": 5, "certify": 5}))
    path = RunFiles(folder).decisions("sft")
    rows = read_decisions(path)
    write_decisions(path, [replace(rows[0], **change), *rows[1:]])
    with pytest.raises(UserError, match=sentence):
        sweep.main([f"run={folder}", "candidate=sft"])


def test_duplicate_snapshots_are_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path, World(episodes={"dev": 5, "fit": 5, "certify": 5}))
    path = RunFiles(folder).decisions("sft")
    rows = read_decisions(path)
    write_decisions(path, [rows[0], *rows])
    with pytest.raises(UserError, match="stands twice"):
        sweep.main([f"run={folder}", "candidate=sft"])


@pytest.mark.parametrize(("rate", "sentence"), [(0.0, "no snapshot needs a reminder"), (1.0, "one class only")])
def test_one_class_only(tmp_path: Path, rate: float, sentence: str) -> None:
    folder = make_run(tmp_path, World(episodes={"dev": 5, "fit": 5, "certify": 5}, need_rate=rate))
    with pytest.raises(UserError, match=sentence):
        sweep.main([f"run={folder}", "candidate=sft"])


def test_a_task_in_fit_and_certify_is_caught(tmp_path: Path) -> None:
    from data.labels import write_labels
    from data.snapshots import write_snapshots

    folder = make_run(tmp_path, World(episodes={"dev": 5, "fit": 5, "certify": 5}))
    rows, labels = [], []
    for row in _snapshots(folder):
        split = "certify" if row["snapshot_id"].endswith("03") and row["split"] == "fit" else row["split"]
        rows.append({**row, "split": split})
        labels.extend(label_rows(row["snapshot_id"], need=row["step"] % 5 == 0))
    write_snapshots(folder / "snapshots.parquet", rows)
    write_labels(folder / "labels.parquet", labels)
    with pytest.raises(UserError, match="split by task again"):
        sweep.main([f"run={folder}", "candidate=sft"])


def _snapshots(folder: Path) -> list[dict[str, object]]:
    return [
        snapshot_row(f"{split}-{episode:04d}-{turn:02d}", f"{split}-{episode:04d}", "git", split, turn)
        for split in ("dev", "fit", "certify") for episode in range(5) for turn in range(SMALL.turns)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("alphas=[2]", "alpha 2 is not a rate"),
        ("alphas=[]", "an axis is empty"),
        ("costs_missed=[-1]", "costs_missed -1 is no cost"),
        ("cadences=[0]", "cadence 0 is not a number"),
    ],
)
def test_an_absurd_axis_is_refused_before_anything_is_written(run: Path, axis: str, message: str) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.json")}
    with pytest.raises(UserError, match=message):
        sweep.main([f"run={run}", f"grid.{axis}"])
    assert {path: path.read_bytes() for path in run.rglob("*.json")} == before


def test_a_grid_of_a_million_points_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="points"):
        sweep.main([f"run={run}", f"grid.alphas={[i / 20000 for i in range(1, 10000)]}"])


def test_a_candidate_without_decisions_is_named(run: Path) -> None:
    with pytest.raises(UserError, match=r"eval.score arm=advisor"):
        sweep.main([f"run={run}", "candidate=advisor"])


def test_an_arm_scored_in_part_is_judged_on_that_part(tmp_path: Path) -> None:
    """The untrained arm may be scored on fit and test only; the candidate needs certify."""
    folder = make_run(tmp_path, World(episodes={"dev": 10, "fit": 30, "certify": 30}))
    path = RunFiles(folder).decisions("prompted")
    write_decisions(path, [row for row in read_decisions(path) if row.snapshot_id.startswith("fit")])
    assert sweep.main([f"run={folder}"]) == 0
    content = json.loads(RunFiles(folder).sweep.read_text())
    assert "No certificate was attempted" in content["arms"]["prompted"]["sentence"]
    assert {row["arm"] for row in content["grid"]} == {"sft", "sft_grpo"}
    with pytest.raises(UserError, match="never scored"):
        sweep.main([f"run={folder}", "candidate=prompted"])


def test_windows_and_bank_budgets_are_axes(tmp_path: Path) -> None:
    """Decisions scored under another window or budget stand beside the arm's and become points of the same grid."""
    folder = make_run(tmp_path, World(episodes={"dev": 10, "fit": 30, "certify": 30}))
    files = RunFiles(folder)
    rows = read_decisions(files.decisions("sft_grpo"))
    for shown in ({"trajectory_steps": 1}, {"trajectory_steps": 1, "bank_budget_tokens": 100}):
        write_decisions(files.variant("sft_grpo", shown), rows, facts={name: str(value) for name, value in shown.items()})
    assert sweep.main([f"run={folder}"]) == 0
    grid = json.loads(files.sweep.read_text())["grid"]
    axes = {(row["arm"], row["trajectory_steps"], row["bank_budget_tokens"]) for row in grid}
    assert {("sft_grpo", None, None), ("sft_grpo", 1, None), ("sft_grpo", 1, 100), ("sft", None, None)} <= axes
    assert len(grid) == len(axes) * 120 >= 200
    write_decisions(files.variant("sft", {"trajectory_steps": 1}), [replace(row, model_hash="0" * 64, arm="sft") for row in rows])
    with pytest.raises(UserError, match="another model or prompt"):
        sweep.main([f"run={folder}"])
