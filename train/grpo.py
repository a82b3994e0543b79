"""GRPO on pivot turns: from the SFT policy to one that weighs what its reminders were measured to be worth.

Run:  python -m train.grpo configs/grpo.yaml
      python -m train.grpo configs/grpo.yaml start=runs/a/sft out=runs/a/grpo decision_gradient=sampled

Reads `pivots.parquet` (`data.pivots`) and the SFT folder; writes a model folder of the same layout. Single-turn groups on
frozen snapshots, one composite reward of measured branch values (`train.rewards`), KL to the SFT policy. Dev rows of
`sft.parquet` guard against collapse (`train.stop_rules`).
"""

import math
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data.rows import read_pivots, read_sft
from pmem.canonical import file_sha256
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.policy_file import read_policy
from pmem.prompt import PROMPT_VERSION
from train.rewards import Pivot, RewardConfig, begun_of, pivot_of
from train.rows import TokenRow, check_decision, token_rows
from train.stop_rules import StopRules


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoConfig:
    """Configuration of `train.grpo`."""

    pivots: Path = Path("runs/quickstart/pivots.parquet")
    """Pivots, written by `data.pivots`."""
    start: Path = Path("runs/quickstart/sft")
    """Model folder of the SFT policy: the start, and the reference of the KL term."""
    rows: Path | None = Path("runs/quickstart/sft.parquet")
    """SFT rows whose split dev guards the run; empty for none."""
    out: Path = Path("runs/quickstart/grpo")
    """Model folder to write."""
    seed: int = 17
    """Order of pivots, sampling, adapter initialisation."""
    lora_rank: int = 16
    """Rank of a new LoRA adapter on the SFT policy; 0 trains all weights."""
    lora_alpha: float = 32
    """Scale of the adapter: its product is multiplied by alpha / rank."""
    lora_layers: int | None = None
    """The adapter sits in this many top layers only; what lies below needs no backward pass. Empty for all layers."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Dtype that is computed in: auto is bfloat16, or float32 on a CPU that emulates it. The optimizer keeps float32 copies."""
    learning_rate: float = 2e-4
    """Peak learning rate."""
    final_lr_share: float = 0.2
    """Share of the peak learning rate at the end of the plan; the last 30 % of the steps go down to it."""
    warmup_steps: int = 3
    """Steps of linear warm-up."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    num_epochs: float = 2.0
    """Passes over the pivots, unless max_steps is set."""
    max_steps: int | None = None
    """Number of optimizer steps."""
    max_minutes: float | None = None
    """Time limit of the training loop; the plan is shortened to fit."""
    prompts_per_step: int = 8
    """Pivots in one step; fewer pivots than this are an error."""
    num_generations: int = 8
    """Answers sampled to each pivot (a group)."""
    batches_per_step: int = 4
    """A step's answers are trained on in this many passes; whole groups fit into one when it divides prompts_per_step."""
    max_completion_tokens: int = 96
    """Longest answer; a cut one is scored as malformed."""
    temperature: float = 1.0
    """Sampling temperature."""
    beta: float = 0.02
    """Weight of the KL term to the SFT policy."""
    decision_gradient: Literal["exact", "sampled"] = "exact"
    """How the decision token learns: its whole expected gradient, or from the sampled answers like every other token."""
    credit: Literal["split", "joint"] = "split"
    """Advantages of operations and of the decision apart, or one for the whole answer (needs decision_gradient sampled)."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Scale of the reward."""
    branch_snapshots: Path | None = None
    """Snapshots of the pivots: a sampled reminder that says no measured candidate is then measured by branching its simulated run. Empty:
    it earns nothing either way."""
    num_branches: int = 8
    """Branches of such a measurement."""
    stop: StopRules = field(default_factory=StopRules)
    """When to stop early."""
    drop_silent_pivots: bool = False
    """Ablation: leave out the pivots where silence is right."""
    eval_every: int = 10
    """Steps between scorings of the dev rows."""
    dev_rows: int = 100
    """At most this many dev rows are scored."""
    save_every: int = 20
    """Steps between checkpoints."""
    share_prefix: bool = True
    """Compute each prompt once for all its answers; off for several processes."""
    use_vllm: bool = False
    """Sample through vLLM (GPU machines)."""
    vllm_mode: Literal["colocate", "server"] = "colocate"
    """vLLM in this process, or a server that `vllm serve` started."""
    gradient_checkpointing: bool = False
    """Trade time for memory (with share_prefix off)."""
    max_tokens: int = 2048
    """Longest prompt with its answer."""
    keep_checkpoints: bool = False
    """Keep the checkpoints after the run has ended well."""

    def __post_init__(self) -> None:
        bounded(
            self,
            0,
            math.inf,
            "lora_rank",
            "learning_rate",
            "lora_alpha",
            "warmup_steps",
            "num_epochs",
            "max_minutes",
            "beta",
            "dev_rows",
        )
        bounded(self, 0, math.inf, "max_grad_norm", "final_lr_share")
        bounded(self, 1, math.inf, "lora_layers", "max_steps", "max_tokens", "prompts_per_step", "batches_per_step")
        bounded(self, 1, math.inf, "max_completion_tokens", "eval_every", "save_every", "num_branches")
        bounded(self, 0.01, 100, "temperature")


def run(config: GrpoConfig) -> dict[str, Any]:
    """Train and write the model folder; returns the closing figures."""
    from train.grpo_run import train_pivots
    from train.loading import load_tokenizer

    check(config)
    policy = read_policy(config.start)
    if policy.prompt_version != PROMPT_VERSION:
        raise UserError(
            f"{config.start} was trained on prompt version {policy.prompt_version}, this is {PROMPT_VERSION}; run train.sft again"
        )
    tokenizer = load_tokenizer(config.start)
    point = check_decision(tokenizer, str(config.start))
    rows = chosen_rows(config)
    prompts = {row["snapshot_id"]: rendered(tokenizer, row) for row in rows}
    longest = max(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in prompts.values())
    if longest + config.max_completion_tokens > config.max_tokens:
        raise UserError(f"{config.pivots}: the longest prompt has {longest} tokens; raise max_tokens, prompts are never cut")
    dev = dev_rows(config, tokenizer)
    hashes = {
        "pivots.parquet": file_sha256(config.pivots),
        "sft.parquet": policy.data_hashes.get("sft.parquet", ""),
        "start": policy.model_hash,
    }
    return train_pivots(
        config, policy, tokenizer, point, prompts, {row["snapshot_id"]: pivot_of(row) for row in rows}, dev, hashes
    )


def check(config: GrpoConfig) -> None:
    """Raise UserError on settings that cannot go together."""
    if config.decision_gradient == "exact" and (config.credit == "joint" or not config.share_prefix):
        raise UserError("decision_gradient=exact needs credit=split and share_prefix=true; choose decision_gradient=sampled")
    if config.share_prefix and (config.use_vllm or config.gradient_checkpointing):
        raise UserError("use_vllm and gradient_checkpointing need share_prefix=false")
    if config.num_generations < 2:
        raise UserError(f"num_generations is {config.num_generations}; a group needs at least 2 answers")
    if config.prompts_per_step * config.num_generations % config.batches_per_step:
        raise UserError("prompts_per_step * num_generations must be a multiple of batches_per_step")


def chosen_rows(config: GrpoConfig) -> list[dict[str, Any]]:
    """The pivots to train on. Raises UserError when they do not fill one step (TRL would train zero steps without a word)."""
    rows = list(read_pivots(config.pivots))
    if config.drop_silent_pivots:
        rows = [row for row in rows if _speaking_pays(pivot_of(row), config.reward)]
    if len(rows) < config.prompts_per_step:
        raise UserError(
            f"{config.pivots} holds {len(rows)} pivots, one step needs {config.prompts_per_step}; "
            "label more snapshots, or lower prompts_per_step"
        )
    return rows


def dev_rows(config: GrpoConfig, tokenizer: Any) -> list[TokenRow]:
    """Dev rows that guard the run."""
    if config.rows is None:
        return []
    rows = [row for row in read_sft(config.rows) if row["split"] == "dev"][: config.dev_rows]
    return token_rows(tokenizer, rows, max_tokens=config.max_tokens)


def rendered(tokenizer: Any, row: dict[str, Any]) -> str:
    """The prompt of a pivot as text, with the assistant's text so far."""
    from pmem.prompt import prompt_text

    messages = row["prompt_messages"]
    return prompt_text(tokenizer, tuple(messages[:2]), prefix=begun_of(messages))


def _speaking_pays(pivot: Pivot, reward: RewardConfig) -> bool:
    from train.rewards import speaking_value

    speak = speaking_value((), pivot, reward)
    return speak is not None and pivot.value_silent is not None and speak > pivot.value_silent


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    config = parse_stage(GrpoConfig, __doc__, Path("configs/grpo.yaml"))
    done = run(config)
    print(
        f"{config.out}: {done['steps']} steps in {done['minutes']:.1f} min ({done['stop_reason']}), "
        f"{done['seconds_per_step']:.1f} s a step; "
        f"speaks {done['rate_speak_first']:.0%} -> {done['rate_speak_last']:.0%}, unmapped {done['share_unmapped']:.0%}, "
        f"dev AUROC {done.get('dev_auroc_first', 'not measured')} -> {done.get('dev_auroc', 'not measured')}"
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
