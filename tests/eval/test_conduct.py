"""Times, citations and classes of errors, each against a view that was made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from eval.against_truth import truth_figures
from eval.conduct import CLASSES, citation_figures, error_class, residual_figures, time_figures, weighted_quantile
from eval.decisions import Decision
from eval.operating import View
from eval.truth import Truth


def truth(number: int, verdict: str = "not_needed") -> Truth:
    return Truth(
        snapshot_id=f"s{number}", episode=f"e{number}", task=f"t{number}", family="git", split="test", mechanism=None, boundary=0,
        step=10, bank_size=1, interval=True, label_kind="counterfactual", agent="weak", verdict=verdict, need_true=None,
        value_silent=0.5, candidates=(), written={"tm-k-1": 4.0},
    )  # fmt: skip


def row(number: int, text: str | None, *, cited: tuple[str, ...] = (), latency_ms: float = 10.0) -> Decision:
    return Decision(
        snapshot_id=f"s{number}", arm="sft", decision="injected" if text else "silent", spoke=bool(text), latency_ms=latency_ms,
        reason="intervened" if text else "model_silent", reminder_text=text, cited_ids=list(cited),
    )  # fmt: skip


def view(truths: list[Truth], rows: list[Decision], matched: list[bool], advantage: list[float]) -> View:
    return View(
        arm="sft", truths=tuple(truths), decisions=tuple(rows), prob=np.full(len(rows), 0.5), matched=np.array(matched),
        spoke=np.array([float(one.spoke) for one in rows]), advantage=np.array(advantage),
    )  # fmt: skip


def test_quantiles_of_time_and_shares_that_failed() -> None:
    rows = [row(number, None, latency_ms=float(number + 1)) for number in range(100)]
    rows[0] = replace(rows[0], decision="timeout", reason="deadline")
    rows[1] = replace(rows[1], decision="error", reason="overloaded")
    figures = time_figures(view([truth(n) for n in range(100)], rows, [False] * 100, [0.0] * 100), seed=1)
    assert [figures[name].value for name in ("p50", "p95", "p99")] == [50.0, 95.0, 99.0]
    assert figures["refused"].value == figures["deadline"].value == pytest.approx(0.01)
    assert figures["p50"].ci_low is not None and figures["p50"].ci_low < 50.0 < (figures["p50"].ci_high or 0.0)


def test_a_weighted_quantile_is_that_of_the_repeated_rows() -> None:
    values = np.array([3.0, 1.0, 2.0])
    assert weighted_quantile(values, 0.5)(np.array([[1.0, 5.0, 1.0], [5.0, 1.0, 1.0]])).tolist() == [1.0, 3.0]


def test_citations_are_valid_when_they_stood_in_the_bank_and_age_is_counted_in_steps() -> None:
    rows = [row(0, "Use EUR. [tm-k-1]", cited=("tm-k-1",)), row(1, "New. [tm-k-9]", cited=("tm-k-9",)), row(2, None)]
    figures = citation_figures(view([truth(n) for n in range(3)], rows, [False] * 3, [0.0] * 3), seed=1)
    assert figures["valid"].value == 0.5 and figures["age_steps"].value == 6.0
    silent = view([truth(2)], [row(2, None)], [False], [0.0])
    assert citation_figures(silent, seed=1)["valid"].value is None


def test_every_error_has_one_class() -> None:
    assert error_class(row(0, "Use EUR."), matched=True) == CLASSES[0]
    assert error_class(row(0, "Verify that the total is right."), matched=False) == CLASSES[1]
    assert error_class(row(0, "The server is in Oslo."), matched=False) == CLASSES[2]


def test_residual_errors_leave_hits_out_and_count_misses() -> None:
    truths = [truth(0), truth(1), truth(2, "need"), truth(3, "need"), truth(4, "unknown")]
    rows = [row(0, "Use EUR."), row(1, "Check the sum."), row(2, "Use EUR."), row(3, None), row(4, "Use EUR.")]
    figures = residual_figures(view(truths, rows, [True, False, True, False, True], [-0.01, -0.01, 0.4, 0.0, 0.0]), seed=1)
    assert {name: figure["count"] for name, figure in figures.items()} == {
        "redundant reminder": 1, "unnecessary verification": 1, "over-confident speculation": 0, "missed need": 1,
    }  # fmt: skip
    assert figures["missed need"]["value"] == 0.25


def test_the_truth_of_the_environment_stands_beside_the_measured_labels_and_their_ceiling() -> None:
    """Probabilities rank the truth perfectly; of four measured labels one is wrong, and one unknown and one untrue row stay out."""
    verdicts = ["need", "not_needed", "not_needed", "not_needed", "unknown", "need"]
    true: list[bool | None] = [True, True, False, False, True, None]
    truths = [replace(truth(place, verdict), need_true=is_true) for place, (verdict, is_true) in enumerate(zip(verdicts, true))]
    seen = view(truths, [row(place, None) for place in range(6)], [False] * 6, [0.0] * 6)
    seen = replace(seen, prob=np.array([0.8, 0.9, 0.2, 0.1, 0.0, 0.0]))
    figures = truth_figures(seen, seed=1)
    assert figures is not None
    assert figures["auroc_truth"].value == 1.0 and figures["auroc_measured"].value == pytest.approx(2 / 3)
    assert figures["ceiling"].value == pytest.approx(5 / 6)
    assert truth_figures(seen.where(np.array([0, 1])), seed=1) is None
