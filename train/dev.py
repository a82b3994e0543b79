"""How well the model decides on dev rows, read at the decision token as serving reads it; early stopping goes by it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from serve.decision_tokens import DecisionPoint
from train.batches import Collator, shared_rows
from train.head import log_masses
from train.loading import base_causal
from train.loss import sft_loss, token_log_probs
from train.processes import num_processes
from train.rows import TokenRow
from train.shared_prefix import hidden_states


@dataclass(frozen=True, slots=True, kw_only=True)
class DevScores:
    """`auroc` is NaN when the dev rows hold one kind of decision only. `false_rate`, `recall`: speaking at p > 1/2 where silence,
    where a reminder is right. `*_nll`: natural logarithm, per row."""

    auroc: float
    decision_nll: float
    content_nll: float
    label_mass: float
    speak_rate: float
    false_rate: float
    recall: float

    def as_log(self) -> dict[str, float]:
        return {f"dev_{name}": getattr(self, name) for name in self.__slots__}


def dev_scores(model: Any, rows: Sequence[TokenRow], *, point: DecisionPoint, collator: Collator, batch_rows: int) -> DevScores:
    """Score `rows` with the gold list as prefix. The model's training mode is restored."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(rows)), key=lambda index: rows[index].num_tokens)
    probs, masses, content, decision = [0.0] * len(rows), 0.0, 0.0, 0.0
    try:
        for start in range(0, len(order), batch_rows):
            picked = order[start : start + batch_rows]
            batch = {key: value.to(model.device) for key, value in collator([rows[index] for index in picked]).items()}
            speak, silent, part = _score_batch(model, batch, point)
            for index, prob in zip(picked, torch.sigmoid(speak - silent).tolist()):
                probs[index] = prob
            masses += float(torch.logaddexp(speak, silent).exp().sum())
            content += part.content_nll * len(picked)
            decision += part.decision_nll * len(picked)
    finally:
        model.train(was_training)
    return DevScores(
        auroc=auroc(probs, [row.speaks for row in rows]),
        decision_nll=decision / len(rows),
        content_nll=content / len(rows),
        label_mass=masses / len(rows),
        speak_rate=sum(prob > 0.5 for prob in probs) / len(rows),
        false_rate=_rate(probs, [not row.speaks for row in rows]),
        recall=_rate(probs, [row.speaks for row in rows]),
    )


@torch.no_grad()
def _score_batch(model: Any, batch: dict[str, torch.Tensor], point: DecisionPoint) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Log masses (rows,) of speaking and of silence at the decision token, and the parts of the loss."""
    if num_processes() > 1:  # sharded weights are whole only inside the model's own forward pass
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        hidden, head = logits, torch.nn.Identity()
    else:
        causal = base_causal(model)
        hidden, head = hidden_states(causal.base_model, shared_rows(batch)), causal.get_output_embeddings()
    at_decision = hidden[torch.arange(len(hidden), device=hidden.device), batch["decision_index"] - 1]
    speak, silent = log_masses(head, at_decision, (point.speak_ids, point.silent_ids))
    return speak, silent, sft_loss(token_log_probs(head, hidden, batch["labels"]), batch, 1.0)


def _rate(probs: Sequence[float], among: Sequence[bool]) -> float:
    """Share of the rows `among` at which the model would speak at one half; NaN for none."""
    picked = [prob > 0.5 for prob, wanted in zip(probs, among) if wanted]
    return sum(picked) / len(picked) if picked else math.nan


def auroc(scores: Sequence[float], positives: Sequence[bool]) -> float:
    """Probability that a positive scores above a negative, ties one half (Mann-Whitney); NaN without both kinds."""
    num_positive = sum(positives)
    num_negative = len(positives) - num_positive
    if not num_positive or not num_negative:
        return math.nan
    order = sorted(range(len(scores)), key=lambda index: scores[index])
    rank_sum, start = 0.0, 0
    while start < len(order):
        end = start
        while end < len(order) and scores[order[end]] == scores[order[start]]:
            end += 1
        rank_sum += (start + end + 1) / 2 * sum(positives[order[at]] for at in range(start, end))
        start = end
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)
