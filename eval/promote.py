"""The verdict: may this policy speak? Every rule held or not with its figure, all arms side by side, and one HTML file to read.

Run:  python -m eval.promote                                (configs/promote.yaml, seconds)
      python -m eval.promote candidate=sft exit_code=true   (exit 1 when it is not promoted, for a pipeline)
Reads decisions/*.parquet, threshold.json, sweep.json and ab.json of the run; writes verdict.json, figures.json and report.html.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.splits import SPLITS
from eval.against_truth import truth_figures
from eval.conduct import citation_figures, residual_figures, time_figures
from eval.curves import confidence_and_failure, histogram, net_benefit_curve, reliability, risk_curve
from eval.evidence import Evidence, gather
from eval.metrics import (
    LIVE_METRICS,
    METRICS,
    harm_rate,
    outcome_shares,
    snapshot_figures,
    speak_rate,
    unmatched_share,
)
from eval.operating import View
from eval.other_runs import other_run_figures
from eval.promotion import Judged, Policy, judge
from eval.report import write_report
from eval.slices import slice_rows
from eval.statistics import NOT_MEASURED, Figure, augrc, bootstrap, murphy, spiegelhalter
from pmem.atomic import write_text
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class PromoteConfig:
    """Who stands for promotion, on which split, by which rules."""

    run: Path = Path("runs/quickstart")
    """Folder of the run."""
    candidate: str = "sft_grpo"
    """Arm that stands for promotion."""
    split: str = "test"
    """Split of the figures in verdict.json."""
    also: tuple[str, ...] = ("heldout",)
    """Further splits reported beside it; no certificate is claimed there."""
    others: dict[str, Path] = field(default_factory=dict)
    """Name -> folder with snapshots, labels and decisions of this run's models elsewhere: imported rollouts, other agents' decisions."""
    rules: Policy = field(default_factory=Policy)
    """The rules of promotion, one line each."""
    exit_code: bool = False
    """Exit with 1 when the candidate is not promoted."""
    price_per_million: tuple[float, float] | None = None
    """Price of a million input and output tokens of the memory model, for the cost of an injection; null: not priced."""
    num_examples: int = 10
    """Example decisions shown in full."""
    seed: int = 17
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        bounded(self, 0, math.inf, "seed", "num_examples", "price_per_million")
        if unknown := sorted({self.split, *self.also} - set(SPLITS)):
            raise UserError(f"unknown split {unknown[0]!r}; known are {', '.join(SPLITS)}")


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(PromoteConfig, __doc__, Path("configs/promote.yaml"), argv)
    evidence = gather(config.run, config.candidate, (config.split, *config.also))
    judged = judge(config.rules, evidence, config.split, config.seed)
    verdict = make_verdict(config, evidence, judged)
    figures = make_figures(config, evidence)
    write_text(evidence.files.verdict, json.dumps(verdict, indent=1, ensure_ascii=False) + "\n")
    write_text(evidence.files.figures, json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    write_report(evidence.files.report, verdict, figures, evidence, config.split, config.num_examples)
    for rule in judged:
        print(f"  {'held    ' if rule.held else 'NOT HELD'}  {rule.rule}{_shown(rule)}")
    print(f"promote: {headline(verdict)} {evidence.files.verdict} and {evidence.files.report}")
    return 1 if config.exit_code and not verdict["promoted"] else 0


def make_verdict(config: PromoteConfig, evidence: Evidence, judged: Sequence[Judged]) -> dict[str, Any]:
    """The content of verdict.json (keys: docs/design/files.md)."""
    views = evidence.views[config.split]
    live = (evidence.ab or {}).get("arms", {})
    arms = {}
    for arm in dict.fromkeys((*views, *live)):
        figures = arm_figures(views.get(arm), evidence, config.seed)
        figures.update({name: _from_json(live.get(arm, {}).get("figures", {}).get(name)) for name in LIVE_METRICS})
        arms[arm] = {name: figures.get(name, NOT_MEASURED).as_json() for name in METRICS}
    found = evidence.sweep.get("arms", {}).get(config.candidate, {})
    return {
        "promoted": all(rule.held for rule in judged),
        "reasons": [rule.as_json() for rule in judged],
        "arms": arms,
        "certificate": {
            **evidence.threshold.model_dump(
                include={"certified", "threshold", "alpha", "delta", "num_units", "unit", "loss", "model_hash", "prompt_version"}
            ),
            "split_intact": evidence.split_intact,
            "sentence": found.get("sentence", ""),
        },
        "hashes": evidence.hashes,
        "seeds": {"bootstrap": config.seed, "ab": (evidence.ab or {}).get("config", {}).get("seed")},
        "commands": commands(config, evidence),
    }  # fmt: skip


def arm_figures(view: View | None, evidence: Evidence, seed: int) -> dict[str, Figure]:
    """The snapshot metrics of one arm, empty when it was not scored on the split."""
    if view is None:
        return {}
    threshold = evidence.threshold
    return snapshot_figures(view, cost_false=threshold.cost_false or 1.0, cost_missed=threshold.cost_missed or 1.0, seed=seed)


def make_figures(config: PromoteConfig, evidence: Evidence) -> dict[str, Any]:
    """Everything else the report shows, in figures.json."""
    candidate = evidence.views[config.split][config.candidate]
    known = candidate.known()
    threshold = evidence.threshold.threshold
    z, p_value = spiegelhalter(known.prob[known.prob == known.prob], known.need[known.prob == known.prob])
    return {
        "format": "pmem.figures/1",
        "candidate": config.candidate,
        "split": config.split,
        "counts": {split: counts(evidence, split) for split in evidence.truths},
        "outcomes": {
            arm: {name: figure.as_json() for name, figure in outcome_shares(view, seed=config.seed).items()}
            for arm, view in evidence.views[config.split].items() if arm in evidence.files.scored_arms()
        },
        "more": {arm: more(view, config.seed) for arm, view in evidence.views[config.split].items()},
        "also": {
            split: {
                arm: {name: figure.as_json() for name, figure in arm_figures(view, evidence, config.seed).items()}
                for arm, view in evidence.views[split].items()
            }
            for split in config.also if split in evidence.views and evidence.views[split][config.candidate].known().need.any()
        },
        "others": other_run_figures(config.others, evidence, seed=config.seed),
        "calibration": {
            "murphy": murphy(known.score, known.need), "spiegelhalter_z": z, "spiegelhalter_p": p_value,
            "reliability": reliability(candidate, seed=config.seed), "histogram": histogram(candidate),
        },
        "selectivity": {
            "risk_coverage": risk_curve(candidate, threshold),
            "augrc": bootstrap(augrc(*confidence_and_failure(known, threshold)), known.tasks, seed=config.seed).as_json(),
        },
        "net_benefit": {arm: net_benefit_curve(view) for arm, view in evidence.views[config.split].items()},
        "truth": {
            split: {
                arm: {name: figure.as_json() for name, figure in figures.items()}
                for arm, view in views.items()
                if arm in evidence.files.scored_arms() and (figures := truth_figures(view, seed=config.seed))
            }
            for split, views in evidence.views.items()
            if split in (config.split, *config.also)
        },
        "slices": slice_rows(candidate, seed=config.seed),
        "time": {
            arm: {name: figure.as_json() for name, figure in time_figures(view, seed=config.seed).items()}
            for arm, view in evidence.views[config.split].items() if arm in evidence.files.scored_arms()
        },
        "citations": {name: figure.as_json() for name, figure in citation_figures(candidate, seed=config.seed).items()},
        "residual": residual_figures(candidate, seed=config.seed),
        "price": list(config.price_per_million) if config.price_per_million else None,
        "reasons_off": [name for name in Policy.__dataclass_fields__ if getattr(config.rules, name) is None],
    }  # fmt: skip


def more(view: View, seed: int) -> dict[str, Any]:
    """Figures beside the named metrics."""
    known = view.known()
    figures = {
        "speak_rate": speak_rate(view, seed=seed), "harm_rate": harm_rate(known, seed=seed),
        "unmatched_share": unmatched_share(known, seed=seed),
    }  # fmt: skip
    return {name: figure.as_json() for name, figure in figures.items()}


def counts(evidence: Evidence, split: str) -> dict[str, Any]:
    """Snapshots, episodes, tasks, verdicts, label kinds and label noise of a split."""
    truths = list(evidence.truths[split].values())
    view = evidence.view(evidence.candidate, split)
    errors = [c.std_error for truth in truths for c in truth.candidates if c.std_error is not None]
    return {
        "snapshots": len(truths), "scored": len(view) if view else 0, "episodes": len({t.episode for t in truths}), "tasks": len({t.task for t in truths}),
        "need": sum(t.need for t in truths), "not_needed": sum(t.known and not t.need for t in truths),
        "unknown": sum(not t.known for t in truths), "need_true": sum(bool(t.need_true) for t in truths),
        "label_kinds": {kind: sum(t.label_kind == kind for t in truths) for kind in sorted({t.label_kind for t in truths})},
        "mean_std_error": sum(errors) / len(errors) if errors else None,
    }  # fmt: skip


def commands(config: PromoteConfig, evidence: Evidence) -> list[str]:
    """What makes the figures again from the run's snapshots and labels."""
    run = f"run={config.run}"
    scores = [f"python -m eval.score arm={arm} {run}" for arm in evidence.files.scored_arms()]
    rest = [f"python -m eval.{stage} candidate={config.candidate} {run}" for stage in ("sweep", "ab", "promote")]
    return [*scores, *rest]


def headline(verdict: dict[str, Any]) -> str:
    """The first line of everything: promoted or not, and why."""
    failed = [reason["rule"].partition(":")[0] for reason in verdict["reasons"] if not reason["held"]]
    return "promoted: every rule holds." if not failed else f"not promoted, because of {', '.join(failed)}."


def _from_json(value: dict[str, Any] | None) -> Figure:
    return Figure(**value) if value else NOT_MEASURED


def _shown(rule: Judged) -> str:
    if rule.figure is None:
        return ""
    interval = f" [{rule.interval[0]:.3f}, {rule.interval[1]:.3f}]" if rule.interval else ""
    return f" -> {rule.figure:.3f}{interval}"


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
