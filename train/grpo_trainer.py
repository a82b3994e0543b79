"""TRL's `GRPOTrainer` on pivots: siblings share their prompt's computation, credit goes to the part of the answer that earned it.

Only where advantages and log-probabilities are made is anything changed; loss, clipping, KL and schedule of groups are TRL's.
With `decision_gradient: exact` the decision token gets its whole expected gradient instead of a sampled one:

    loss_decision = -( p V_speak + (1 - p) V_silent ),   p = P(speak) at the decision token of each sampled list

since it is one token with two measured values (all-action policy gradient); V_speak is the group's mean over measured reminders.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from serve.decision_tokens import DecisionPoint
from train.credit import Span, joint_advantages, split_advantages
from train.head import log_masses, log_probs_of
from train.loading import base_causal
from train.rewards import Pivot, RewardConfig, Score, score, speaking_value
from train.run_state import RunState
from train.sampling import sample_siblings
from train.shared_prefix import SharedRows, hidden_states
from train.spans import span_of
from train.trainer_parts import SharedParts, keep_dtype

KINDS = ("malformed", "uncited", "silent", "mapped", "unmapped")


def _is_news(record: logging.LogRecord) -> bool:
    """An unmeasured answer has no reward, on purpose; TRL prints its whole prompt as a warning (`share_unmapped` counts it)."""
    return not record.getMessage().startswith("All reward functions returned None")


logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_news)


class PivotTrainer(SharedParts, GRPOTrainer):
    """`pivots` by snapshot id; the data set holds `prompt` (rendered text) and `snapshot_id`."""

    _buffered_inputs: Any
    num_generations: int
    num_generations_eval: int
    max_completion_length: int

    def __init__(
        self,
        model: Any,
        arguments: GRPOConfig,
        tokenizer: Any,
        dataset: Dataset,
        pivots: Mapping[str, Pivot],
        *,
        rewards: RewardConfig,
        point: DecisionPoint,
        credit: str,
        decision_gradient: str,
        share_prefix: bool,
        peft_config: Any,
        run: RunState,
        warmup_steps: int,
        final_lr_share: float,
        measure: Callable[[str, str], float | None] | None = None,
    ) -> None:
        self.pivots, self.rewards, self.point, self.measure = pivots, rewards, point, measure
        self.credit, self.exact, self.share_prefix = credit, decision_gradient == "exact", share_prefix
        self.run, self.warmup_steps, self.final_lr_share = run, warmup_steps, final_lr_share
        self.tokenizer = tokenizer
        self._scores: list[Score] = []
        self._decisions: torch.Tensor | None = None
        self._log_odds: torch.Tensor | None = None
        super().__init__(
            model,
            reward_funcs=self.composite_reward,
            args=arguments,
            train_dataset=dataset,
            processing_class=tokenizer,
            peft_config=peft_config,
        )
        keep_dtype(self.model)

    def composite_reward(
        self, completions: Sequence[str], completion_ids: Sequence[Sequence[int]], snapshot_id: Sequence[str], **kwargs: Any
    ) -> list[float | None]:
        """TRL's reward function: one total an answer, None where nothing measured matches."""
        self._scores = [
            score(text, self.pivots[name], self.rewards, truncated=ids[-1] not in self.eos_token_ids, measure=self.measure)
            for text, ids, name in zip(completions, completion_ids, snapshot_id, strict=True)
        ]
        mode = "train" if self.model.training else "eval"
        for kind in KINDS:
            share = sum(one.kind == kind for one in self._scores) / len(self._scores)
            self._metrics[mode][f"share_{kind}"].append(share)
        spoken = {text for text, one in zip(completions, self._scores) if one.kind in ("mapped", "unmapped", "uncited")}
        num_spoken = sum(one.kind in ("mapped", "unmapped", "uncited") for one in self._scores)
        self._metrics[mode]["rate_speak"].append(num_spoken / len(self._scores))
        self._metrics[mode]["unique_reminders"].append(len(spoken) / num_spoken if num_spoken else 1.0)
        return [one.total for one in self._scores]

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        """Prompts are rendered by `pmem.prompt` already; special tokens stand in the text."""
        return self.tokenizer(prompts, add_special_tokens=False)["input_ids"], None, {}

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], None]:
        """Sample siblings here, each prompt computed once; through vLLM when it is on."""
        if self.use_vllm or not self.share_prefix:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, has_tool_images)
        answers = sample_siblings(
            base_causal(self.model),
            self.tokenizer,
            prompt_ids[::num_generations],
            num_siblings=num_generations,
            max_tokens=self.max_completion_length,
            temperature=self.temperature,
            seed=self.args.seed * 100_003 + self.state.global_step,
        )
        return answers, None

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """As TRL's, without shuffling a step's answers over its passes: siblings stay together and share their prompt."""
        if not self.model.training:
            return self._generate_and_score_completions(generation_batch)
        place = self._step % self.args.steps_per_generation
        if place == 0 or self._buffered_inputs is None:
            answers = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(answers, self.args.steps_per_generation)
        return self._buffered_inputs[place]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        ids, mask = output["completion_ids"], output["completion_mask"]
        spans = [span_of(self.tokenizer, row[keep.bool()].tolist(), self.point, decides_only=bool(self.pivots[one["snapshot_id"]].begun))
                 for row, keep, one in zip(ids, mask, inputs)]  # fmt: skip
        size = self.num_generations if self.model.training else self.num_generations_eval
        groups = [range(start, start + size) for start in range(0, len(ids), size)]
        advantages = torch.cat([self._group_advantages([self._scores[row] for row in rows], [spans[row] for row in rows],
                                                       ids.shape[1]) for rows in groups])  # fmt: skip
        output["advantages"] = advantages.to(ids.device)
        if self.exact:
            margins = [self._margin(inputs[rows[0]]["snapshot_id"], [self._scores[row] for row in rows]) for rows in groups]
            usable = [spans[row].decision is not None for row in range(len(ids))]
            output["decision_index"] = torch.tensor([span.decision or 0 for span in spans], device=ids.device)
            output["decision_margin"] = torch.tensor(
                [margins[row // size] if usable[row] else 0.0 for row in range(len(ids))], device=ids.device
            )
        return output

    def _group_advantages(self, scores: Sequence[Score], spans: Sequence[Span], length: int) -> torch.Tensor:
        if self.credit == "joint":
            return joint_advantages(scores, length)
        return split_advantages(scores, spans, length, exact=self.exact)

    def _margin(self, snapshot_id: str, scores: Sequence[Score]) -> float:
        """V_speak - V_silent at a pivot, 0 where one of them was not measured."""
        pivot = self.pivots[snapshot_id]
        speak = speaking_value(scores, pivot, self.rewards)
        return 0.0 if speak is None or pivot.value_silent is None else speak - pivot.value_silent

    def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        self._decisions = inputs.get("decision_index")
        loss = super()._compute_loss(model, inputs)
        self.run.rows_seen += len(inputs["completion_ids"])
        self.run.tokens_seen += int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum())
        if self.exact and self._log_odds is not None:
            expected = torch.sigmoid(self._log_odds) * inputs["decision_margin"]
            scale = self.max_completion_length * self.current_gradient_accumulation_steps  # as dr_grpo scales a token
            loss = loss - expected.mean() / scale
            self._metrics["train"]["margin_gained"].append(float(expected.mean().detach()))
        self._decisions = None
        return self.finite(loss)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """As TRL's, with every distinct prompt computed once; also reads the decision's log-odds where they are wanted."""
        wants_odds = self._decisions is not None and torch.is_grad_enabled()
        if not self.share_prefix and not wants_odds:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **kwargs
            )
        causal = base_causal(model)
        head = causal.get_output_embeddings()
        mask = attention_mask[:, -logits_to_keep:].bool()
        longest = max(1, int(mask.sum(dim=1).max()))
        cut = input_ids.shape[1] - logits_to_keep + longest
        used = mask[:, :longest]
        hidden = hidden_states(causal.base_model, split_prompts(input_ids[:, :cut], attention_mask[:, :cut], longest))[:, :-1]
        chosen, entropies = log_probs_of(
            head, hidden[used], input_ids[:, cut - longest : cut][used], temperature=self.temperature, entropy=compute_entropy
        )
        if wants_odds:
            assert self._decisions is not None
            at_decision = hidden[torch.arange(len(hidden), device=hidden.device), self._decisions]
            speak, silent = log_masses(head, at_decision, (self.point.speak_ids, self.point.silent_ids))
            self._log_odds = speak - silent
        log_probs = chosen.new_zeros(mask.shape).masked_scatter(mask, chosen)
        spread = None if entropies is None else entropies.new_zeros(mask.shape).masked_scatter(mask, entropies)
        return log_probs, spread, None


def split_prompts(input_ids: torch.Tensor, attention_mask: torch.Tensor, num_completion: int) -> SharedRows:
    """Distinct prompts but for their last token, which opens each row (it predicts the first completion token)."""
    cut = input_ids.shape[1] - num_completion - 1
    keyed = torch.cat((input_ids[:, :cut], attention_mask[:, :cut]), dim=1)
    distinct, owner = torch.unique(keyed, dim=0, return_inverse=True)
    return SharedRows(distinct[:, :cut], distinct[:, cut:], owner, input_ids[:, cut:], attention_mask[:, cut:])
