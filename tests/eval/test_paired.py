"""Power and certificate sizes against the published tables; McNemar against its binomial."""

import numpy as np
import pytest
from scipy.stats import binomtest

from eval.paired import detectable_difference, paired_difference, pairs_needed, power_paired, units_needed


@pytest.mark.parametrize(("alpha", "clean", "half"), [(0.02, 149, 386), (0.05, 59, 153), (0.10, 29, 76)])
def test_units_needed_reproduces_the_table(alpha: float, clean: int, half: int) -> None:
    assert units_needed(alpha) == clean and units_needed(alpha, alpha / 2) == half


def test_a_rate_at_alpha_is_never_certified() -> None:
    assert units_needed(0.05, 0.05) is None


def test_power_reproduces_the_terminal_bench_example() -> None:
    """89 tasks, +8.3 points, 25 % discordant: 35 %; 277 and 417 pairs for 80 %."""
    assert power_paired(89, 0.083, 0.25) == pytest.approx(0.35, abs=0.01)
    assert pairs_needed(0.083, 0.25) == 277 and pairs_needed(0.068, 0.25) == 417
    assert power_paired(277, detectable_difference(277, 0.25), 0.25) == pytest.approx(0.8, abs=0.02)


def test_mcnemar_is_the_exact_binomial() -> None:
    arm = np.array([1.0] * 12 + [0.0] * 3 + [1.0] * 20)
    baseline = np.array([0.0] * 12 + [1.0] * 3 + [1.0] * 20)
    paired = paired_difference(arm, baseline, [str(i) for i in range(35)])
    assert (paired.helped, paired.harmed, paired.pairs) == (12, 3, 35)
    assert paired.p_value == pytest.approx(binomtest(3, 15, 0.5).pvalue)
    assert paired.difference.value == pytest.approx(9 / 35)


def test_mcnemar_is_left_out_when_a_task_has_several_trials() -> None:
    paired = paired_difference(np.array([1.0, 0.0]), np.array([0.0, 0.0]), ["same", "same"])
    assert paired.p_value is None


def test_no_trials_claim_nothing() -> None:
    empty = np.array([])
    paired = paired_difference(empty, empty, [])
    assert paired.difference.value is None and paired.detectable == 1.0
