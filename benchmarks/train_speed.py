"""Our SFT and GRPO against plain TRL trainers on the same rows: tokens a second, seconds a step, peak memory.

Run:  python -m benchmarks.train_speed                       (both, 4 steps each, a few minutes on 2 cores)
      python -m benchmarks.train_speed sft rows=runs/quickstart/sft.parquet steps=8 model=.cache/base/smollm2-135m-instruct

Each trainer runs in a process of its own, so that its peak memory is its own. Speeds are over CPU seconds (all threads), which
other work on the machine hardly changes; wall seconds stand beside them. The first step is left out (it warms caches).
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pmem.config import validate
from pmem.errors import exit_code

KINDS = ("sft-ours", "sft-plain", "grpo-ours", "grpo-plain")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedConfig:
    """What is measured."""

    rows: Path = Path("runs/quickstart/sft.parquet")
    """SFT rows; the first ones of split train are used."""
    pivots: Path = Path("runs/quickstart/pivots.parquet")
    """Pivots for GRPO."""
    model: Path = Path(".cache/base/smollm2-135m-instruct")
    """Model for SFT."""
    start: Path = Path("runs/quickstart/sft")
    """SFT policy for GRPO."""
    steps: int = 4
    """Measured steps; one more warms up."""
    rows_per_batch: int = 8
    """Rows a step of SFT."""
    prompts_per_step: int = 2
    """Groups a step of GRPO, eight answers each."""


@dataclass
class Clock:
    """Counts from the end of the first step."""

    wall: float = 0.0
    cpu: float = 0.0

    def callback(self) -> Any:
        from transformers import TrainerCallback

        clock = self

        class AtFirst(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == 1:
                    clock.wall, clock.cpu = time.perf_counter(), time.process_time()

        return AtFirst()

    def result(self, steps: int) -> dict[str, float]:
        return {
            "wall_s_per_step": (time.perf_counter() - self.wall) / steps,
            "cpu_s_per_step": (time.process_time() - self.cpu) / steps,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }


def measure(kind: str, config: SpeedConfig) -> dict[str, float]:
    """Run one trainer here."""
    clock = Clock()
    trainer, tokens = (sft_trainer if kind.startswith("sft") else grpo_trainer)(config, ours=kind.endswith("ours"))
    trainer.add_callback(clock.callback())
    trainer.train()
    found = clock.result(config.steps)
    if tokens:
        found["tokens_per_cpu_s"] = tokens / (config.steps + 1) / found["cpu_s_per_step"]
    return found


def sft_trainer(config: SpeedConfig, *, ours: bool) -> tuple[Any, int]:
    """The trainer, and the tokens of the rows it will see."""
    from data.rows import WOULD_SAY, read_sft
    from train.batches import Collator
    from train.loading import load_model, load_tokenizer, train_weights
    from train.rows import check_decision, token_rows
    from train.run_state import RunState
    from train.sft import SftConfig
    from train.sft_run import trl_arguments
    from train.sft_trainer import RowTrainer
    from train.shared_prefix import common_prefix

    tokenizer = load_tokenizer(config.model)
    wanted = config.rows_per_batch * (config.steps + 1)
    rows = token_rows(
        tokenizer,
        [row for row in read_sft(config.rows) if row["split"] == "train" and row["decision"] != WOULD_SAY][:wanted],
        max_tokens=4096,
    )
    stage = SftConfig(out=Path(tempfile.mkdtemp()), rows_per_batch=config.rows_per_batch, save_every=10_000, lora_rank=0)
    arguments = trl_arguments(stage, RunState(num_steps=config.steps + 1))
    tokens = sum(row.num_tokens for row in rows)
    if ours:
        shared = common_prefix([row.prompt_ids for row in rows])
        model = train_weights(load_model(config.model, tokenizer, dtype="auto", shares_prefix=True), embeddings=False)
        made = RowTrainer(
            model,
            arguments,
            tokenizer,
            rows,
            collator=Collator(tokenizer.pad_token_id, shared),
            decision_weight=1.0,
            pair_weight=0.0,
            point=check_decision(tokenizer, config.model.name),
            share_prefix=True,
            run=RunState(num_steps=config.steps + 1),
            warmup_steps=1,
            final_lr_share=1.0,
        )
        return made, tokens
    from datasets import Dataset
    from trl import SFTTrainer

    model = train_weights(load_model(config.model, tokenizer, dtype="auto", shares_prefix=False), embeddings=False)
    labelled = [
        {
            "input_ids": [*row.prompt_ids, *row.completion_ids],
            "labels": [-100] * len(row.prompt_ids) + list(row.completion_ids),
        }
        for row in rows
    ]
    return SFTTrainer(model, arguments, train_dataset=Dataset.from_list(labelled), processing_class=tokenizer), tokens


def grpo_trainer(config: SpeedConfig, *, ours: bool) -> tuple[Any, int]:
    """The trainer; plain TRL gets the same pivots, reward, adapter and lengths."""
    from datasets import Dataset

    from data.rows import read_pivots
    from train.grpo import GrpoConfig, rendered
    from train.grpo_run import make_trainer, trl_arguments
    from train.loading import load_model, load_tokenizer, lora_config
    from train.rewards import RewardConfig, pivot_of, score
    from train.rows import check_decision
    from train.run_state import RunState

    tokenizer = load_tokenizer(config.start)
    rows = list(read_pivots(config.pivots))[: config.prompts_per_step * (config.steps + 1)]
    pivots = {row["snapshot_id"]: pivot_of(row) for row in rows}
    dataset = Dataset.from_list([{"prompt": rendered(tokenizer, row), "snapshot_id": row["snapshot_id"]} for row in rows])
    run = RunState(num_steps=config.steps + 1)
    stage = GrpoConfig(
        start=config.start,
        out=Path(tempfile.mkdtemp()),
        prompts_per_step=config.prompts_per_step,
        batches_per_step=1,
        save_every=10_000,
    )
    if ours:
        return make_trainer(stage, tokenizer, check_decision(tokenizer, str(config.start)), dataset, pivots, run), 0
    from trl import GRPOTrainer

    def composite(completions: list[str], snapshot_id: list[str], **kwargs: Any) -> list[float | None]:
        return [score(text, pivots[name], RewardConfig()).total for text, name in zip(completions, snapshot_id)]

    model = load_model(config.start, tokenizer, dtype="auto", shares_prefix=False)
    peft = lora_config(rank=stage.lora_rank, alpha=stage.lora_alpha, dropout=0.0)
    arguments = trl_arguments(stage, run)
    made = GRPOTrainer(
        model, reward_funcs=composite, args=arguments, train_dataset=dataset, processing_class=tokenizer, peft_config=peft
    )
    return made, 0


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["sft", "grpo", "both", *KINDS], default="both")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    values = {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in arguments.overrides)}
    config = validate(SpeedConfig, values, where="command line")
    if arguments.what in KINDS:
        print(json.dumps(measure(arguments.what, config)))
        return
    kinds = [kind for kind in KINDS if arguments.what == "both" or kind.startswith(arguments.what)]
    for kind in kinds:
        command = [sys.executable, "-m", "benchmarks.train_speed", kind, *arguments.overrides]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(kind, "  ".join(f"{name} {value:.3g}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
