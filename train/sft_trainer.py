"""TRL's `SFTTrainer` on rows that are already tokens: length-bucketed batches, the shared prompt computed once, our loss.

On one device the forward pass is `train.shared_prefix`; under a distributed launcher it is TRL's own (`share_prefix: false`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTConfig as TrlSftConfig
from trl import SFTTrainer

from serve.decision_tokens import DecisionPoint
from train.batches import Collator, LengthBuckets, shared_rows
from train.checkpoints import writing
from train.course import Course
from train.dev import DevScores, dev_scores
from train.head import log_masses
from train.loading import base_causal
from train.loss import sft_loss, token_log_probs
from train.rows import TokenRow
from train.run_state import RunState
from train.shared_prefix import hidden_states
from train.trained_weights import save_trained
from train.trainer_parts import LogCallback, SharedParts


class RowTrainer(SharedParts, SFTTrainer):
    """`rows` are trained as they are; `decision_weight` and `pair_weight` as in `train.loss`."""

    def __init__(
        self,
        model: Any,
        arguments: TrlSftConfig,
        tokenizer: Any,
        rows: Sequence[TokenRow],
        *,
        collator: Collator,
        decision_weight: float,
        pair_weight: float,
        point: DecisionPoint,
        share_prefix: bool,
        run: RunState,
        warmup_steps: int,
        final_lr_share: float,
        course: Sequence[Sequence[TokenRow]] = (),
        course_until: float = 0.0,
    ) -> None:
        self.lessons, self.rows, self.course_until = [list(lesson) for lesson in course], list(rows), course_until
        self.collator, self.decision_weight, self.share_prefix = collator, decision_weight, share_prefix
        self.pair_weight, self.point = pair_weight, point
        self.run, self.warmup_steps, self.final_lr_share = run, warmup_steps, final_lr_share
        columns = Dataset.from_dict({"input_ids": [[index] for index in range(len(rows))], "labels": [[0]] * len(rows)})
        arguments.dataset_kwargs = {"skip_prepare_dataset": True}
        super().__init__(model, arguments, data_collator=collator, train_dataset=columns, processing_class=tokenizer)
        self.model_accepts_loss_kwargs = False  # our loss is a mean over rows; the Trainer then averages over accumulation

    def get_train_dataloader(self) -> DataLoader:
        """Length-bucketed batches, those of the course first; accelerate splits them over processes."""
        sampler: Any = self._buckets(self.rows)
        if self.lessons:
            lessons = [self._buckets(lesson) for lesson in self.lessons]
            num_batches = self.run.most_steps * self.args.gradient_accumulation_steps
            sampler = Course(lessons, sampler, run=self.run, until=self.course_until, num_batches=num_batches)
        rows: Any = [row for part in (*self.lessons, self.rows) for row in part]
        return self.accelerator.prepare(DataLoader(rows, batch_sampler=sampler, collate_fn=self.collator))

    def _buckets(self, rows: Sequence[TokenRow]) -> LengthBuckets:
        lengths, speaks, groups = zip(*((row.num_tokens, row.speaks, row.group) for row in rows))
        return LengthBuckets(lengths, speaks, groups, batch_size=self.args.per_device_train_batch_size, seed=self.args.seed)

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The weighted loss of one batch; parts go into the log."""
        odds = None
        if self.share_prefix:
            causal = base_causal(self.model)
            head = causal.get_output_embeddings()
            hidden = hidden_states(causal.base_model, shared_rows(inputs))
            log_probs = token_log_probs(head, hidden, inputs["labels"])
            if self.pair_weight:
                at_decision = hidden[torch.arange(len(hidden), device=hidden.device), inputs["decision_index"] - 1]
                speak, silent = log_masses(head, at_decision, (self.point.speak_ids, self.point.silent_ids))
                odds = speak - silent
        else:
            taken = {key: inputs[key] for key in ("input_ids", "attention_mask", "labels")}
            shifted = model(**taken, use_cache=False, fused_lm_head=True).log_probs
            log_probs = torch.nn.functional.pad(shifted, (1, 0))
        parts = sft_loss(log_probs, inputs, self.decision_weight, self.pair_weight, odds)
        self.run.saw_batch(len(inputs["input_ids"]), parts.decision_nll)
        self.run.tokens_seen += int(inputs["attention_mask"].sum()) + len(inputs["input_ids"]) * inputs["prefix_ids"].shape[1]
        self._metrics["train"]["content_nll"].append(parts.content_nll)
        self._metrics["train"]["decision_nll"].append(parts.decision_nll)
        if odds is not None:
            self._metrics["train"]["pair_loss"].append(parts.pair_loss)
        return self.finite(parts.loss)


class DevCallback(TrainerCallback):
    """Scores dev rows now and then, keeps the best weights, stops when they no longer get better."""

    def __init__(
        self,
        run: RunState,
        log: LogCallback,
        rows: Sequence[TokenRow],
        *,
        point: DecisionPoint,
        collator: Collator,
        batch_rows: int,
        every: int,
        patience: int,
        select_by: str,
        best_folder: Path,
    ) -> None:
        self.run, self.log, self.rows, self.point, self.collator = run, log, rows, point, collator
        self.batch_rows, self.every, self.patience, self.select_by = batch_rows, every, patience, select_by
        self.best_folder = best_folder
        self._scored_step = -1

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        last = state.global_step >= self.run.num_steps
        if state.global_step % self.every and not last:
            return
        self.score(model, state.global_step)
        if self.run.num_stale >= self.patience:
            self.run.stop_reason = "early stop on dev"
            control.should_training_stop = True

    def score(self, model: Any, step: int) -> DevScores:
        """Score now; the best weights so far go to `best_folder`."""
        scores = dev_scores(model, self.rows, point=self.point, collator=self.collator, batch_rows=self.batch_rows)
        self.log.write(step, scores.as_log())
        self._scored_step = step
        value = scores.auroc if self.select_by == "auroc" else -(scores.decision_nll + scores.content_nll)
        if value > self.run.best_score and not self.run.in_course:
            self.run.best_score, self.run.best_step, self.run.num_stale = value, step, 0
            with writing(self.best_folder):
                save_trained(model, self.best_folder)
        else:
            self.run.num_stale += 1
        return scores
