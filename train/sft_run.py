"""The run of `train.sft` once its rows are tokens: model, trainer, resume, best weights, model folder."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trl import SFTConfig as TrlSftConfig

from data.rows import shown_in
from pmem.errors import UserError
from serve.decision_tokens import DecisionPoint
from train.base import base_name
from train.batches import Collator, decision_weights
from train.checkpoints import checkpoint_folder, prepare
from train.dev import DevScores, dev_scores
from train.loading import device_name, load_model, train_weights, with_lora
from train.model_card import model_card
from train.policy_folder import PolicyNotes, plain_config, write_policy_folder
from train.processes import is_main, main_first, num_processes
from train.rows import TokenRow
from train.run_state import RunState
from train.sft_trainer import DevCallback, RowTrainer
from train.shared_prefix import common_prefix
from train.trained_weights import load_trained, save_trained
from train.trainer_parts import LogCallback, PlanCallback

if TYPE_CHECKING:
    from train.sft import SftConfig

SHOWN = ("loss", "decision_nll", "pair_loss", "dev_auroc", "dev_decision_nll", "tokens_per_s")


def train_rows(
    config: "SftConfig",
    base: Path,
    tokenizer: Any,
    point: DecisionPoint,
    train: Sequence[TokenRow],
    dev: Sequence[TokenRow],
    course: Sequence[Sequence[TokenRow]],
    fingerprint: dict[str, Any],
) -> dict[str, Any]:
    """Train, keep the best step, write the folder."""
    in_course = [row for lesson in course for row in lesson]
    num_shared = common_prefix([row.prompt_ids for row in (*train, *dev, *in_course)]) if config.share_prefix else 0
    collator = Collator(tokenizer.pad_token_id, num_shared, decision_weights(train, config.speak_share))
    with main_first():
        resumed = prepare(config.out, fingerprint)
    num_steps = planned_steps(config, len(train), len(in_course))
    run = RunState(num_steps=num_steps, max_minutes=config.max_minutes, num_lessons=len(course))
    if resumed:
        run.load(resumed)
    model = trained_model(config, base, tokenizer)
    trainer = RowTrainer(
        model,
        trl_arguments(config, run),
        tokenizer,
        train,
        collator=collator,
        decision_weight=config.decision_weight,
        pair_weight=config.pair_weight,
        point=point,
        share_prefix=config.share_prefix,
        run=run,
        course=course,
        course_until=config.course_until,
        warmup_steps=config.warmup_steps,
        final_lr_share=config.final_lr_share,
    )
    watch(trainer, config, dev, point, collator, resumed)
    trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    best = checkpoint_folder(config.out) / "best"
    if not best.exists():
        save_trained(trainer.model, best)
    with main_first():
        if num_processes() > 1:
            model = trained_model(config, base, tokenizer)
        load_trained(model, best)
    scores = dev_scores(model, dev, point=point, collator=collator, batch_rows=config.rows_per_batch * 2) if dev else None
    return write(config, model, tokenizer, point, run, scores, fingerprint, trainer.state.global_step, train)


def planned_steps(config: "SftConfig", num_rows: int, in_course: int = 0) -> int:
    """Steps of the whole plan, before any time limit."""
    if config.max_steps is not None:
        return config.max_steps
    return max(1, math.ceil((in_course + num_rows * config.num_epochs) / (config.rows_per_batch * config.batches_per_step)))


def trained_model(config: "SftConfig", base: Path, tokenizer: Any) -> Any:
    """The base model with what is trained switched on."""
    model = load_model(base, tokenizer, dtype=config.dtype, shares_prefix=config.share_prefix)
    if config.lora_rank == 0:
        return train_weights(model, embeddings=config.train_embeddings)
    return with_lora(model, rank=config.lora_rank, alpha=config.lora_alpha, dropout=config.lora_dropout, seed=config.seed)


def trl_arguments(config: "SftConfig", run: RunState) -> TrlSftConfig:
    """TRL's configuration. Checkpoints go into `out/checkpoints`; logs and evaluation are ours."""
    return TrlSftConfig(
        output_dir=str(checkpoint_folder(config.out)),
        max_steps=run.num_steps,
        per_device_train_batch_size=config.rows_per_batch,
        gradient_accumulation_steps=config.batches_per_step,
        learning_rate=config.learning_rate,
        adam_beta2=0.99,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        logging_steps=config.log_every,
        logging_nan_inf_filter=False,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=config.seed,
        data_seed=config.seed,
        use_cpu=device_name() == "cpu",
        bf16=False,
        gradient_checkpointing=config.gradient_checkpointing,
        max_length=None,
        packing=False,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=device_name() != "cpu",
    )


def watch(
    trainer: RowTrainer,
    config: "SftConfig",
    dev: Sequence[TokenRow],
    point: DecisionPoint,
    collator: Collator,
    resumed: Path | None,
) -> None:
    """Hang log, dev scoring and plan onto the trainer, in the order in which they must run."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    step = int(resumed.name.rpartition("-")[2]) if resumed else 0
    log = LogCallback(trainer.run, config.out / "metrics.jsonl", stage="sft", shown=SHOWN, resumed_step=step)
    trainer.add_callback(log)
    trainer.add_callback(PlanCallback(trainer.run))
    if dev:
        trainer.add_callback(
            DevCallback(
                trainer.run,
                log,
                dev,
                point=point,
                collator=collator,
                batch_rows=config.rows_per_batch * 2,
                every=config.eval_every,
                patience=config.patience,
                select_by=config.select_by,
                best_folder=checkpoint_folder(config.out) / "best",
            )
        )


def write(
    config: "SftConfig",
    model: Any,
    tokenizer: Any,
    point: DecisionPoint,
    run: RunState,
    scores: DevScores | None,
    fingerprint: dict[str, Any],
    steps: int,
    train: Sequence[TokenRow],
) -> dict[str, Any]:
    """The model folder and the closing figures."""
    if not all(bool(torch.isfinite(param).all()) for param in model.parameters() if param.requires_grad):
        raise UserError("the trained weights are not finite; lower learning_rate and run again")
    dev = {name: value for name, value in (scores.as_log() if scores else {}).items() if math.isfinite(value)}
    done = {
        "steps": steps,
        "planned_steps": run.num_steps,
        "minutes": run.seconds() / 60,
        "stop_reason": run.stop_reason,
        "best_step": run.best_step or steps,
        "tokens_per_s": run.tokens_seen / max(run.seconds(), 1e-9),
        "rows_seen": run.rows_seen,
        "speak_share_of_rows": sum(row.speaks for row in train) / len(train),
        **dev,
    }
    name = base_name(config.base)
    facts = [
        f"{len(train)} rows, {done['speak_share_of_rows']:.0%} of them reminders; {run.rows_seen} rows seen in {steps} steps",
        "all weights" if config.lora_rank == 0 else f"LoRA rank {config.lora_rank} on all linear layers, merged",
        f"seed {config.seed}, learning rate {config.learning_rate:g}, step {done['best_step']} kept, {done['minutes']:.1f} min",
    ]
    notes = PolicyNotes(
        base=name,
        config={**plain_config(config), **shown_in(config.rows), "stage": "sft"},
        data_hashes={"sft.parquet": fingerprint["rows"], "base": fingerprint["base"]},
        seeds={"train": config.seed},
        card=model_card("pmem memory policy, SFT", stage="sft", base=name, facts=facts, dev=dev),
        extra_config={"run": done},
    )
    if not is_main():
        return done
    write_policy_folder(config.out, model, tokenizer, point, notes)
    if not config.keep_checkpoints:
        shutil.rmtree(checkpoint_folder(config.out), ignore_errors=True)
    return {"dev_auroc": "not measured", **done}
