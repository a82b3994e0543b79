"""Does an arm cite what it should? Expected entry ids a case against the ids cited, over the same frozen candidates.

Run:  python -m eval.selection                              (configs/selection.yaml: cases from the run's own labels, split test)
      python -m eval.selection cases=my_cases.jsonl         (your own: JSON lines {"snapshot_id", "family", "expected_ids":
      [...]})
      python -m eval.selection cases=lessons.jsonl          (of `pmem lessons case`: which lessons to keep, eval/lesson_selection.py)
Expected are the citations of the best measured candidate where a reminder is needed, and nothing where silence is right.
Printed and written to selection.json: exact-set correctness, precision, recall of ids, latency and tokens, for each arm and
family, with intervals.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval import lesson_selection
from eval.choose import calibrated, only_scored
from eval.decisions import Decision, read_decisions
from eval.operating import MODEL_ARMS, align, at_threshold
from eval.run_files import RunFiles
from eval.selection_figures import Case, Kept, family_table
from eval.statistics import Figure
from eval.truth import Truth, read_truths
from pmem.atomic import write_text
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.threshold import Threshold


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionConfig:
    """Which cases."""

    run: Path = Path("runs/quickstart")
    """Folder of the run."""
    split: str = "test"
    """Split whose labels become cases."""
    cases: Path | None = None
    """Your own cases over snapshots of the run, instead of the labels'."""
    candidate: str = "sft_grpo"
    """Arm whose threshold is threshold.json."""
    kept: Path | None = None
    """Cases of lessons only: what another selector kept, as JSON lines {"case_id", "kept_ids": [...]}."""
    settings: Path | None = None
    """Cases of lessons only: settings of the runtime whose route is asked as a further arm."""
    seed: int = 17
    """Of the bootstrap."""


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(SelectionConfig, __doc__, Path("configs/selection.yaml"), argv)
    if config.cases and not config.cases.is_file():
        raise UserError(f"cases: {config.cases} is not a file; name a file with one case a line")
    if config.cases and lesson_selection.holds_lesson_cases(config.cases):
        return lesson_selection.run(config.cases, kept=config.kept, settings=config.settings, seed=config.seed)
    files = RunFiles(config.run)
    truths = read_truths(files.snapshots, files.labels, [config.split])
    cases = read_cases(config.cases, truths) if config.cases else cases_from(truths)
    arms = {}
    known = {case.snapshot_id: truths[case.snapshot_id] for case in cases}
    for arm, path in files.scored_arms().items():
        rows = operating_rows(files, arm, read_decisions(path), known, config)
        if rows:
            arms[arm] = arm_table(cases, rows, config.seed)
    if not arms:
        raise UserError(f"{config.run}: no arm was scored on split {config.split}; run `python -m eval.score arm=rules` first")
    write_text(config.run / "selection.json", json.dumps({"format": "pmem.selection/1", "arms": arms}, indent=1) + "\n")
    for arm, families in arms.items():
        every = families["all"]
        shown = ", ".join(f"{name} {Figure(**every[name]).text()}" for name in ("exact", "precision", "recall"))
        print(f"  {arm}: {shown}")
    citing = sum(bool(case.expected) for case in cases)
    print(f"selection: {len(cases)} cases, {citing} with something to cite; {config.run / 'selection.json'}")
    return 0


def cases_from(truths: dict[str, Truth]) -> list[Case]:
    """Cases of the known snapshots."""
    cases = []
    for truth in truths.values():
        if not truth.known:
            continue
        measured = [candidate for candidate in truth.candidates if candidate.advantage is not None]
        best = max(measured, key=lambda candidate: candidate.advantage or 0.0, default=None)
        expected = frozenset(best.cited_ids) if truth.need and best is not None else frozenset()
        cases.append(Case(truth.snapshot_id, truth.task, truth.family, expected))
    return cases


def read_cases(path: Path, truths: dict[str, Truth]) -> list[Case]:
    """A person's own cases. Raises UserError with file and line."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            value = json.loads(line)
            if value["snapshot_id"] not in truths:
                raise UserError(
                    f"{path} line {number}: snapshot {value['snapshot_id']!r} is none of the labelled ones of the split; "
                    "take ids of the run's snapshots.parquet, or name another split="
                )
            truth = truths[value["snapshot_id"]]
            cases.append(Case(truth.snapshot_id, truth.task, value.get("family", truth.family), frozenset(value["expected_ids"])))
        except json.JSONDecodeError:
            raise UserError(f"{path} line {number}: not valid JSON") from None
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} line {number}: {error} is missing; write snapshot_id and expected_ids") from None
    if not cases:
        raise UserError(f"{path} holds no cases")
    return cases


def operating_rows(
    files: RunFiles, arm: str, decisions: Sequence[Decision], truths: dict[str, Truth], config: SelectionConfig
) -> dict[str, Decision]:
    """The arm's decisions at its threshold, by snapshot."""
    seen = only_scored(truths, decisions)
    rows = align(decisions, seen, arm) if seen else []
    path = files.threshold if arm == config.candidate else files.arm_threshold(arm)
    if arm in MODEL_ARMS and path.exists():
        threshold = Threshold.model_validate_json(path.read_text(encoding="utf-8"))
        probs = calibrated(rows, threshold.calibrator)
        rows = [at_threshold(row, prob, threshold.threshold) for row, prob in zip(rows, probs)]
    return {row.snapshot_id: row for row in rows}


def arm_table(cases: Sequence[Case], rows: dict[str, Decision], seed: int) -> dict[str, Any]:
    """Figures over all cases and for each family."""
    return family_table([(case, Kept.of(rows[case.snapshot_id])) for case in cases if case.snapshot_id in rows], seed)


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
