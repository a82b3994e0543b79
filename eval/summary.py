"""The table a run ends with: arms, figures, paths. Also the first result, when only rules and prompted have been scored.

Run:  python -m eval.summary runs/quickstart            (verdict.json when it exists, else what has been scored so far)
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.choose import Costs, calibrated, fit_on
from eval.decisions import read_decisions
from eval.metrics import snapshot_figures
from eval.operating import MODEL_ARMS, align, make_view
from eval.run_files import RunFiles, read_json
from eval.statistics import Figure
from eval.truth import read_truths
from pmem.errors import UserError, exit_code
from pmem.threshold import Calibrator

COLUMNS: dict[str, tuple[str, int]] = {
    "auroc": ("AUROC", 3), "auprc": ("AUPRC", 3), "false_intervention_rate": ("false interv.", 3), "recall_needed": ("recall", 3),
    "hit_rate": ("hit rate", 3), "ece": ("ECE", 3), "regret": ("regret", 4), "pass_rate": ("pass rate", 3),
    "reminders_per_task": ("reminders/task", 2), "tokens_per_injection": ("tokens/injection", 0),
    "seconds_per_injection": ("seconds/injection", 2),
}  # fmt: skip
SNAPSHOTS = ("auroc", "auprc", "false_intervention_rate", "recall_needed", "hit_rate", "ece", "regret")
LIVE = ("pass_rate", "reminders_per_task", "tokens_per_injection", "seconds_per_injection")
FIRST_SPLIT = "test"
DEFAULT_COSTS = Costs(alpha=0.05, delta=0.05, cost_false=1.0, cost_missed=2.0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/quickstart"), help="folder of the run")
    files = RunFiles(parser.parse_args(argv).run)
    console = Console(file=sys.stdout, width=max(100, Console().width))
    if files.verdict.exists():
        closing(files, console)
    else:
        first_result(files, console)
    return 0


def first_result(files: RunFiles, console: Console) -> None:
    """Arms scored so far on the test split; a model arm stands at the cost threshold of a calibrator from split fit."""
    paths = files.scored_arms()
    if not paths:
        raise UserError(f"{files.run} holds no decisions yet; run `python -m eval.score arm=rules` first")
    truths = read_truths(files.snapshots, files.labels, [FIRST_SPLIT])
    rows: dict[str, dict[str, Any]] = {}
    for arm, path in paths.items():
        decisions = read_decisions(path)
        scored = {row.snapshot_id for row in decisions}
        seen = {name: truth for name, truth in truths.items() if name in scored}
        if not seen:
            continue
        calibrator = Calibrator()
        if arm in MODEL_ARMS:
            fit = {name: t for name, t in read_truths(files.snapshots, files.labels, ["fit"]).items() if name in scored}
            calibrator = fit_on(arm, fit, decisions, "sigmoid")
        aligned = align(decisions, seen, arm)
        threshold = DEFAULT_COSTS.threshold if arm in MODEL_ARMS else None
        view = make_view(arm, seen, aligned, calibrated(aligned, calibrator), threshold)
        figures = snapshot_figures(view, cost_false=DEFAULT_COSTS.cost_false, cost_missed=DEFAULT_COSTS.cost_missed)
        rows[arm] = {name: figure.as_json() for name, figure in figures.items()}
    known = [truth for truth in truths.values() if truth.known]
    need = sum(truth.need for truth in known)
    console.print(arms_table(f"First result: {len(known)} test snapshots, {need} need a reminder", rows, SNAPSHOTS[:5]))


def closing(files: RunFiles, console: Console) -> None:
    """The summary of verdict.json, its reasons and where to look."""
    verdict = read_json(files.verdict) or {}
    if not {"promoted", "reasons", "arms", "certificate"} <= set(verdict):
        raise UserError(f"{files.verdict} is no verdict; run `python -m eval.promote run={files.run}` again")
    word = "[bold green]promoted[/]" if verdict["promoted"] else "[bold red]not promoted[/]"
    live = {arm: metrics for arm, metrics in verdict["arms"].items() if metrics["pass_rate"]["value"] is not None}
    console.print(arms_table("On snapshots, 95 % intervals clustered by task", verdict["arms"], SNAPSHOTS))
    console.print(arms_table("In live trials", live, LIVE) if live else "No live trials were run.")
    for reason in verdict["reasons"]:
        console.print(f"  {'held    ' if reason['held'] else 'NOT HELD'}  {reason['rule']}", markup=False, highlight=False)
    console.print(f"{word}  {verdict['certificate']['sentence']}", highlight=False)
    console.print(
        f"report   {files.report.resolve()}\nverdict  {files.verdict.resolve()}", markup=False, highlight=False, soft_wrap=True
    )


def arms_table(title: str, arms: dict[str, dict[str, Any]], names: tuple[str, ...]) -> Table:
    """One row an arm; each cell a value with its interval beneath."""
    table = Table(title=title, title_justify="left", show_lines=False)
    table.add_column("arm", no_wrap=True)
    for name in names:
        table.add_column(COLUMNS[name][0], justify="right", no_wrap=True)
    for arm, metrics in arms.items():
        table.add_row(arm, *(cell(metrics.get(name), COLUMNS[name][1]) for name in names))
    return table


def cell(figure: dict[str, Any] | None, digits: int) -> str:
    """`0.912` over `0.871–0.944`, or a dash."""
    if not figure or figure["value"] is None:
        return "–"
    known = Figure(**figure)
    span = "" if known.ci_low is None or known.ci_high is None else f"\n{known.ci_low:.{digits}f}–{known.ci_high:.{digits}f}"
    return f"{known.value:.{digits}f}{span}"


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
