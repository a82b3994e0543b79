"""The SFT loss: completion tokens only, with the vocabulary projection computed only there.

    loss = mean over rows of  w_row * ( mean over the other completion tokens of -log p  +  decision_weight * -log p(decision) )

The decision is one token of a few dozen; a term of its own keeps it from drowning in the others, whatever the row's length.
"""

from dataclasses import dataclass
from typing import Any

import torch

from train.batches import IGNORED
from train.head import log_probs_of


@dataclass(frozen=True, slots=True)
class SftLoss:
    """`loss` carries the gradient; the two parts are plain means over rows, for the log."""

    loss: torch.Tensor
    content_nll: float
    decision_nll: float


def token_log_probs(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probability of each label `(rows, length)`, 0 where it is ignored; `hidden` of position t predicts label t + 1.

    Only positions with a label go through `head`.
    """
    targets = labels[:, 1:]
    wanted = targets != IGNORED
    chosen, _ = log_probs_of(head, hidden[:, :-1][wanted], targets[wanted])
    return chosen.new_zeros(labels.shape).masked_scatter(torch.nn.functional.pad(wanted, (1, 0)), chosen)


def sft_loss(log_probs: torch.Tensor, batch: dict[str, torch.Tensor], decision_weight: float) -> SftLoss:
    """The loss of one batch from its token log-probabilities `(rows, length)`."""
    trained = (batch["labels"] != IGNORED).float()
    at_decision = torch.zeros_like(trained).scatter_(1, batch["decision_index"][:, None], 1.0)
    others = trained - at_decision
    content = -(log_probs * others).sum(dim=1) / others.sum(dim=1).clamp(min=1.0)
    decision = -(log_probs * at_decision).sum(dim=1)
    weighted = batch["row_weight"] * (content + decision_weight * batch["decision_weight"] * decision)
    return SftLoss(weighted.mean(), float(content.mean().detach()), float(decision.mean().detach()))
