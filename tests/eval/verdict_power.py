"""How often the verdict is right: whole runs of known truth, certified, tried live and judged by every rule of promotion.

    python -m tests.eval.verdict_power 100            # repetitions a kind of policy; about 1 s each

`harmful`: says the wrong thing, and the agent passes 10 points less with it. `random`: its probability knows nothing and it helps
nobody. `good`: ranks well, says the right thing, and the agent passes 10 points more; it is tried on the number of pairs that
80 % power asks for. `better than never` is then demanded wherever the observed discordance gives that power.
"""

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from eval.ab import AbConfig
from eval.ab import summary as ab_summary
from eval.choose import Costs
from eval.evidence import gather
from eval.live import TrialResult
from eval.paired import pairs_needed
from eval.promotion import Judged, Policy, judge
from eval.run_files import RunFiles
from eval.sweep import SweepConfig, choose_named, read_model_arms
from eval.truth import read_truths
from pmem.atomic import write_text
from pmem.threshold import write_threshold
from tests.eval.synthetic import World, make_run

LIFT = 0.10
"""True difference of pass rates, up or down."""
DISCORDANT = 0.20
"""Share of the pairs that end differently."""
PAIRS = pairs_needed(LIFT, DISCORDANT)
EPISODES = {"dev": 10, "fit": 40, "certify": 80, "test": 80}


@dataclass(frozen=True)
class Kind:
    """A policy of known worth."""

    separation: float
    good_text: float
    lift: float


KINDS = {
    "harmful": Kind(separation=4.0, good_text=0.0, lift=-LIFT),
    "random": Kind(separation=0.0, good_text=0.9, lift=0.0),
    "good": Kind(separation=4.0, good_text=0.95, lift=LIFT),
}


def one_verdict(kind: Kind, seed: int, folder: Path) -> list[Judged]:
    """A run from labels to judged rules, through the code of sweep and promote."""
    world = World(episodes=EPISODES, turns=8, separation={"sft_grpo": kind.separation}, good_text=kind.good_text)
    files = RunFiles(make_run(folder, world, seed))
    config = SweepConfig(run=folder)
    splits = {name: read_truths(files.snapshots, files.labels, [name]) for name in ("fit", "certify", "dev")}
    costs = Costs(alpha=config.alpha, delta=config.delta, cost_false=config.cost_false, cost_missed=config.cost_missed)
    rows = read_model_arms(files, config.candidate)[config.candidate]
    write_threshold(files.threshold, choose_named(config.candidate, rows, splits, costs, config).threshold)
    write_text(files.ab, _ab_json(kind, seed))
    return judge(Policy(), gather(folder, config.candidate, ["test"]), "test", seed)


def rates(kind: str, repetitions: int) -> tuple[int, Counter[str]]:
    """How many of the repetitions were promoted, and which rules refused the others."""
    promoted, refused = 0, Counter[str]()
    for seed in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            judged = one_verdict(KINDS[kind], 1_000 * len(kind) + seed, Path(folder))
        promoted += all(rule.held for rule in judged)
        refused.update(rule.rule.partition(":")[0] for rule in judged if not rule.held)
    return promoted, refused


def _ab_json(kind: Kind, seed: int) -> str:
    """Matched trials drawn pair by pair: helped, harmed or equal."""
    import json

    generator = np.random.default_rng(seed)
    helped, harmed = (DISCORDANT + kind.lift) / 2, (DISCORDANT - kind.lift) / 2
    fates = generator.choice(3, size=PAIRS, p=[helped, harmed, 1 - DISCORDANT])
    equal = generator.random(PAIRS) < 0.5
    base = np.where(fates == 0, False, np.where(fates == 1, True, equal))
    mine = np.where(fates == 0, True, np.where(fates == 1, False, equal))
    results = {arm: [_trial(arm, index, bool(won)) for index, won in enumerate(wins)]
               for arm, wins in {"never": base, "rules": base, "sft_grpo": mine}.items()}  # fmt: skip
    return json.dumps(ab_summary(AbConfig(), results))


def _trial(arm: str, index: int, success: bool) -> TrialResult:
    talks = int(arm == "sft_grpo")
    return TrialResult(
        family="git", seed=index, agent="weak", agent_seed=index, success=success, score=float(success), num_acts=16,
        num_boundaries=8, num_reminders=talks * (index % 2), num_annotations=0, num_cited=talks * (index % 2), num_rows=8 * talks,
        tokens_in=2000 * talks, tokens_out=100 * talks, model_ms=900.0 * talks, outcomes={},
    )  # fmt: skip


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"{PAIRS} pairs, true difference {LIFT:+.0%} or {-LIFT:+.0%}, {DISCORDANT:.0%} discordant, {repetitions} runs a kind")
    for kind in KINDS:
        promoted, refused = rates(kind, repetitions)
        low, high = binomtest(promoted, repetitions).proportion_ci()
        share = f"{promoted / repetitions:.1%} [{low:.1%}, {high:.1%}]"
        print(f"{kind:8s} promoted {promoted}/{repetitions} = {share}; refused by {dict(refused.most_common(5))}", flush=True)


if __name__ == "__main__":
    main()
