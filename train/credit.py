"""Who gets the credit: advantages a token, so that the list answers for its operations and the rest for the decision.

operations tokens        operations reward minus the group's mean of it
decision and reminder    decision reward minus the group's mean of it       (sampled decision gradient)
reminder alone           its reward minus the mean of the group's reminders (exact decision gradient, see train.grpo_trainer)
malformed answers        the whole reward minus the group's mean, on every token
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from train.rewards import Score


@dataclass(frozen=True, slots=True)
class Span:
    """Token places in a completion: the list ends before `list_end`; `decision` is the decision token, None if there is none."""

    list_end: int
    decision: int | None


def joint_advantages(scores: Sequence[Score], length: int) -> torch.Tensor:
    """One advantage an answer on all its tokens (TRL's own). Answer (rows, length)."""
    totals = [one.total for one in scores]
    return torch.tensor(centred(totals))[:, None].expand(-1, length).clone()


def split_advantages(scores: Sequence[Score], spans: Sequence[Span], length: int, *, exact: bool) -> torch.Tensor:
    """Advantages (rows, length) of one group. `exact`: the decision token's own gradient is added elsewhere."""
    totals = centred([one.total for one in scores])
    lists = centred([one.operations if one.kind != "malformed" else None for one in scores])
    decisions = centred([one.decision for one in scores])
    reminders = centred([one.decision if one.kind in ("mapped", "uncited") else None for one in scores])
    advantages = torch.zeros(len(scores), length)
    for row, (one, span) in enumerate(zip(scores, spans, strict=True)):
        if one.kind == "malformed" or span.decision is None:
            advantages[row] = totals[row]
            continue
        advantages[row, : span.list_end] = lists[row]
        if exact:
            advantages[row, span.decision + 1 :] = reminders[row]
        else:
            advantages[row, span.list_end :] = decisions[row]
    return advantages


def centred(values: Sequence[float | None]) -> list[float]:
    """Values minus their mean; None (nothing measured) stays out of the mean and gets 0."""
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [0.0 if value is None else value - mean for value in values]
