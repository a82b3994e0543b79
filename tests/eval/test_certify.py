"""The certificate keeps its word: by simulation with known truth, for independent and for strongly correlated turns."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import binomtest, norm

from eval.certify import certify, certify_binary, episode_losses, make_grid, one_per_episode
from pmem.errors import UserError

GRID = make_grid(99)


def test_59_clean_units_certify_5_percent_and_58_do_not() -> None:
    assert certify_binary(np.zeros(59), alpha=0.05, delta=0.05, grid=GRID) == pytest.approx(0.01)
    assert certify_binary(np.zeros(58), alpha=0.05, delta=0.05, grid=GRID) is None


def test_the_threshold_stands_above_the_errors() -> None:
    prob = np.concatenate([np.full(150, 0.02), np.full(10, 0.60)])
    assert certify_binary(prob, alpha=0.05, delta=0.05, grid=GRID) == pytest.approx(0.61)


def test_too_few_say_how_many_more() -> None:
    found = certify(np.full(40, 0.1), [f"e{i}" for i in range(40)], alpha=0.05, delta=0.05, grid=GRID, wanted=0.5, seed=1)
    assert found.threshold is None and found.more_units == 19
    assert "19 more" in found.sentence and "40 episodes" in found.sentence


def test_a_rate_above_alpha_asks_for_a_better_ranking() -> None:
    found = certify(np.full(40, 0.9), [f"e{i}" for i in range(40)], alpha=0.05, delta=0.05, grid=GRID, wanted=0.5, seed=1)
    assert found.more_units is None and "ranking must improve" in found.sentence


def test_one_snapshot_of_each_episode_whatever_the_order() -> None:
    episodes = ["b", "a", "b", "a", "c"]
    picked = one_per_episode(episodes, seed=3)
    assert [episodes[row] for row in picked] == ["a", "b", "c"]
    assert picked.tolist() == one_per_episode(episodes, seed=3).tolist()


def test_few_episodes_count_once_however_many_turns_they_have() -> None:
    """The unit is the episode: 10 episodes of 30 clean turns are 10 units, which certify nothing at 5 %."""
    found = certify(np.zeros(300), [f"e{i // 30}" for i in range(300)], alpha=0.05, delta=0.05, grid=GRID, wanted=0.5, seed=0)
    assert found.num_units == 10 and found.threshold is None


def test_from_200_episodes_the_episode_loss_is_used() -> None:
    found = certify(np.zeros(400), [f"e{i // 2}" for i in range(400)], alpha=0.05, delta=0.05, grid=GRID, wanted=0.5, seed=0)
    assert (found.unit, found.num_units, found.threshold) == ("episode", 200, pytest.approx(0.01))


def test_episode_losses_are_shares() -> None:
    losses = episode_losses(np.array([0.9, 0.1, 0.9]), ["a", "a", "b"], np.array([0.5]))
    assert losses.tolist() == [[0.5], [1.0]]


def test_a_grid_of_a_million_points_is_refused() -> None:
    with pytest.raises(UserError, match="grid_points"):
        make_grid(1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(("episodes", "spread"), [(60, 0.0), (60, 1.0), (200, 0.0), (200, 1.0)])
def test_violations_stay_below_delta(episodes: int, spread: float) -> None:
    """400 repetitions, 25 silence-is-right turns an episode, shared random intercept: a one-sided exact test does not reject
    5 %.
    """
    generator = np.random.default_rng(int(episodes * 10 + spread))
    borderline = _threshold_with_rate(0.05, spread)
    violations = certified = 0
    for repetition in range(400):
        prob, names = _episodes(generator, episodes, spread)
        found = certify(prob, names, alpha=0.05, delta=0.05, grid=GRID, wanted=0.5, seed=repetition)
        certified += found.threshold is not None
        violations += found.threshold is not None and found.threshold < borderline
    assert binomtest(violations, 400, 0.05, alternative="greater").pvalue > 0.01, violations
    assert certified >= 0.5 * 400


@pytest.mark.slow
def test_turns_as_units_break_the_guarantee() -> None:
    """Why the unit is the episode: with strongly correlated turns, all turns as units violate far more often than delta."""
    generator = np.random.default_rng(77)
    borderline = _threshold_with_rate(0.05, 1.0)
    violations = 0
    for _ in range(400):
        prob, _ = _episodes(generator, 60, 1.0)
        found = certify_binary(prob, alpha=0.05, delta=0.05, grid=GRID)
        violations += found is not None and found < borderline
    assert violations / 400 > 0.10


def _episodes(generator: np.random.Generator, episodes: int, spread: float) -> tuple[np.ndarray, list[str]]:
    intercepts = np.repeat(generator.normal(0, spread, episodes), 25)
    return expit(generator.normal(-2, 1, episodes * 25) + intercepts), [f"e{i // 25}" for i in range(episodes * 25)]


def _threshold_with_rate(rate: float, spread: float) -> float:
    """The probability whose true exceedance is `rate`: logit ~ N(-2, 1 + spread^2)."""
    deviation = np.sqrt(1 + spread**2)
    return float(expit(brentq(lambda x: norm.sf((x + 2) / deviation) - rate, logit(0.001), logit(0.9999))))
