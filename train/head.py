"""Log-probabilities through a vocabulary head, a few hundred positions at a time: logits of all of them never exist at once.

With gradients each piece is recomputed in the backward pass: one more projection for a memory of (piece, vocabulary).
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

PIECE = 256
"""Positions projected at once: 50 MB of float32 logits for a vocabulary of 49,152."""


def log_probs_of(
    head: Any, hidden: torch.Tensor, targets: torch.Tensor, *, temperature: float = 1.0, entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability of `targets` (positions,) from `hidden` (positions, hidden size); entropies carry no gradient."""
    chosen, entropies = [], []
    for part, wanted in zip(hidden.split(PIECE), targets.split(PIECE)):
        if torch.is_grad_enabled():
            one, spread = checkpoint(_piece, head, part, wanted, temperature, entropy, use_reentrant=False)
        else:
            one, spread = _piece(head, part, wanted, temperature, entropy)
        chosen.append(one)
        entropies.append(spread)
    if not chosen:
        return hidden.sum(dim=-1).float(), hidden.new_zeros(0) if entropy else None
    return torch.cat(chosen), torch.cat(entropies) if entropy else None


def _piece(
    head: Any, hidden: torch.Tensor, targets: torch.Tensor, temperature: float, entropy: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    logits = head(hidden).float() / temperature
    total = torch.logsumexp(logits, dim=-1)
    chosen = logits.gather(1, targets[:, None])[:, 0] - total
    if not entropy:
        return chosen, None
    with torch.no_grad():
        log_probs = logits - total[:, None]
        return chosen, -(log_probs.exp() * log_probs).sum(dim=-1)


def log_masses(head: Any, hidden: torch.Tensor, sets: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    """Log of the probability mass on each set of token ids, (positions,) each; of the raw distribution."""
    log_probs = torch.log_softmax(head(hidden).float(), dim=-1)
    return [torch.logsumexp(log_probs[:, list(ids)], dim=-1) for ids in sets]
