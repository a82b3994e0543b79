"""What our two trainers (TRL's, subclassed) have in common: optimizer, schedule, time limit, log, checkpoints."""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pmem.errors import UserError
from train.checkpoints import writing
from train.optimizer import MasterAdamW
from train.processes import is_main
from train.run_state import RunState

CONSOLE_EVERY_S = 8.0


class SharedParts:
    """Mixed in before a TRL trainer. `run`, `warmup_steps` and `final_lr_share` are set after construction, before `train`."""

    run: RunState
    warmup_steps: int
    final_lr_share: float
    args: Any
    model: Any
    state: Any
    optimizer: Any
    lr_scheduler: Any

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW with float32 masters, over what is trained."""
        if self.optimizer is None:
            trained = [param for param in (model or self.model).parameters() if param.requires_grad]
            self.optimizer = MasterAdamW(
                trained,
                lr=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                weight_decay=self.args.weight_decay,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Warm-up and linear decay along the plan, which may shorten while it runs."""
        if self.lr_scheduler is None:

            def factor(step: int) -> float:
                return self.run.lr_factor(step, warmup_steps=self.warmup_steps, final_share=self.final_lr_share)

            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with writing(Path(self.args.output_dir)):
            super()._save_checkpoint(model, trial)  # type: ignore[misc]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        keep_dtype(self.model)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Checkpoints need no card; the model folder gets ours (`train.model_card`)."""

    def finite(self, loss: torch.Tensor) -> torch.Tensor:
        """`loss`, or a UserError when it is not a number any more."""
        if not torch.isfinite(loss):
            step, folder = self.state.global_step, self.args.output_dir
            raise UserError(
                f"the loss is {loss.item()} at step {step}; lower learning_rate and run again "
                f"(the checkpoints in {folder} are from before)"
            )
        return loss


def keep_dtype(model: Any) -> None:
    """Give the trained weights the dtype of the model again (PEFT turns a loaded or new adapter into float32)."""
    for param in model.parameters():
        if param.requires_grad:
            param.data = param.data.to(model.dtype)


PLAN_ENDS = ("plan done", "max_minutes")


class PlanCallback(TrainerCallback):
    """Stops at the end of the plan and keeps it inside `max_minutes`; marks checkpoints as whole."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self._first_step: int | None = None

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._first_step is None:
            self._first_step = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.run.fit_plan(state.global_step, state.global_step - (self._first_step or 0))
        if self.run.stop_reason in PLAN_ENDS:
            self.run.stop_reason = PLAN_ENDS[self.run.num_steps < self.run.most_steps]
        if state.global_step >= self.run.num_steps:
            control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if is_main():
            self.run.save(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")


class LogCallback(TrainerCallback):
    """One JSON line a log in `metrics.jsonl`, and a line on standard error now and then, with the time left."""

    def __init__(self, run: RunState, path: Path, *, stage: str, shown: tuple[str, ...], resumed_step: int) -> None:
        self.run, self.path, self.stage, self.shown = run, path, stage, shown
        self._last_shown = 0.0
        if is_main():
            keep_until(path, resumed_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs is None or "train_runtime" in logs:
            return
        self.write(state.global_step, {key: value for key, value in logs.items() if key not in ("epoch", "num_tokens")})

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append one line and, when it is time or the plan ends, show it (main process only)."""
        if not is_main():
            return
        seconds = self.run.seconds()
        line: dict[str, float | None] = {"step": step, "elapsed_s": round(seconds, 2), "rows": self.run.rows_seen}
        line |= {key: _plain(value) for key, value in values.items()}
        line["tokens_per_s"] = round(self.run.tokens_seen / max(seconds, 1e-9), 1)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        self.run.last.update({key: value for key, value in line.items() if value is not None})
        if time.monotonic() - self._last_shown >= CONSOLE_EVERY_S or step >= self.run.num_steps:
            self._last_shown = time.monotonic()
            self._show(step)

    def _show(self, step: int) -> None:
        left = self.run.seconds_left(step)
        parts = [f"{name} {self.run.last[name]:.4g}" for name in self.shown if self.run.last.get(name) is not None]
        clock = f"{int(left) // 60}:{int(left) % 60:02d} left"
        print(f"{self.stage} step {step}/{self.run.num_steps}  {'  '.join(parts)}  {clock}", file=sys.stderr, flush=True)


def keep_until(path: Path, step: int) -> None:
    """Drop the lines of `metrics.jsonl` after `step` (a resumed run writes them again)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or step == 0:
        path.write_text("", encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _plain(value: Any) -> float | None:
    number = float(value)
    return round(number, 6) if math.isfinite(number) else None
