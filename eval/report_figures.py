"""The sections of the report that show figures: arms, outcomes, calibration, selectivity, trials, slices, the sweep, the
slider.
"""

from html import escape
from typing import Any

from eval import report_charts as charts
from eval.evidence import Evidence
from eval.other_runs import AGREEMENT
from eval.report_parts import figure_block, figure_cell, figure_text, legend, section, table

COLUMNS: dict[str, tuple[str, int]] = {
    "auroc": ("AUROC", 3), "auprc": ("AUPRC", 3), "false_intervention_rate": ("false interventions", 3),
    "recall_needed": ("recall", 3), "hit_rate": ("hit rate", 3), "ece": ("calibration error", 3), "brier": ("Brier", 3),
    "regret": ("regret", 4), "net_benefit": ("net benefit", 4), "pass_rate": ("pass rate", 3),
    "reminders_per_task": ("reminders / task", 2), "tokens_per_injection": ("tokens / injection", 0),
    "seconds_per_injection": ("seconds / injection", 2),
}  # fmt: skip
KINDS: dict[str, tuple[str, str]] = {
    "spoke": ("spoke", "var(--c0)"), "silent": ("chose silence", "var(--c1)"), "gated": ("stopped by a gate", "var(--c2)"),
    "malformed": ("malformed", "var(--c3)"), "timeout": ("timed out", "var(--c4)"),
    "refused": ("refused, dropped or failed", "var(--c5)"),
}  # fmt: skip
KIND_OF = {"injected": "spoke", "silent": "silent", "gated": "gated", "malformed": "malformed", "timeout": "timeout"}
SNAPSHOT_COLUMNS = (
    "auroc", "auprc", "false_intervention_rate", "recall_needed", "hit_rate", "ece", "brier", "regret", "net_benefit",
)  # fmt: skip
LIVE_COLUMNS = ("pass_rate", "reminders_per_task", "tokens_per_injection", "seconds_per_injection")
LINES = ("var(--c0)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c1)", "var(--c6)")


def arms_section(verdict: dict[str, Any], evidence: Evidence, split: str) -> str:
    """All arms, on snapshots and live, the candidate marked."""
    text = (
        f"Split {escape(split)}, each arm at its own threshold; 95 % intervals from resampling whole tasks. "
        "False interventions: share of silence-is-right snapshots it speaks on, episodes averaged first. Recall: share of needed "
        "snapshots on which it says something of positive measured value. Random says the candidate's own words, at its rate, "
        "at random boundaries: it tells <em>when</em> from <em>how much</em>."
    )
    live = {arm: metrics for arm, metrics in verdict["arms"].items() if metrics["pass_rate"]["value"] is not None}
    snapshots = _arms_table(verdict["arms"], SNAPSHOT_COLUMNS, evidence.candidate)
    trials = _arms_table(live, LIVE_COLUMNS, evidence.candidate) if live else "<p>No live trials were run.</p>"
    return section("Arms", f"<p>{text}</p>{snapshots}<h3>In live trials</h3>{trials}")


def _arms_table(arms: dict[str, Any], names: tuple[str, ...], candidate: str) -> str:
    head = "".join(f"<th scope='col'>{escape(COLUMNS[name][0])}</th>" for name in names)
    body = []
    for arm, metrics in arms.items():
        cells = ""
        for name in names:
            label, digits = COLUMNS[name]
            cells += f"<td data-label='{escape(label, quote=True)}'><span>{figure_cell(metrics[name], digits)}</span></td>"
        mark = " class='candidate'" if arm == candidate else ""
        body.append(f"<tr{mark}><th scope='row'>{escape(arm)}</th>{cells}</tr>")
    return f"<table class='wide'><thead><tr><th scope='col'>arm</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def outcomes_section(figures: dict[str, Any], evidence: Evidence) -> str:
    bars, rows = [], []
    for arm, shares in figures["outcomes"].items():
        summed = dict.fromkeys(KINDS, 0.0)
        for name, figure in shares.items():
            decision = name.partition("/")[0]
            summed[KIND_OF.get(decision, "refused")] += figure["value"]
            rows.append([escape(arm), escape(name.replace("_", " ")), figure_cell(figure, 3)])
        bars.append((arm, list(summed.items())))
    colours = {kind: colour for kind, (_, colour) in KINDS.items()}
    keys = legend((label, colour) for label, colour in KINDS.values())
    chart = figure_block(
        charts.bars_chart(bars, colours), "Five ways of not speaking, kept apart: silence is a decision, failure is not."
    )
    return section("How steps end", f"{keys}{chart}{table(['arm', 'outcome', 'share'], rows)}")


def calibration_section(figures: dict[str, Any]) -> str:
    calibration = figures["calibration"]
    parts = calibration["murphy"]
    text = (
        f"Brier {parts['brier']:.4f} = reliability {parts['reliability']:.4f} − resolution {parts['resolution']:.4f} "
        f"+ uncertainty {parts['uncertainty']:.4f} + within bins {parts['within']:.4f}. Spiegelhalter z = "
        f"{calibration['spiegelhalter_z']:.2f} (two-sided p = {calibration['spiegelhalter_p']:.3f}; it treats snapshots as "
        "independent)."
    )
    left = figure_block(
        charts.reliability_chart(calibration["reliability"]),
        "Points inside the band are what a perfectly calibrated model would show on so few snapshots.",
    )
    right = figure_block(charts.histogram_chart(calibration["histogram"]), "How often which probability is given.")
    keys = legend([("silence was right", "var(--c1)"), ("a reminder was needed", "var(--c2)")])
    return section("Is its probability honest?", f"<p>{text}</p><div class='charts'>{left}<div>{right}{keys}</div></div>")


def selectivity_section(figures: dict[str, Any], verdict: dict[str, Any]) -> str:
    area = figures["selectivity"]["augrc"]
    caption = "lower is better. Wrong: speaking where silence was right, not helping where help was needed."
    chart = charts.risk_chart(figures["selectivity"]["risk_coverage"], area["value"])
    left = figure_block(chart, f"AUGRC {figure_text(area, 4)}; {caption}")
    wanted = [arm for arm in ("always", "random", "rules", "prompted", "sft", "sft_grpo") if arm in figures["net_benefit"]]
    colours = {arm: LINES[index % len(LINES)] for index, arm in enumerate(wanted)}
    curves = {arm: figures["net_benefit"][arm] for arm in wanted}
    right = figure_block(
        charts.benefit_chart(curves, colours), "Hits minus priced false interventions, a snapshot; never is zero everywhere."
    )
    return section("Does certainty pay?", f"<div class='charts'>{left}<div>{right}{legend(colours.items())}</div></div>")


def slider_section(evidence: Evidence, any_rows: bool) -> str:
    if not any_rows:
        return ""
    threshold = evidence.threshold.threshold
    return section("Move the threshold", f"""<div class="slider">
<label for="threshold">Speak from a calibrated probability of <output id="at" for="threshold">{threshold:.2f}</output></label>
<input id="threshold" type="range" min="0" max="1" step="0.01" value="{min(1.0, threshold):.2f}">
<dl aria-live="polite"><dt>false interventions</dt><dd id="fir">–</dd><dt>recall of needed reminders</dt><dd id="recall">–</dd>
<dt>hit rate</dt><dd id="hit">–</dd><dt>speaks on</dt><dd id="rate">–</dd></dl>
<p class="soft">Recomputed here from the saved decisions, without intervals. The certificate holds only for the shipped threshold
({threshold:.3f}); choosing another by this split's figures would be peeking.</p></div>""")  # fmt: skip


def trials_section(evidence: Evidence) -> str:
    if not evidence.ab:
        return section("Live trials", "<p>No live trials were run: no pass rate is claimed.</p>")
    rows = []
    for arm, entry in evidence.ab["arms"].items():
        for base, paired in entry["paired"].items():
            p_value = "–" if paired["p_value"] is None else "< 0.001" if paired["p_value"] < 0.001 else f"{paired['p_value']:.3f}"
            rows.append([escape(arm), escape(base), figure_cell(paired["difference"], 3), str(paired["pairs"]),
                         f"{paired['helped']} / {paired['harmed']}", p_value, f"{paired['detectable']:.2f}"])  # fmt: skip
    power = evidence.ab["power"]
    reached = "–" if power["power"] is None else f"{power['power']:.0%}"
    needed = "–" if power["pairs_for_80_percent"] is None else str(power["pairs_for_80_percent"])
    noisy = [arm for arm, entry in evidence.ab["arms"].items() if entry["always_noisy_regression"]]
    text = (
        f"Power for a true difference of {power['expected']:.0%}, stated before looking: {reached} with {power['pairs']} pairs; "
        f"80 % would need {needed}. Always-noisy regression: {escape(', '.join(noisy)) or 'no arm'}."
    )
    heads = ["arm", "against", "difference of pass rates", "pairs", "helped / harmed", "McNemar p", "detectable at 80 %"]
    return section("Live trials, matched one to one", f"<p>{text}</p>{table(heads, rows)}")


def slices_section(figures: dict[str, Any]) -> str:
    rows = [
        [escape(row["by"]), escape(row["slice"]), str(row["n"]), str(row["tasks"]), figure_cell(row["base_rate"], 3),
         figure_cell(row["auroc"], 3), figure_cell(row["false_intervention_rate"], 3), figure_cell(row["recall_needed"], 3)]
        for row in figures["slices"]
    ]  # fmt: skip
    heads = ["by", "slice", "snapshots", "tasks", "base rate", "AUROC", "false interventions", "recall"]
    text = "Many slices are shown without correction: one that stands out alone is a question, not a finding."
    return section("Slices of the candidate", f"<p>{text}</p>{table(heads, rows)}")


def truth_section(figures: dict[str, Any]) -> str:
    rows = [
        [escape(split), escape(arm), *(figure_cell(found[name], 3) for name in ("auroc_truth", "auroc_measured", "ceiling"))]
        for split, arms in figures["truth"].items()
        for arm, found in arms.items()
    ]
    text = (
        "Simulated tasks know when a fact was lost that the next acts need. Measured labels are noisier: the ceiling is what that "
        "truth itself would score against them."
    )
    heads = ["split", "arm", "AUROC against the truth", "against measured labels", "ceiling"]
    return section("Against the environment's own truth", f"<p>{text}</p>{table(heads, rows)}") if rows else ""


def elsewhere_section(figures: dict[str, Any]) -> str:
    parts = []
    for split, arms in figures["also"].items():
        rows = [
            [escape(arm), *(figure_cell(metrics[name], COLUMNS[name][1]) for name in ("auroc", "auprc", "false_intervention_rate",
                                                                               "recall_needed", "hit_rate", "regret"))]
            for arm, metrics in arms.items()
        ]  # fmt: skip
        heads = ["arm", "AUROC", "AUPRC", "false interventions", "recall", "hit rate", "regret"]
        parts.append(f"<h3>{escape(split)}</h3>{table(heads, rows)}")
    text = "Families never trained on, at the shipped threshold. No certificate is claimed there."
    return section("Elsewhere", f"<p>{text}</p>{''.join(parts) or '<p>No such split was scored.</p>'}")


def others_section(figures: dict[str, Any]) -> str:
    if not figures["others"]:
        return ""
    heads = [
        "arm",
        "AUROC",
        "AUPRC",
        "agrees with the label",
        "speaks where the label is silent",
        "speaks where it is not",
        "speaks",
    ]
    parts = []
    for name, found in figures["others"].items():
        rows = [[escape(arm), *(figure_cell(shown[key], 3) for key in AGREEMENT)]
                for arm, shown in found["arms"].items()]  # fmt: skip
        kinds = ", ".join(f"{count} {kind}" for kind, count in found["label_kinds"].items())
        told = f"Labels: {kinds}; {found['need']} say need, {found['not_needed']} not needed, in {found['tasks']} tasks."
        parts.append(f"<h3>{escape(name)}</h3><p>{escape(told)}</p>{table(heads, rows)}")
    text = "Snapshots of other agents with labels that are opinions (hindsight, teacher), not measurements: how far they and the arms "
    return section("Labels that were not measured", f"<p>{text}agree, at the run's thresholds.</p>{''.join(parts)}")


def sweep_section(evidence: Evidence) -> str:
    points = evidence.sweep.get("grid", [])
    if not points:
        return ""
    arms = {arm: LINES[index % len(LINES)] for index, arm in enumerate(sorted({point["arm"] for point in points}))}
    chart = figure_block(
        charts.sweep_chart(points, arms), f"{len(points)} settings, judged on the dev split only; the table is sweep.json."
    )
    return section("The sweep", f"<div class='charts'><div>{legend(arms.items())}{chart}</div></div>")
