"""Each figure against a kept library, a published value, or a simulation with known truth."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from eval.statistics import (
    augrc,
    auprc,
    auroc,
    bootstrap,
    brier,
    debiased_ece,
    mean,
    murphy,
    ratio,
    risk_coverage,
    spiegelhalter,
    squared_calibration_error,
)

ONE = np.ones((1, 500))


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    positive = generator.random(500) < 0.2
    return np.round(np.clip(generator.random(500) * 0.7 + 0.3 * positive, 0, 1), 2), positive


def test_ranking_equals_scikit_learn(rows: tuple[np.ndarray, np.ndarray]) -> None:
    scores, positive = rows
    assert auroc(scores, positive)(ONE)[0] == pytest.approx(roc_auc_score(positive, scores))
    assert auprc(scores, positive)(ONE)[0] == pytest.approx(average_precision_score(positive, scores))
    assert brier(scores, positive)(ONE)[0] == pytest.approx(brier_score_loss(positive, scores))


def test_weights_equal_repetition(rows: tuple[np.ndarray, np.ndarray]) -> None:
    scores, positive = rows
    weights = np.random.default_rng(5).integers(0, 4, 500)
    again = np.repeat(np.arange(500), weights)
    for statistic, plain in ((auroc, roc_auc_score), (auprc, average_precision_score)):
        got = statistic(scores, positive)(weights[None, :].astype(float))[0]
        assert got == pytest.approx(plain(positive[again], scores[again]))


def test_one_class_is_not_a_number() -> None:
    figure = bootstrap(auroc(np.array([0.1, 0.9]), np.array([False, False])), ["a", "b"])
    assert figure.value is None and figure.n == 2


def test_interval_of_a_clean_sheet_has_width() -> None:
    """0 of 59 units: the exact upper bound at 95 % two-sided is 6.06 %, not 0."""
    figure = bootstrap(mean(np.zeros(59)), [str(i) for i in range(59)], proportion=True)
    assert figure.value == 0 and figure.ci_low == 0
    assert figure.ci_high == pytest.approx(1 - 0.025 ** (1 / 59))


def test_clusters_widen_the_interval() -> None:
    values = np.repeat(np.random.default_rng(1).random(20), 25)
    clustered = bootstrap(mean(values), [str(i // 25) for i in range(500)])
    alone = bootstrap(mean(values), [str(i) for i in range(500)])
    assert clustered.ci_high - clustered.ci_low > 3 * (alone.ci_high - alone.ci_low)


def test_same_seed_same_interval(rows: tuple[np.ndarray, np.ndarray]) -> None:
    scores, positive = rows
    tasks = [str(i // 10) for i in range(500)]
    assert bootstrap(auroc(scores, positive), tasks, seed=4) == bootstrap(auroc(scores, positive), tasks, seed=4)


def test_murphy_parts_add_up(rows: tuple[np.ndarray, np.ndarray]) -> None:
    parts = murphy(*rows)
    whole = parts["reliability"] - parts["resolution"] + parts["uncertainty"] + parts["within"]
    assert whole == pytest.approx(parts["brier"]) and parts["uncertainty"] == pytest.approx(rows[1].mean() * (1 - rows[1].mean()))


def test_spiegelhalter_is_two_sided() -> None:
    """MAPIE's one-sided version gives p = 1 for an under-confident model; ours must see it."""
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, 4000)
    positive = generator.random(4000) < expit(logits)
    assert spiegelhalter(expit(logits), positive)[1] > 0.01
    assert spiegelhalter(expit(logits / 3), positive)[1] < 1e-6
    assert spiegelhalter(expit(logits * 3), positive)[1] < 1e-6


def test_augrc_follows_the_published_identity() -> None:
    """Traub et al. 2024, equation 8: AUGRC = (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2, in the limit of many rows."""
    generator = np.random.default_rng(2)
    failure = generator.random(20_000) < 0.3
    confidence = generator.normal(0, 1, 20_000) - failure
    accuracy = 1 - failure.mean()
    expected = (1 - roc_auc_score(~failure, confidence)) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert augrc(confidence, failure)(np.ones((1, 20_000)))[0] == pytest.approx(expected, abs=1e-4)


def test_risk_coverage_ends_at_the_error_rate() -> None:
    coverage, risk, general = risk_coverage(np.array([0.9, 0.8, 0.1]), np.array([False, True, True]))
    assert coverage.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert risk.tolist() == pytest.approx([0, 1 / 2, 2 / 3]) and general.tolist() == pytest.approx([0, 1 / 3, 2 / 3])


def test_ece_of_a_constant_is_its_distance() -> None:
    positive = np.arange(1000) % 4 == 0
    assert debiased_ece(np.full(1000, 0.65), positive)(np.ones((1, 1000)))[0] == pytest.approx(0.4, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [1.0, 0.5])
def test_squared_calibration_error_is_unbiased(slope: float) -> None:
    """Fixed probabilities, labels drawn 3,000 times from a known model: the mean estimate hits the true binned error, plain
    ECE does not.
    """
    generator = np.random.default_rng(9)
    said = np.sort(expit(generator.normal(-1.5, 1.5, 200)))
    true = expit(np.log(said / (1 - said)) * slope)
    groups = np.array_split(np.arange(200), 10)
    known = float(np.mean([(said[g].mean() - true[g].mean()) ** 2 for g in groups]))
    debiased, plain = [], []
    for _ in range(3_000):
        labels = generator.random(200) < true
        debiased.append(squared_calibration_error(said, labels, 10)(np.ones((1, 200)))[0])
        plain.append(np.mean([(said[g].mean() - labels[g].mean()) ** 2 for g in groups]))
    # a bin's labels differ in probability, so y (1 - y) / (n - 1) overstates their variance by the spread inside the bin
    spread = float(np.mean([true[g].var() / (len(g) - 1) for g in groups]))
    error = np.std(debiased) / np.sqrt(3_000)
    assert np.mean(debiased) == pytest.approx(known - spread, abs=4 * error)
    assert np.mean(plain) - known > 10 * error


@pytest.mark.slow
def test_clustered_intervals_cover() -> None:
    """40 tasks of 5 to 15 correlated snapshots, 400 repetitions: mean and ratio are covered at 95 %, up to simulation noise."""
    generator = np.random.default_rng(12)
    truth = float(np.mean(expit(generator.normal(-1.0, 1.0, 2_000_000))))
    covered = {"mean": 0, "auroc": 0}
    separation = _true_auroc(generator)
    for repetition in range(400):
        tasks, positive, scores = _correlated(generator, 40)
        rate = bootstrap(ratio(positive.astype(float), np.ones(len(positive))), tasks, seed=repetition, resamples=600)
        ranked = bootstrap(auroc(scores, positive), tasks, seed=repetition, resamples=600)
        covered["mean"] += rate.ci_low <= truth <= rate.ci_high
        covered["auroc"] += ranked.ci_low <= separation <= ranked.ci_high
    assert 0.91 <= covered["mean"] / 400 <= 0.985 and 0.91 <= covered["auroc"] / 400 <= 0.985, covered


def _correlated(generator: np.random.Generator, num_tasks: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    sizes = np.full(num_tasks, 10)
    codes = np.repeat(np.arange(num_tasks), sizes)
    positive = generator.random(len(codes)) < expit(generator.normal(-1.0, 1.0, num_tasks))[codes]
    scores = generator.normal(0, 1, len(codes)) + generator.normal(0, 0.5, num_tasks)[codes] + 1.2 * positive
    return [str(code) for code in codes], positive, scores


def _true_auroc(generator: np.random.Generator) -> float:
    _, positive, scores = _correlated(generator, 40_000)
    return float(roc_auc_score(positive, scores))
