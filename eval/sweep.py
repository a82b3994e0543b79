"""Calibrate each model arm, choose and certify its threshold, and sweep the settings that need no new scoring.

Run:  python -m eval.sweep                                  (configs/sweep.yaml, seconds from saved decisions)
      python -m eval.sweep candidate=sft alpha=0.1 run=runs/mine
Reads decisions/*.parquet, snapshots.parquet and labels.parquet of the run. Writes threshold.json (the candidate's, bound to
its model and prompt), thresholds/<arm>.json for the other model arms, and sweep.json (certificates in words, the grid as one
table).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data.tables import metadata
from eval.calibrate import Method
from eval.certify import make_grid
from eval.choose import Chosen, Costs, choose, one_model, only_scored, split_hash
from eval.decisions import Decision, read_decisions
from eval.grid import GridAxes, Scored, sweep_points
from eval.operating import MODEL_ARMS
from eval.run_files import RunFiles
from eval.truth import Truth, read_truths
from pmem.atomic import write_text
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.threshold import write_threshold


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig:
    """Which arms, at what price, with which guarantee."""

    run: Path = Path("runs/quickstart")
    """Folder of the run."""
    candidate: str = "sft_grpo"
    """Arm whose threshold becomes threshold.json."""
    alpha: float = 0.05
    """Largest false-intervention rate that is acceptable."""
    delta: float = 0.05
    """Probability with which the certificate may be wrong."""
    cost_false: float = 1.0
    """Cost of speaking when silence was right."""
    cost_missed: float = 2.0
    """Cost of silence when a reminder was needed, in the same unit."""
    calibrator: Method = "sigmoid"
    """sigmoid, temperature, isotonic (more than 1,000 rows) or none."""
    grid_points: int = 99
    """Thresholds tried by the certificate, from 0.99 down to 0.01; fixed before any data is seen."""
    seed: int = 17
    """Draws the one snapshot of each episode when there are fewer than 200 episodes."""
    grid: GridAxes = field(default_factory=GridAxes)
    """Axes of the sweep."""
    out: Path | None = None
    """Where the candidate's threshold goes; default <run>/threshold.json."""

    def __post_init__(self) -> None:
        bounded(self, 0, math.inf, "cost_false", "cost_missed", "seed")
        bounded(self, 0, 1, "alpha", "delta")
        bounded(self, 1, 10_000, "grid_points")


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(SweepConfig, __doc__, Path("configs/sweep.yaml"), argv)
    files = RunFiles(config.run)
    files.check_out(config.out or files.threshold, files.threshold)
    arms = read_model_arms(files, config.candidate)
    scored = {**{Scored(arm): rows for arm, rows in arms.items()}, **read_variants(files, arms)}
    config.grid.size(len(scored))
    grid = make_grid(config.grid_points)
    splits = {name: read_truths(files.snapshots, files.labels, [name]) for name in ("fit", "certify", "dev")}
    costs = Costs(alpha=config.alpha, delta=config.delta, cost_false=config.cost_false, cost_missed=config.cost_missed)
    chosen = {arm: choose_named(arm, rows, splits, costs, config) for arm, rows in arms.items()}
    for arm, found in chosen.items():
        target = (config.out or files.threshold) if arm == config.candidate else files.arm_threshold(arm)
        write_threshold(target, found.threshold)
    swept = {shown: rows for shown, rows in scored.items() if only_scored(splits["dev"], rows)}
    points = list(
        sweep_points(
            swept, splits["fit"], splits["dev"], config.grid, cost_false=config.cost_false, delta=config.delta, grid=grid
        )
    )
    write_text(files.sweep, json.dumps(table(chosen, splits, points), indent=1, ensure_ascii=False) + "\n")
    best = chosen[config.candidate]
    print(f"sweep: {config.candidate} speaks from {best.threshold.threshold:.3f} up; {best.sentence} "
          f"{len(points)} grid points in {files.sweep}")  # fmt: skip
    return 0


def read_model_arms(files: RunFiles, candidate: str) -> dict[str, list[Decision]]:
    """Decisions of every scored arm that has a model. Raises UserError when the candidate is not among them."""
    paths = {arm: path for arm, path in files.scored_arms().items() if arm in MODEL_ARMS}
    if candidate not in MODEL_ARMS:
        raise UserError(f"candidate {candidate!r} has no threshold; choose one of {', '.join(sorted(MODEL_ARMS))}")
    if candidate not in paths:
        raise UserError(f"{files.decisions(candidate)} does not exist; run `python -m eval.score arm={candidate}` first")
    arms = {arm: read_decisions(path) for arm, path in paths.items()}
    for arm, rows in arms.items():
        one_model(rows, str(paths[arm]))
    return arms


def read_variants(files: RunFiles, arms: dict[str, list[Decision]]) -> dict[Scored, list[Decision]]:
    """Decisions of the arms under other windows and bank budgets. Raises UserError when they are another model's."""
    found = {}
    for arm, rows in arms.items():
        for path in files.variants(arm):
            decisions, facts = read_decisions(path), metadata(path)
            if one_model(decisions, str(path)) != one_model(rows, str(files.decisions(arm))):
                raise UserError(
                    f"{path} was made by another model or prompt than {files.decisions(arm)}; score it again or delete it"
                )
            shown = {name: int(facts[name]) for name in ("trajectory_steps", "bank_budget_tokens") if name in facts}
            found[Scored(arm, **shown)] = decisions
    return found


def choose_named(
    arm: str, rows: Sequence[Decision], splits: dict[str, dict[str, Truth]], costs: Costs, config: SweepConfig
) -> Chosen:
    """`choose` on what was scored, with the arm's name in front of what went wrong. The candidate must have been scored on
    certify.
    """
    seen = {name: only_scored(truths, rows) for name, truths in splits.items()}
    if arm == config.candidate and not seen["certify"]:
        raise UserError(f"arm {arm} was never scored on split certify; run `python -m eval.score run={config.run} arm={arm}`")
    try:
        return choose(
            arm, rows, seen, costs, method=config.calibrator, grid=make_grid(config.grid_points), seed=config.seed,
            certify_hash=split_hash(splits["certify"]),
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"arm {arm}: {error}") from None


def table(chosen: dict[str, Chosen], splits: dict[str, dict[str, Truth]], points: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of sweep.json."""
    return {
        "format": "pmem.sweep/1",
        "splits": {
            name: {
                "snapshots": len(truths),
                "need": sum(truth.need for truth in truths.values()),
                "unknown": sum(not truth.known for truth in truths.values()),
                "episodes": len({truth.episode for truth in truths.values()}),
            }
            for name, truths in splits.items()
        },
        "arms": {
            arm: {
                "threshold": found.threshold.threshold,
                "certified": found.threshold.certified,
                "cost_threshold": found.cost_threshold,
                "dev_threshold": found.dev_threshold,
                "certificate": asdict(found.certificate) if found.certificate else None,
                "sentence": found.sentence,
            }
            for arm, found in chosen.items()
        },
        "grid": points,
    }


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
