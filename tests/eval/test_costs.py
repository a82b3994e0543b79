"""Prices have a direction: dear false interventions raise the threshold, and speaking wrongly costs."""

from dataclasses import replace

import numpy as np
import pytest

from eval.choose import Costs
from eval.metrics import net_benefit, regret
from eval.trials import always_noisy_regression
from tests.eval.test_conduct import row, truth, view
from tests.eval.test_promote import trial


def costs(cost_false: float, cost_missed: float) -> float:
    return Costs(alpha=0.05, delta=0.05, cost_false=cost_false, cost_missed=cost_missed).threshold


def test_the_cost_threshold_is_where_both_mistakes_cost_the_same() -> None:
    tau = costs(1.0, 2.0)
    assert tau == pytest.approx(1 / 3) and tau * 2.0 == pytest.approx((1 - tau) * 1.0)
    assert costs(4.0, 1.0) == pytest.approx(0.8) and costs(1.0, 4.0) == pytest.approx(0.2)


def test_a_false_intervention_lowers_the_net_benefit_by_its_price_and_a_hit_raises_it() -> None:
    quiet, needed = truth(0), truth(1, "need")
    wrong = view([quiet, needed], [row(0, "x"), row(1, None)], [False, False], [-0.01, 0.0])
    right = view([quiet, needed], [row(0, None), row(1, "x")], [False, True], [0.0, 0.4])
    assert net_benefit(wrong, 0.5).value == pytest.approx(-0.25)
    assert net_benefit(right, 0.5).value == pytest.approx(0.5)


def test_regret_grows_with_harm() -> None:
    needed = truth(1, "need")
    said = [regret(view([needed], [row(1, "x")], [True], [gain])).value for gain in (0.4, 0.0, -0.2)]
    assert np.all(np.diff(np.array(said, dtype=float)) > 0)


def test_noise_is_much_talk_without_gain() -> None:
    quiet = [trial("never", index, index % 2 == 0) for index in range(10)]
    loud = [replace(one, num_reminders=2) for one in quiet]
    assert always_noisy_regression(loud, quiet)
    assert not always_noisy_regression([replace(one, success=True) for one in loud], quiet)
