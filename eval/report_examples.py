"""Example decisions in full: what the policy saw, how sure it was, what it said, what was true. All text is escaped."""

from collections.abc import Sequence
from html import escape
from typing import Any

from data.snapshots import SNAPSHOT_SCHEMA
from data.tables import read_rows
from eval.decisions import Decision
from eval.evidence import Evidence
from eval.operating import View
from eval.truth import Truth

SHOWN_STEPS = 8


def kind_of(view: View, row: int) -> str:
    """What happened at a row, in two words."""
    truth, spoke = view.truths[row], view.spoke[row] > 0
    if view.decisions[row].decision in {"malformed", "timeout", "error"}:
        return "failed step"
    if not truth.known:
        return "unknown truth"
    if truth.need:
        good = spoke and view.matched[row] and view.advantage[row] > 0
        return "helped" if good else "wrong words" if spoke else "missed"
    return "false alarm" if spoke else "right silence"


WANTED = ("helped", "missed", "false alarm", "right silence", "wrong words", "failed step", "unknown truth")


def choose_examples(view: View, number: int) -> list[int]:
    """Rows of every kind in turn, the surest first (furthest from the threshold), so that failures are shown as well as
    successes.
    """
    threshold = next((row.threshold for row in view.decisions if row.threshold is not None), 0.5) or 0.5
    groups: dict[str, list[int]] = {kind: [] for kind in WANTED}
    for row in range(len(view)):
        groups[kind_of(view, row)].append(row)
    for kind, rows in groups.items():
        far = kind != "right silence"
        rows.sort(key=lambda row: (-abs((view.decisions[row].prob_calibrated or 0.0) - threshold) * (1 if far else -1),
                                   view.truths[row].snapshot_id))  # fmt: skip
    chosen: list[int] = []
    while len(chosen) < min(number, len(view)):
        for kind in WANTED:
            if groups[kind] and len(chosen) < number:
                chosen.append(groups[kind].pop(0))
    return chosen


def example_articles(evidence: Evidence, split: str, number: int) -> str:
    """The examples of the candidate as HTML articles."""
    view = evidence.views[split][evidence.candidate]
    rows = choose_examples(view, number)
    wanted = {view.truths[row].snapshot_id for row in rows}
    snapshots = {
        snapshot["snapshot_id"]: snapshot
        for snapshot in read_rows(evidence.files.snapshots, SNAPSHOT_SCHEMA)
        if snapshot["snapshot_id"] in wanted
    }
    return "".join(
        _article(place, kind_of(view, row), view.truths[row], view.decisions[row], snapshots[view.truths[row].snapshot_id])
        for place, row in enumerate(rows, start=1)
    )


def _article(place: int, kind: str, truth: Truth, decision: Decision, snapshot: dict[str, Any]) -> str:
    said = escape(decision.reminder_text or "(nothing was written)")
    label = "Said" if decision.spoke else "Draft, not said"
    return f"""
<article class="example">
<h3>{place}. {escape(kind)}
<span class="soft">· {escape(truth.family)} · step {truth.step} · {escape(truth.snapshot_id)}</span></h3>
<dl>
<dt>Probability</dt><dd>{_number(decision.prob_calibrated)} calibrated, {_number(decision.prob_raw)} raw;
threshold {_number(decision.threshold)}</dd>
<dt>Outcome</dt><dd>{escape(decision.decision)} / {escape(decision.reason)}</dd>
<dt>Truth</dt><dd>{_truth(truth, decision)}</dd>
</dl>
<h4>{label}</h4><p class="said">{said}</p>
<h4>Task</h4><pre>{escape(chr(10).join(snapshot["task_messages"]))}</pre>
<h4>Bank before</h4>{_bank(snapshot["bank_before"]["entries"], decision.cited_ids)}
<h4>Window, newest last</h4>{_window(snapshot["window"])}
</article>"""


def _truth(truth: Truth, decision: Decision) -> str:
    lost = {True: "the agent had lost a fact it needed", False: "nothing needed was lost", None: "structural truth unknown"}
    parts = [f"{escape(truth.verdict.replace('_', ' '))} ({escape(truth.label_kind)}; {lost[truth.need_true]})"]
    for candidate in truth.candidates:
        if candidate.advantage is None:
            continue
        error = f" ± {candidate.std_error:.2f}" if candidate.std_error is not None else ""
        mark = " ← this was said" if candidate.candidate_id == decision.matched_candidate_id else ""
        parts.append(f"{candidate.advantage:+.2f}{error}: {escape(candidate.text)}{mark}")
    return "<br>".join(parts)


def _bank(entries: Sequence[dict[str, Any]], cited: Sequence[str]) -> str:
    if not entries:
        return "<p class='soft'>empty</p>"
    lines = []
    for entry in entries:
        mark = " <strong>(cited)</strong>" if entry["id"] in cited else ""
        lines.append(f"<li><code>{escape(entry['id'])}</code>{mark} {escape(entry['content'])}</li>")
    return f"<ul>{''.join(lines)}</ul>"


def _window(steps: Sequence[dict[str, Any]]) -> str:
    if not steps:
        return "<p class='soft'>no step yet</p>"
    lines = []
    for step in steps[-SHOWN_STEPS:]:
        thought = f"<br><em>{escape(step['thought'])}</em>" if step["thought"] else ""
        failed = " <strong>(error)</strong>" if step["outcome"] == "error" else ""
        lines.append(
            f"<li value='{int(step['step'])}'><code>{escape(step['tool'])} {escape(step['call'])}</code>{failed}<br>"
            f"<span class='soft'>{escape(step['digest'])}</span>{thought}</li>"
        )
    return f"<ol>{''.join(lines)}</ol>"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
