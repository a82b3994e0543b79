"""The run of `train.kto`: TRL's trainer on judged answers, then the model folder."""

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PrinterCallback
from trl import KTOConfig as TrlKtoConfig
from trl import KTOTrainer

from pmem.policy_file import PolicyFile
from serve.decision_tokens import DecisionPoint
from train.checkpoints import checkpoint_folder
from train.loading import device_name, load_model, lora_config
from train.model_card import model_card
from train.policy_folder import PolicyNotes, plain_config, prompts_learned, write_policy_folder
from train.run_state import RunState
from train.trainer_parts import LogCallback, PlanCallback, SharedParts, keep_dtype

if TYPE_CHECKING:
    from train.kto import KtoConfig

ROWS_PER_PASS = 4


class AnswerTrainer(SharedParts, KTOTrainer):
    """KTO with our optimizer and schedule."""


def train_answers(
    config: "KtoConfig",
    policy: PolicyFile,
    tokenizer: Any,
    point: DecisionPoint,
    answers: Sequence[dict[str, Any]],
    hashes: dict[str, str],
) -> dict[str, Any]:
    """Train and write the folder."""
    planned = config.max_steps or max(1, round(len(answers) * config.num_epochs / config.answers_per_step))
    run = RunState(num_steps=planned, max_minutes=config.max_minutes)
    model = load_model(config.start, tokenizer, dtype="auto", shares_prefix=False)
    trainer = AnswerTrainer(
        model,
        args=trl_arguments(config, planned),
        train_dataset=Dataset.from_list(list(answers)).shuffle(seed=config.seed),
        processing_class=tokenizer,
        peft_config=lora_config(rank=config.lora_rank, alpha=config.lora_alpha, dropout=0.0),
    )
    keep_dtype(trainer.model)
    trainer.run, trainer.warmup_steps, trainer.final_lr_share = run, 3, 0.2
    trainer.remove_callback(PrinterCallback)
    shown = ("loss", "kl", "rewards/chosen", "rewards/rejected")
    trainer.add_callback(LogCallback(run, config.out / "metrics.jsonl", stage="kto", shown=shown, resumed_step=0))
    trainer.add_callback(PlanCallback(run))
    trainer.train()
    done = {
        "steps": trainer.state.global_step,
        "minutes": run.seconds() / 60,
        "answers": len(answers),
        "stop_reason": run.stop_reason,
    }
    helped = sum(answer["label"] for answer in answers)
    facts = [f"{helped} desirable and {len(answers) - helped} undesirable answers, {done['steps']} steps, seed {config.seed}"]
    notes = PolicyNotes(
        base=policy.base,
        config={**plain_config(config), **prompts_learned(policy), "stage": "kto"},
        data_hashes=hashes,
        seeds={"train": config.seed},
        card=model_card("pmem memory policy, SFT + KTO", stage="kto", base=policy.base, facts=facts, dev={}),
        extra_config={"run": done},
    )
    write_policy_folder(config.out, trainer.model, tokenizer, point, notes)
    shutil.rmtree(checkpoint_folder(config.out), ignore_errors=True)
    return done


def trl_arguments(config: "KtoConfig", planned: int) -> TrlKtoConfig:
    """TRL's configuration."""
    return TrlKtoConfig(
        output_dir=str(checkpoint_folder(config.out)),
        max_steps=planned,
        per_device_train_batch_size=ROWS_PER_PASS,
        gradient_accumulation_steps=max(1, config.answers_per_step // ROWS_PER_PASS),
        learning_rate=config.learning_rate,
        adam_beta2=0.99,
        beta=config.beta,
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        seed=config.seed,
        use_cpu=device_name() == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=device_name() != "cpu",
    )
