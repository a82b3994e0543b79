"""Calibrators as plain numbers, and a threshold that belongs to one model and one prompt."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pmem.errors import UserError
from pmem.threshold import Calibrator, Threshold, log_odds, read_threshold, sigma, write_threshold

PROBS = st.floats(0, 1)


def made(**changes: object) -> Threshold:
    values = {"threshold": 0.6, "certified": True, "model_hash": "m" * 64, "prompt_version": "p" * 16, "created": "2026-01-01"}
    return Threshold.model_validate(values | changes)


@pytest.mark.parametrize(
    ("kind", "params", "prob", "expected"),
    [
        ("none", (), 0.3, 0.3),
        ("temperature", (1.0,), 0.3, 0.3),
        ("temperature", (2.0,), 0.9, 0.75),  # odds 9 -> sqrt(9) = 3
        ("sigmoid", (1.0, 0.0), 0.3, 0.3),
        ("sigmoid", (1.0, math.log(2)), 0.5, 2 / 3),
        ("isotonic", (0.2, 0.6, 0.1, 0.5), 0.4, 0.3),
        ("isotonic", (0.2, 0.6, 0.1, 0.5), 0.0, 0.1),
        ("isotonic", (0.2, 0.6, 0.1, 0.5), 1.0, 0.5),
        ("isotonic", (0.5, 0.7), 0.4, 0.7),
    ],
)
def test_calibrators(kind: str, params: tuple[float, ...], prob: float, expected: float) -> None:
    assert Calibrator(kind=kind, params=params).apply(prob) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "params"),
    [("sigmoid", (1.0,)), ("temperature", (0.0,)), ("temperature", ()), ("isotonic", (0.2, 0.1, 0.5)), ("isotonic", ()),
     ("isotonic", (0.6, 0.2, 0.1, 0.5)), ("none", (1.0,)), ("sigmoid", (float("nan"), 0.0))],
)  # fmt: skip
def test_calibrators_that_make_no_sense_are_refused(kind: str, params: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        Calibrator(kind=kind, params=params)


@given(PROBS, PROBS, st.sampled_from([("sigmoid", (0.7, -1.0)), ("temperature", (3.0,)), ("isotonic", (0.1, 0.8, 0.0, 0.9))]))
def test_calibration_is_monotone_and_stays_a_probability(
    one: float, two: float, calibrator: tuple[str, tuple[float, ...]]
) -> None:
    low, high = sorted((one, two))
    apply = Calibrator(kind=calibrator[0], params=calibrator[1]).apply
    assert 0 <= apply(low) <= apply(high) <= 1


@given(PROBS)
def test_log_odds_and_sigma_are_inverse(prob: float) -> None:
    assert sigma(log_odds(prob)) == pytest.approx(prob, abs=2e-7)


def test_speaking_starts_at_the_threshold() -> None:
    assert made(threshold=0.5).speaks(0.5) and not made(threshold=0.5).speaks(0.4999)
    assert not made(threshold=1.5).speaks(1.0)


def test_a_threshold_round_trips_and_keeps_its_id(tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    threshold = made(calibrator={"kind": "sigmoid", "params": [1.5, -0.25]}, alpha=0.05, families=["git"])
    write_threshold(path, threshold)
    assert read_threshold(path, model_hash="m" * 64, prompt_version="p" * 16) == threshold
    assert threshold.threshold_id == made(**threshold.model_dump() | {"created": "later"}).threshold_id != made().threshold_id


def test_a_threshold_of_another_model_or_prompt_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    write_threshold(path, made())
    for hash_, version in [("x" * 64, "p" * 16), (None, "p" * 16), ("m" * 64, "q" * 16)]:
        with pytest.raises(UserError, match="was made for"):
            read_threshold(path, model_hash=hash_, prompt_version=version)


def test_an_uncertified_threshold_is_refused_where_a_certificate_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    write_threshold(path, made(certified=False))
    assert not read_threshold(path, model_hash="m" * 64, prompt_version="p" * 16).certified
    with pytest.raises(UserError, match="no certified threshold"):
        read_threshold(path, model_hash="m" * 64, prompt_version="p" * 16, require_certified=True)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format":"pmem.threshold/2"}', json.dumps(made().model_dump() | {"extra": 1})])
def test_files_that_are_no_threshold_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "threshold.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"threshold\.json"):
        read_threshold(path, model_hash="m" * 64, prompt_version="p" * 16)


def test_a_missing_file_names_its_maker(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"eval\.sweep"):
        read_threshold(tmp_path / "none.json", model_hash=None, prompt_version="")
