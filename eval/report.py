"""report.html: the verdict in its first line, every figure with its interval and a plain sentence, one file, no network.

Readable at 390 pixels and in print. Everything that comes from rollouts or models is escaped; data for the slider is JSON
whose `<` are escaped. Style, script and frame stand in eval/templates/.
"""

import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from eval.curves import slider_rows
from eval.evidence import Evidence
from eval.report_conduct import errors_section, time_section
from eval.report_examples import example_articles
from eval.report_figures import (
    COLUMNS,
    arms_section,
    calibration_section,
    elsewhere_section,
    others_section,
    outcomes_section,
    selectivity_section,
    slices_section,
    slider_section,
    sweep_section,
    trials_section,
    truth_section,
)
from eval.report_parts import section, table, value_cell
from pmem.atomic import write_text

TEMPLATES = Path(__file__).parent / "templates"


def write_report(
    path: Path, verdict: dict[str, Any], figures: dict[str, Any], evidence: Evidence, split: str, num_examples: int
) -> None:
    """Fill the template and write the page."""
    view = evidence.views[split][evidence.candidate]
    data = {"rows": slider_rows(view), "threshold": evidence.threshold.threshold}
    sections = [
        _verdict(verdict, evidence),
        _reasons(verdict),
        _counts(figures),
        arms_section(verdict, evidence, split),
        outcomes_section(figures, evidence),
        calibration_section(figures),
        selectivity_section(figures, verdict),
        slider_section(evidence, bool(data["rows"])),
        trials_section(evidence),
        time_section(figures, evidence),
        errors_section(figures),
        truth_section(figures),
        slices_section(figures),
        elsewhere_section(figures),
        others_section(figures),
        sweep_section(evidence),
        _examples(evidence, split, num_examples),
        _not_measured(verdict, figures, evidence),
        _sources(verdict),
    ]
    page = Template((TEMPLATES / "report.html").read_text(encoding="utf-8")).substitute(
        title=escape(f"pmem: {evidence.candidate} {'promoted' if verdict['promoted'] else 'not promoted'}"),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
        body="\n".join(sections),
        data=json.dumps(data).replace("<", "\\u003c"),
    )
    write_text(path, page)


def _verdict(verdict: dict[str, Any], evidence: Evidence) -> str:
    failed = [reason["rule"].partition(":")[0] for reason in verdict["reasons"] if not reason["held"]]
    word = "Promoted" if verdict["promoted"] else "Not promoted"
    why = (
        "every rule of promotion holds"
        if not failed
        else f"{len(failed)} of {len(verdict['reasons'])} rules do not hold: {', '.join(failed)}"
    )
    threshold = evidence.threshold
    certified = "certified" if threshold.certified else "not certified: the runtime stays with the rules tier"
    return f"""<header class="verdict {"yes" if verdict["promoted"] else "no"}">
<h1><strong>{word}: {escape(evidence.candidate)}</strong></h1>
<p>{escape(why.replace("_", " "))}. {escape(verdict["certificate"]["sentence"])}</p>
<p class="soft">Model <code>{escape(threshold.model_hash[:16])}</code>, prompt <code>{escape(threshold.prompt_version)}</code>;
speaks from a calibrated probability of {threshold.threshold:.3f} up ({certified}).</p>
</header>"""


def _reasons(verdict: dict[str, Any]) -> str:
    rows = []
    for reason in verdict["reasons"]:
        name, _, sentence = reason["rule"].partition(": ")
        digits = 0 if (reason["figure"] or 0.0) >= 100 else 3
        word = "<span class='yes-word'>held</span>" if reason["held"] else "<span class='no-word'>not held</span>"
        rows.append(
            [escape(name.replace("_", " ")), word, value_cell(reason["figure"], reason["interval"], digits), escape(sentence)]
        )
    return section("Rules of promotion", table(["rule", "verdict", "figure", "what it says"], rows))


def _counts(figures: dict[str, Any]) -> str:
    rows = []
    for split, count in figures["counts"].items():
        known = count["need"] + count["not_needed"]
        kinds = ", ".join(f"{kind} {number}" for kind, number in count["label_kinds"].items())
        noise = "–" if count["mean_std_error"] is None else f"{count['mean_std_error']:.2f}"
        base = f"{count['need'] / known:.1%}" if known else "–"
        numbers = [str(count[name]) for name in ("snapshots", "scored", "episodes", "tasks", "need")]
        rest = [base, str(count["unknown"]), str(count["need_true"]), escape(kinds), noise]
        rows.append([escape(split), *numbers, *rest])
    heads = [
        "split",
        "labelled",
        "scored",
        "episodes",
        "tasks",
        "need",
        "base rate",
        "unknown",
        "need by structure",
        "labels",
        "noise of a label",
    ]
    text = (
        "Whether a reminder was needed is measured: branches with and without it, run to the end and checked. Snapshots whose "
        "verdict is unknown are counted here and left out everywhere else. Noise: mean standard error of a measured advantage."
    )
    return section("What was judged", f"<p>{text}</p>{table(heads, rows)}")


def _examples(evidence: Evidence, split: str, number: int) -> str:
    text = "Chosen by rule, not by taste: every kind of outcome in turn, the surest of each first."
    return section("Example decisions", f"<p>{text}</p>{example_articles(evidence, split, number)}")


def _not_measured(verdict: dict[str, Any], figures: dict[str, Any], evidence: Evidence) -> str:
    candidate = verdict["arms"][evidence.candidate]
    absent = sorted({"full_bank", "injection_only", "retrieval", "advisor"} - set(verdict["arms"]))
    missing = [COLUMNS[name][0] for name, figure in candidate.items() if figure["value"] is None]
    count = figures["counts"][figures["split"]]
    items = [
        "Agents other than the simulated ones; those obey and forget by stated parameters (data/agent.py).",
        f"{count['unknown']} of {count['snapshots']} snapshots, whose verdict the branches could not settle.",
        "Regret takes the best of several noisy measurements, so it is a little too high for every arm alike.",
        "Latency under load of a served route: time here is the model's share of its batch.",
        f"Arms not in the table: {', '.join(absent) or 'none'}.",
    ]  # fmt: skip
    if missing:
        items.append(f"For the candidate: {', '.join(missing)}.")
    if figures["price"] is None:
        items.append("Money: name price_per_million to have injections priced.")
    mechanisms = {"requirement", "grounding", "failure_loop", "diagnosis", "progress"}
    unseen = mechanisms - {row["slice"] for row in figures["slices"] if row["by"] == "mechanism"}
    if unseen:
        items.append(f"Mechanisms with fewer than five snapshots of a known verdict: {', '.join(sorted(unseen))}.")
    if figures["reasons_off"]:
        items.append(f"Rules switched off in the policy: {', '.join(figures['reasons_off'])}.")
    return section("What was not measured", "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>")


def _sources(verdict: dict[str, Any]) -> str:
    hashes = table(
        ["input", "SHA-256"], [[escape(name), f"<code>{escape(digest)}</code>"] for name, digest in verdict["hashes"].items()]
    )
    commands = escape("\n".join(verdict["commands"]))
    return section("How to get these figures again", f"<pre>{commands}</pre>{hashes}")
