"""The run of `train.grpo` once its pivots are read: model, trainer, guards, resume, model folder."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig as TrlGrpoConfig

from pmem.policy_file import PolicyFile
from serve.decision_tokens import DecisionPoint
from train.batches import Collator
from train.checkpoints import checkpoint_folder, prepare, writing
from train.dev import DevScores, dev_scores
from train.grpo_trainer import PivotTrainer
from train.loading import device_name, load_model, lora_config, lora_on_top, train_weights
from train.model_card import model_card
from train.policy_folder import PolicyNotes, plain_config, prompts_learned, write_policy_folder
from train.rewards import Pivot
from train.rows import TokenRow
from train.run_state import RunState
from train.shared_prefix import common_prefix
from train.stop_rules import StopWatch
from train.trained_weights import load_trained, save_trained
from train.trainer_parts import LogCallback, PlanCallback

if TYPE_CHECKING:
    from train.grpo import GrpoConfig

SHOWN = ("reward", "rate_speak", "share_unmapped", "share_malformed", "kl", "entropy", "dev_auroc", "step_s")


def train_pivots(
    config: "GrpoConfig",
    policy: PolicyFile,
    tokenizer: Any,
    point: DecisionPoint,
    prompts: Mapping[str, str],
    pivots: Mapping[str, Pivot],
    dev: Sequence[TokenRow],
    hashes: dict[str, str],
) -> dict[str, Any]:
    """Train, keep the last weights without a breach, write the folder."""
    resumed = prepare(config.out, {"config": {key: str(value) for key, value in plain_config(config).items()}, **hashes})
    run = RunState(num_steps=planned_steps(config, len(prompts)), max_minutes=config.max_minutes)
    if resumed:
        run.load(resumed)
    dataset = Dataset.from_list([{"prompt": prompts[name], "snapshot_id": name} for name in sorted(prompts)])
    trainer = make_trainer(config, tokenizer, point, dataset, pivots, run)
    guard = watch(trainer, config, dev, point, resumed)
    if not resumed:
        guard.score(trainer.model, 0)
    trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    if (guard.folder / "trained.safetensors").exists() and run.stop_reason not in ("plan done", "max_minutes"):
        load_trained(trainer.model, guard.folder)
    final = guard.score(trainer.model, trainer.state.global_step)
    return write(config, policy, trainer, tokenizer, point, run, guard.first, final, hashes, len(prompts))


def planned_steps(config: "GrpoConfig", num_pivots: int) -> int:
    """Steps of the whole plan, before any time limit; a step is one batch of pivots."""
    if config.max_steps is not None:
        return config.max_steps
    return max(1, math.floor(num_pivots / config.prompts_per_step) * math.ceil(config.num_epochs))


def make_trainer(
    config: "GrpoConfig", tokenizer: Any, point: DecisionPoint, dataset: Dataset, pivots: Mapping[str, Pivot], run: RunState
) -> PivotTrainer:
    """The trainer on the SFT policy."""
    model = load_model(config.start, tokenizer, dtype=config.dtype, shares_prefix=config.share_prefix)
    if config.lora_rank == 0:
        model = train_weights(model, embeddings=False)
    return PivotTrainer(
        model,
        trl_arguments(config, run),
        tokenizer,
        dataset,
        pivots,
        rewards=config.reward,
        point=point,
        credit=config.credit,
        decision_gradient=config.decision_gradient,
        share_prefix=config.share_prefix,
        peft_config=adapter(config, model) if config.lora_rank else None,
        run=run,
        warmup_steps=config.warmup_steps,
        final_lr_share=config.final_lr_share,
        measure=live_values(config, pivots),
    )


def live_values(config: "GrpoConfig", pivots: Mapping[str, Pivot]) -> Callable[[str, str], float | None] | None:
    """What measures a reminder that no label measured, where the snapshots are named."""
    if config.branch_snapshots is None:
        return None
    from data.live_values import LiveValues

    return LiveValues(config.branch_snapshots, pivots.keys(), num_branches=config.num_branches).value


def adapter(config: "GrpoConfig", model: Any) -> Any:
    """The new adapter, on all layers or the top ones."""
    if config.lora_layers is None:
        return lora_config(rank=config.lora_rank, alpha=config.lora_alpha, dropout=0.0)
    return lora_on_top(model, config.lora_layers, rank=config.lora_rank, alpha=config.lora_alpha, dropout=0.0)


def trl_arguments(config: "GrpoConfig", run: RunState) -> TrlGrpoConfig:
    """TRL's configuration: no scaling by the group's spread, no length bias, truncation scored and not masked."""
    num_answers = config.prompts_per_step * config.num_generations
    return TrlGrpoConfig(
        output_dir=str(checkpoint_folder(config.out)),
        max_steps=run.num_steps,
        per_device_train_batch_size=num_answers // config.batches_per_step,
        gradient_accumulation_steps=config.batches_per_step,
        num_generations=config.num_generations,
        max_completion_length=config.max_completion_tokens,
        temperature=config.temperature,
        beta=config.beta,
        loss_type="dr_grpo",
        scale_rewards="none",
        mask_truncated_completions=False,
        learning_rate=config.learning_rate,
        adam_beta2=0.99,
        max_grad_norm=config.max_grad_norm,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_steps=config.save_every,
        save_total_limit=2,
        seed=config.seed,
        data_seed=config.seed,
        use_cpu=device_name() == "cpu",
        bf16=False,
        use_vllm=config.use_vllm,
        vllm_mode=config.vllm_mode,
        gradient_checkpointing=config.gradient_checkpointing,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=device_name() != "cpu",
        log_completions=False,
    )


class Guard(TrainerCallback):
    """Stop rules on every log and on dev scorings; keeps the weights of the last scoring without a breach."""

    def __init__(
        self,
        run: RunState,
        log: LogCallback,
        stopwatch: StopWatch,
        dev: Sequence[TokenRow],
        point: DecisionPoint,
        collator: Collator | None,
        every: int,
        folder: Path,
    ) -> None:
        self.run, self.log, self.stopwatch, self.dev, self.point, self.collator = run, log, stopwatch, dev, point, collator
        self.every, self.folder = every, folder
        self.first: DevScores | None = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "rate_speak" in logs and (reason := self.stopwatch.broken_by_log(logs)):
            self._stop(control, reason)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if state.global_step % self.every:
            return
        scores = self.score(model, state.global_step)
        reason = self.stopwatch.broken_by_dev(scores.false_rate) if scores else None
        if reason:
            self._stop(control, reason)
            return
        with writing(self.folder):
            save_trained(model, self.folder)
        self.run.best_step = state.global_step

    def score(self, model: Any, step: int) -> DevScores | None:
        """Score the dev rows, if there are any."""
        if not self.dev or self.collator is None:
            return None
        scores = dev_scores(model, self.dev, point=self.point, collator=self.collator, batch_rows=16)
        self.log.write(step, scores.as_log())
        if self.first is None:
            self.first = scores
            self.stopwatch.broken_by_dev(scores.false_rate)
        return scores

    def _stop(self, control: TrainerControl, reason: str) -> None:
        self.run.stop_reason = reason
        control.should_training_stop = True


def watch(
    trainer: PivotTrainer, config: "GrpoConfig", dev: Sequence[TokenRow], point: DecisionPoint, resumed: Path | None
) -> Guard:
    """Hang log, guard and plan onto the trainer."""
    trainer.remove_callback(PrinterCallback)
    step = int(resumed.name.rpartition("-")[2]) if resumed else 0
    log = LogCallback(trainer.run, config.out / "metrics.jsonl", stage="grpo", shown=SHOWN, resumed_step=step)
    num_shared = common_prefix([row.prompt_ids for row in dev]) if dev and config.share_prefix else 0
    collator = Collator(trainer.tokenizer.pad_token_id, num_shared) if dev else None
    folder = checkpoint_folder(config.out) / "good"
    guard = Guard(trainer.run, log, StopWatch(config.stop), dev, point, collator, config.eval_every, folder)
    trainer.add_callback(log)
    trainer.add_callback(guard)
    trainer.add_callback(PlanCallback(trainer.run))
    return guard


def write(
    config: "GrpoConfig",
    policy: PolicyFile,
    trainer: PivotTrainer,
    tokenizer: Any,
    point: DecisionPoint,
    run: RunState,
    first: DevScores | None,
    final: DevScores | None,
    hashes: dict[str, str],
    num_pivots: int,
) -> dict[str, Any]:
    """The model folder and the closing figures."""
    steps = trainer.state.global_step
    dev = {name: value for name, value in (final.as_log() if final else {}).items() if math.isfinite(value)}
    start = {f"{name}_first": value for name, value in (first.as_log() if first else {}).items() if math.isfinite(value)}
    logs = [line for line in trainer.state.log_history if "rate_speak" in line]
    done = {
        "steps": steps,
        "planned_steps": run.num_steps,
        "minutes": run.seconds() / 60,
        "seconds_per_step": run.seconds() / max(steps, 1),
        "stop_reason": run.stop_reason,
        "rate_speak_first": mean(logs[:8], "rate_speak"),
        "rate_speak_last": mean(logs[-8:], "rate_speak"),
        "share_unmapped": mean(logs, "share_unmapped"),
        "reward_first": mean(logs[:8], "reward"),
        "reward_last": mean(logs[-8:], "reward"),
        **start,
        **dev,
    }
    facts = [
        f"{num_pivots} pivots, groups of {config.num_generations}, {steps} steps of {config.prompts_per_step} groups",
        f"reward {done['reward_first']:.3f} -> {done['reward_last']:.3f}, speaks in {done['rate_speak_first']:.0%} -> "
        f"{done['rate_speak_last']:.0%} of the answers, {done['share_unmapped']:.0%} matched nothing measured",
        f"decision gradient {config.decision_gradient}, KL weight {config.beta:g}, seed {config.seed}, end: {run.stop_reason}",
    ]
    notes = PolicyNotes(
        base=policy.base,
        config={**plain_config(config), **prompts_learned(policy), "stage": "grpo"},
        data_hashes=hashes,
        seeds={"train": config.seed, **{f"sft_{name}": seed for name, seed in policy.seeds.items()}},
        card=model_card("pmem memory policy, SFT + GRPO", stage="grpo", base=policy.base, facts=facts, dev=start | dev),
        extra_config={"run": done},
    )
    write_policy_folder(config.out, trainer.model, tokenizer, point, notes)
    if not config.keep_checkpoints:
        shutil.rmtree(checkpoint_folder(config.out), ignore_errors=True)
    return done


def mean(logs: Sequence[Mapping[str, float]], name: str) -> float:
    """Mean of one figure over logs that hold it; 0 for none."""
    values = [line[name] for line in logs if name in line]
    return sum(values) / len(values) if values else 0.0
