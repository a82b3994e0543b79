"""Supervised fine-tuning: rows of `sft.parquet` -> a model that answers with the envelope and decides when to speak.

Run:  python -m train.sft configs/sft.yaml
      python -m train.sft configs/sft.yaml rows=runs/a/sft.parquet out=runs/a/sft lora_rank=0 seed=18

Reads `sft.parquet` (splits train and dev), writes a model folder: merged weights, tokenizer, template, adapter/ when LoRA,
policy.json, metrics.jsonl, README.md. A stopped run goes on from its last whole checkpoint when started again the same way.
"""

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data.rows import lesson_file, read_lesson, read_sft
from pmem.canonical import file_sha256
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.policy_file import model_hash
from train.processes import is_main, num_processes
from train.rows import TokenRow, check_decision, token_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """Configuration of `train.sft`."""

    rows: Path = Path("runs/quickstart/sft.parquet")
    """SFT rows, written by `data.build`."""
    out: Path = Path("runs/quickstart/sft")
    """Model folder to write."""
    base: str | None = None
    """Base model: empty for SmolLM2-135M-Instruct, a hub id, or a folder."""
    seed: int = 17
    """Order of rows, adapter initialisation, dropout."""
    lora_rank: int = 32
    """Rank of the LoRA adapter on all linear layers; 0 trains all weights."""
    lora_alpha: float = 32
    """Scale of the adapter: its product is multiplied by alpha / rank."""
    lora_dropout: float = 0.0
    """Dropout on the adapter's input."""
    train_embeddings: bool = False
    """With lora_rank 0: also train the embedding and the head."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Dtype that is computed in: auto is bfloat16, or float32 on a CPU that emulates it. The optimizer keeps float32 copies."""
    learning_rate: float = 5e-4
    """Peak learning rate (about 5e-4 for LoRA, 2e-4 for all weights)."""
    final_lr_share: float = 0.1
    """Share of the peak learning rate at the end of the plan; the last 30 % of the steps go down to it."""
    warmup_steps: int = 10
    """Steps of linear warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    num_epochs: float = 3.0
    """Passes over the train rows, unless max_steps is set."""
    max_steps: int | None = None
    """Number of optimizer steps."""
    max_minutes: float | None = None
    """Time limit of the training loop, earlier sessions of a resumed run included; the plan is shortened to fit."""
    rows_per_batch: int = 8
    """Rows in one forward pass on one device."""
    batches_per_step: int = 1
    """Forward passes in one optimizer step."""
    course: tuple[int, ...] = ()
    """Bank sizes of the lessons trained first, easiest first; `data.build` with the same setting writes their rows."""
    course_until: float = 0.45
    """A lesson is over when its mean decision loss falls below this (0.69 is a guess), or its rows are used up."""
    decision_weight: float = 1.0
    """Weight of the decision token against the mean of the row's other completion tokens."""
    pair_weight: float = 0.0
    """Weight of the comparison of speaking with silent rows of a batch (with share_prefix)."""
    speak_share: float | None = None
    """Share of all decision weight that speaking rows carry; empty leaves the data's own balance."""
    max_tokens: int = 2048
    """A row longer than this is an error; rows are never cut."""
    eval_every: int = 25
    """Steps between scorings of the dev rows."""
    dev_rows: int = 100
    """At most this many dev rows are scored (the first by row id)."""
    patience: int = 1000
    """Stop after this many scorings without a better one."""
    select_by: Literal["auroc", "loss"] = "loss"
    """What makes one step's weights better than another's: AUROC of the dev decisions, or the dev loss."""
    save_every: int = 50
    """Steps between checkpoints."""
    log_every: int = 1
    """Steps between lines of metrics.jsonl."""
    share_prefix: bool = True
    """Compute the prompt tokens that all rows share once; off for several processes and for models with recurrent layers."""
    gradient_checkpointing: bool = False
    """Trade time for memory (with share_prefix off)."""
    keep_checkpoints: bool = False
    """Keep the checkpoints after the run has ended well."""

    def __post_init__(self) -> None:
        bounded(self, 0, math.inf, "learning_rate", "lora_rank", "lora_alpha", "warmup_steps", "weight_decay", "num_epochs")
        bounded(self, 0, math.inf, "max_minutes", "decision_weight", "pair_weight", "max_grad_norm", "dev_rows")
        bounded(self, 1, math.inf, "rows_per_batch", "batches_per_step", "eval_every", "save_every", "log_every")
        bounded(self, 1, math.inf, "max_steps", "max_tokens", "course", "patience")
        bounded(self, 0, math.inf, "course_until", "dev_rows")
        bounded(self, 0, 1, "final_lr_share", "lora_dropout")
        bounded(self, 0, 2**32 - 1, "seed")


def run(config: SftConfig) -> dict[str, Any]:
    """Train and write the model folder; returns the closing figures."""
    from train.base import resolve_base
    from train.loading import load_tokenizer
    from train.policy_folder import plain_config
    from train.sft_run import train_rows

    _check(config)
    base = resolve_base(config.base)
    tokenizer = load_tokenizer(base)
    point = check_decision(tokenizer, config.base or base.name)
    rows = list(read_sft(config.rows))
    train = token_rows(tokenizer, [row for row in rows if row["split"] == "train"], max_tokens=config.max_tokens)
    course = [token_rows(tokenizer, list(read_lesson(config.rows, size)), max_tokens=config.max_tokens) for size in config.course]
    dev = token_rows(tokenizer, [row for row in rows if row["split"] == "dev"][: config.dev_rows], max_tokens=config.max_tokens)
    check_rows(train, dev, config)
    if is_main():
        report_rows(train, dev, config)
    if num_processes() > 1 and config.share_prefix:
        raise UserError("share_prefix=true works in one process; set share_prefix=false for accelerate launch")
    fingerprint = {
        "config": {
            key: str(value) for key, value in plain_config(config).items() if key not in ("max_minutes", "keep_checkpoints")
        },
        "rows": file_sha256(config.rows),
        "base": model_hash(base),
        "course": [file_sha256(lesson_file(config.rows, size)) for size in config.course],
    }
    return train_rows(config, base, tokenizer, point, train, dev, course, fingerprint)


def check_rows(train: Sequence[TokenRow], dev: Sequence[TokenRow], config: SftConfig) -> None:
    """Raise UserError when there is nothing to learn from."""
    if not train:
        raise UserError(f"{config.rows} holds no row of split 'train'; write it again with data.build from labelled snapshots")
    speaking = sum(row.speaks for row in train)
    if speaking in (0, len(train)):
        kind = "reminder" if speaking else "silence"
        raise UserError(
            f"{config.rows}: every train row decides {kind!r}, so there is no decision to learn; label more snapshots"
        )
    if not dev:
        print(f"note: {config.rows} holds no row of split 'dev'; no early stop, the last step is kept", file=sys.stderr)


def report_rows(train: Sequence[TokenRow], dev: Sequence[TokenRow], config: SftConfig) -> None:
    """Counts, balance and lengths, before anything is trained."""
    from train.batches import decision_weights

    speaking = sum(row.speaks for row in train) / len(train)
    silent_weight, speak_weight = decision_weights(train, config.speak_share)
    prompts = sorted(len(row.prompt_ids) for row in train)
    completions = sum(len(row.completion_ids) for row in train) / len(train)
    print(
        f"{len(train)} train rows ({speaking:.0%} speak, decision weights silent {silent_weight:.2f} speak {speak_weight:.2f}), "
        f"{len(dev)} dev rows; prompt tokens mean {sum(prompts) / len(prompts):.0f} max {prompts[-1]}, "
        f"completion mean {completions:.0f}",
        file=sys.stderr,
        flush=True,
    )


def _check(config: SftConfig) -> None:
    if config.share_prefix and config.gradient_checkpointing:
        raise UserError("gradient_checkpointing needs share_prefix=false: a recomputed layer cannot see the shared keys")
    if config.pair_weight and not config.share_prefix:
        raise UserError("pair_weight needs share_prefix=true: other forward passes do not give the log-odds; set it to 0")
    if config.speak_share is not None and not 0 < config.speak_share < 1:
        raise UserError(f"speak_share is {config.speak_share}; it must lie between 0 and 1")


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    config = parse_stage(SftConfig, __doc__, Path("configs/sft.yaml"))
    done = run(config)
    if not is_main():
        return
    print(
        f"{config.out}: {done['steps']} steps in {done['minutes']:.1f} min ({done['stop_reason']}), "
        f"best dev at step {done['best_step']}: AUROC {done['dev_auroc']}, {done['tokens_per_s']:.0f} tokens/s"
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
