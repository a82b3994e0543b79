"""The sections of the report on time, failures, prices, citations and the errors that survive the threshold."""

from html import escape
from typing import Any

from eval.conduct import CLASSES
from eval.evidence import Evidence
from eval.report_parts import figure_cell, figure_text, section, table

TIME_HEADS = ("arm", "p50 ms", "p95 ms", "p99 ms", "refused or failed", "deadline missed")


def time_section(figures: dict[str, Any], evidence: Evidence) -> str:
    """Model time of a step, refusals and deadline misses an arm, on snapshots and live; what an injection costs."""
    rows = [
        [escape(arm), *(figure_cell(each[name], 1) for name in ("p50", "p95", "p99")),
         figure_cell(each["refused"], 3), figure_cell(each["deadline"], 3)]
        for arm, each in figures["time"].items()
    ]  # fmt: skip
    text = (
        "Model time of one step when snapshots are scored, each with its share of its batch: a route that takes single steps is "
        "slower. Refused or failed, and deadlines missed, are shares of the steps; neither counts as silence."
    )
    return section("Time, failures and price", f"<p>{text}</p>{table(TIME_HEADS, rows)}{_live(figures, evidence)}")


def _live(figures: dict[str, Any], evidence: Evidence) -> str:
    if not evidence.ab:
        return ""
    rows = []
    for arm, entry in evidence.ab["arms"].items():
        trials = evidence.ab.get("trials", {}).get(arm, [])
        steps = sum(sum(trial["outcomes"].values()) for trial in trials)
        said = sum(trial["num_reminders"] for trial in trials)
        failed = sum(n for name, n in entry["outcomes"].items() if name.partition("/")[0] in {"error", "dropped"})
        late = sum(n for name, n in entry["outcomes"].items() if name.partition("/")[0] == "timeout")
        spent = sum(trial["model_ms"] for trial in trials) / 1000
        rows.append([escape(arm), str(len(trials)), f"{spent / len(trials):.2f}" if trials else "–", str(steps),
                     str(failed), str(late), _price(figures["price"], trials, said)])  # fmt: skip
    heads = [
        "arm",
        "trials",
        "model seconds a task",
        "memory steps",
        "refused or failed",
        "deadline missed",
        "price an injection",
    ]
    return f"<h3>In live trials</h3>{table(heads, rows)}"


def _price(price: list[float] | None, trials: list[dict[str, Any]], said: int) -> str:
    if price is None or not said:
        return "not priced" if price is None else "–"
    cost = sum(trial["tokens_in"] * price[0] + trial["tokens_out"] * price[1] for trial in trials) / 1e6
    return f"{cost / said:.6f}"


def errors_section(figures: dict[str, Any]) -> str:
    """Residual errors by class, and what the citations are worth."""
    meanings = dict(zip(CLASSES, (
        "says a measured fact that was not lost, or whose reminder gained nothing",
        "asks to check or confirm something",
        "any other sentence that says nothing measured",
    )))  # fmt: skip
    meanings["missed need"] = "silent, or stopped, where a reminder was needed"
    rows = [
        [escape(name), str(figure["count"]), figure_cell(figure, 3), escape(meanings[name])]
        for name, figure in figures["residual"].items()
    ]
    valid, age = figures["citations"]["valid"], figures["citations"]["age_steps"]
    text = (
        "Errors of the candidate that survive its threshold, by the paper's classes; shares of the snapshots with a known verdict. "
        "The class is read from the text by fixed rules (eval/conduct.py)."
    )
    cited = (
        f"Citations of what it says: {figure_text(valid, 3)} of the reminders cite only entries that stood in the bank before the "
        f"step, the others what this very step wrote; the cited entries were last written {figure_text(age, 1)} steps before."
    )
    return section("Errors that remain", f"<p>{text}</p>{table(['class', 'count', 'share', 'what it is'], rows)}<p>{cited}</p>")
