"""Calibrator on split `fit`: from the raw probability of speaking to the probability that speaking is needed.

scikit-learn fits it (`CalibratedClassifierCV` over a frozen scorer); what is kept are plain numbers, because the runtime
core has no scikit-learn: `pmem.threshold` applies them. Input of sigmoid and temperature is the logit of the clipped raw
probability:
    sigmoid: sigma(a x + b), params [a, b]     temperature: sigma(x / T), params [T]     isotonic: knots, params [x..., y...]
"""

import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from eval.metrics import require_both_classes
from eval.statistics import Floats
from pmem.errors import UserError
from pmem.threshold import PROB_CLIP, Calibrator

Method = Literal["sigmoid", "temperature", "isotonic", "none"]
ISOTONIC_ROWS = 1_000


class Scorer(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose score is its only feature."""

    classes_ = np.array([0, 1])

    def fit(self, features: Floats, labels: NDArray[np.int64]) -> "Scorer":
        return self

    def decision_function(self, features: Floats) -> Floats:
        return features[:, 0]

    def predict(self, features: Floats) -> NDArray[np.int64]:
        return (features[:, 0] >= 0).astype(np.int64)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def fit_calibrator(prob_raw: Floats, need: NDArray[np.bool_], method: Method = "sigmoid") -> Calibrator:
    """Fit on rows of shape (N,). Raises UserError on one class only, NaN, values outside [0, 1], or isotonic on few rows."""
    require_both_classes(need, "split fit")
    check_probabilities(prob_raw, "split fit")
    if method == "none":
        return Calibrator()
    if method == "isotonic" and len(prob_raw) <= ISOTONIC_ROWS:
        raise UserError(
            f"isotonic calibration wants more than {ISOTONIC_ROWS} rows and split fit has {len(prob_raw)}; "
            "use sigmoid or temperature"
        )
    features = prob_raw if method == "isotonic" else clipped_logit(prob_raw)
    with warnings.catch_warnings():  # the folds are of no account: nothing is fitted in them, the scorer is frozen
        warnings.filterwarnings("ignore", message="The least populated class")
        model = CalibratedClassifierCV(FrozenEstimator(Scorer()), method=method).fit(features[:, None], need.astype(int))
    return _plain_numbers(model.calibrated_classifiers_[0].calibrators[0], method)


def _plain_numbers(fitted: object, method: Method) -> Calibrator:
    """The numbers of a fitted scikit-learn calibrator, in our form."""
    if method == "sigmoid":
        return Calibrator(kind="sigmoid", params=(-float(fitted.a_), -float(fitted.b_)))  # type: ignore[attr-defined]
    if method == "temperature":  # scikit-learn scales the two logits (-x, x), so the slope of x is 2 beta
        return Calibrator(kind="temperature", params=(1 / (2 * float(fitted.beta_)),))  # type: ignore[attr-defined]
    knots, values = fitted.X_thresholds_, fitted.y_thresholds_  # type: ignore[attr-defined]
    return Calibrator(kind="isotonic", params=(*map(float, knots), *map(float, values)))


def clipped_logit(prob: Floats) -> Floats:
    """Logit of probabilities kept off 0 and 1."""
    return logit(np.clip(prob, PROB_CLIP, 1 - PROB_CLIP))


def check_probabilities(prob: Floats, where: str) -> None:
    """Raise UserError on NaN or a value outside [0, 1]."""
    if np.isnan(prob).any():
        raise UserError(f"{where}: {int(np.isnan(prob).sum())} probabilities are NaN; score the arm again")
    if ((prob < 0) | (prob > 1)).any():
        raise UserError(f"{where}: probability {prob[(prob < 0) | (prob > 1)][0]:g} lies outside [0, 1]; score the arm again")
