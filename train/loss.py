"""The SFT loss: completion tokens only, with the vocabulary projection computed only there.

    loss = mean over rows of  w_row * ( mean over the other completion tokens of -log p  +  decision_weight * -log p(decision) )
         + pair_weight * mean over pairs (i speaks, j is silent) of a batch of  w_i w_j * log(1 + exp(odds_j - odds_i))

The decision is one token of a few dozen; a term of its own keeps it from drowning in the others, whatever the row's length.
`odds` are the log-odds of speaking at the decision token: the pair term teaches which of two situations needs a reminder and says
nothing about how often to speak, which a small model otherwise swings about for hundreds of steps.
"""

from dataclasses import dataclass
from typing import Any

import torch

from train.batches import IGNORED
from train.head import log_probs_of


@dataclass(frozen=True, slots=True)
class SftLoss:
    """`loss` carries the gradient; the parts are plain means over rows and pairs, for the log."""

    loss: torch.Tensor
    content_nll: float
    decision_nll: float
    pair_loss: float = 0.0


def token_log_probs(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probability of each label `(rows, length)`, 0 where it is ignored; `hidden` of position t predicts label t + 1.

    Only positions with a label go through `head`.
    """
    targets = labels[:, 1:]
    wanted = targets != IGNORED
    chosen, _ = log_probs_of(head, hidden[:, :-1][wanted], targets[wanted])
    return chosen.new_zeros(labels.shape).masked_scatter(torch.nn.functional.pad(wanted, (1, 0)), chosen)


def sft_loss(
    log_probs: torch.Tensor,
    batch: dict[str, torch.Tensor],
    decision_weight: float,
    pair_weight: float = 0.0,
    odds: torch.Tensor | None = None,
) -> SftLoss:
    """The loss of one batch from its token log-probabilities `(rows, length)` and, for pairs, its log-odds of speaking `(rows,)`."""
    trained = (batch["labels"] != IGNORED).float()
    at_decision = torch.zeros_like(trained).scatter_(1, batch["decision_index"][:, None], 1.0)
    others = trained - at_decision
    content = -(log_probs * others).sum(dim=1) / others.sum(dim=1).clamp(min=1.0)
    decision = -(log_probs * at_decision).sum(dim=1)
    weighted = batch["row_weight"] * (content + decision_weight * batch["decision_weight"] * decision)
    pairs = weighted.new_zeros(()) if odds is None else pair_loss(odds, batch["speaks"], batch["row_weight"])
    loss = weighted.mean() + pair_weight * pairs
    return SftLoss(loss, float(content.mean().detach()), float(decision.mean().detach()), float(pairs.detach()))


def pair_loss(odds: torch.Tensor, speaks: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean over pairs of a speaking and a silent row of the logistic loss of their difference; 0 without both. All `(rows,)`."""
    if bool(speaks.all()) or not bool(speaks.any()):
        return odds.sum() * 0.0
    losses = torch.nn.functional.softplus(odds[~speaks][None, :] - odds[speaks][:, None])
    return (losses * weights[speaks][:, None] * weights[~speaks][None, :]).mean()
