"""KTO on helped and harmed answers: the cheap baseline between SFT and GRPO, on the same pivots and the same measured values.

Run:  python -m train.kto configs/grpo.yaml out=runs/quickstart/kto        (GRPO's file; the keys they share are taken)

Each pivot gives one answer a choice: silence, and every measured candidate. An answer is desirable when its value (net of its
cost) is the best of its pivot, undesirable when it falls short of the best by more than `margin`, else it is left out.
TRL's `KTOTrainer` as it is; kept for the ablation table, not for speed.
"""

import dataclasses
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.pivots import read_samples
from data.rows import read_pivots
from pmem.canonical import file_sha256
from pmem.config import bounded, check_out, load_config, stage_arguments
from pmem.envelope import render_envelope
from pmem.errors import UserError, exit_code
from pmem.policy_file import read_policy
from train.rewards import Pivot, RewardConfig, pivot_of, reminder_cost
from train.rows import check_decision


@dataclass(frozen=True, kw_only=True, slots=True)
class KtoConfig:
    """Configuration of `train.kto`."""

    pivots: Path = Path("runs/quickstart/pivots.parquet")
    """Pivots, written by `data.pivots`."""
    start: Path = Path("runs/quickstart/sft")
    """Model folder of the SFT policy."""
    samples: Path | None = None
    """Sampled answers of the SFT policy (`eval.score samples=8`): an answer has the list that the policy wrote there first; empty
    for empty lists. Pivots with plan notes hold their lists already."""
    out: Path = Path("runs/quickstart/kto")
    """Model folder to write."""
    seed: int = 17
    """Order of answers, adapter initialisation."""
    lora_rank: int = 16
    """Rank of a new LoRA adapter on the SFT policy."""
    lora_alpha: float = 32
    """Scale of the adapter."""
    learning_rate: float = 2e-4
    """Peak learning rate."""
    beta: float = 0.1
    """KTO's weight of the distance to the SFT policy."""
    margin: float = 0.05
    """An answer this much worse than the best one of its pivot is undesirable."""
    answers_per_step: int = 16
    """Answers in one optimizer step; fewer are an error."""
    num_epochs: float = 1.0
    """Passes over the answers, unless max_steps is set."""
    max_steps: int | None = None
    """Number of optimizer steps."""
    max_minutes: float | None = None
    """Time limit of the training loop."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Costs of a reminder."""

    def __post_init__(self) -> None:
        bounded(self, 0, math.inf, "learning_rate", "lora_alpha", "beta", "margin", "num_epochs", "max_minutes", "seed")
        bounded(self, 1, math.inf, "lora_rank", "answers_per_step", "max_steps")


def judged_answers(
    rows: Iterable[Mapping[str, Any]], prompts: Mapping[str, str], lists: Mapping[str, str], config: KtoConfig
) -> list[dict[str, Any]]:
    """`prompt`, `completion`, `label` of each answer worth learning from, in the order of the pivots.

    `lists` holds the list before the decision by snapshot; empty where it holds none.
    """
    answers = []
    for row in rows:
        pivot = pivot_of(row)
        values = _values(pivot, config.reward)
        best = max(values.values(), default=0.0)
        for reminder, value in values.items():
            if value >= best - 1e-9 or value < best - config.margin:
                list_text, newline, line = render_envelope((), reminder).partition("\n")
                completion = line if pivot.begun else f"{lists.get(pivot.snapshot_id, list_text)}{newline}{line}"
                answers.append({"prompt": prompts[pivot.snapshot_id], "completion": completion, "label": value >= best - 1e-9})
    return answers


def _lists(samples: Path | None) -> dict[str, str]:
    """The list of the first sample that wrote one, by snapshot."""
    written = [] if samples is None else [row for rows in read_samples(samples).values() for row in rows if row["list_text"]]
    return {row["snapshot_id"]: row["list_text"] for row in reversed(written)}


def _values(pivot: Pivot, reward: RewardConfig) -> dict[str | None, float]:
    values: dict[str | None, float] = {} if pivot.value_silent is None else {None: pivot.value_silent}
    values.update({one.text: one.value - reminder_cost(one.text, reward) for one in pivot.candidates if one.text})
    return values if len(values) > 1 else {}


def run(config: KtoConfig) -> dict[str, Any]:
    """Train and write the model folder; returns the closing figures."""
    from train.grpo import rendered
    from train.kto_run import train_answers
    from train.loading import load_tokenizer

    policy = read_policy(config.start)
    tokenizer = load_tokenizer(config.start)
    point = check_decision(tokenizer, str(config.start))
    rows = list(read_pivots(config.pivots))
    prompts = {row["snapshot_id"]: rendered(tokenizer, row) for row in rows}
    answers = judged_answers(rows, prompts, _lists(config.samples), config)
    helped = sum(answer["label"] for answer in answers)
    if len(answers) < config.answers_per_step or helped in (0, len(answers)):
        raise UserError(
            f"{config.pivots} gives {helped} desirable and {len(answers) - helped} undesirable answers, KTO needs both and "
            f"{config.answers_per_step} in all; label more snapshots"
        )
    hashes = {"pivots.parquet": file_sha256(config.pivots), "start": policy.model_hash}
    return train_answers(config, policy, tokenizer, point, answers, hashes)


def shared_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of GRPO's configuration that mean the same here."""
    return {
        key: values[key]
        for key in ("pivots", "start", "seed", "lora_rank", "lora_alpha", "max_minutes", "reward")
        if key in values
    }


def main() -> None:
    from train.grpo import GrpoConfig

    warnings.filterwarnings("ignore", category=FutureWarning)
    path, overrides = stage_arguments(__doc__, Path("configs/grpo.yaml"))
    common = shared_keys(dataclasses.asdict(load_config(GrpoConfig, path, [])))
    given = load_config(KtoConfig, None, overrides)
    named = {override.partition("=")[0].partition(".")[0] for override in overrides}
    common["reward"] = RewardConfig(**common["reward"])
    config = dataclasses.replace(given, **{key: value for key, value in common.items() if key not in named})
    check_out(config, path)
    done = run(config)
    print(f"{config.out}: KTO, {done['steps']} steps in {done['minutes']:.1f} min on {done['answers']} answers")


if __name__ == "__main__":
    sys.exit(exit_code(main))
