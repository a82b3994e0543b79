"""Loss, head, optimizer and AUROC against their plain definitions."""

import math

import pytest
import torch

from train.batches import IGNORED
from train.dev import auroc
from train.head import PIECE, log_masses, log_probs_of
from train.loss import pair_loss, sft_loss, token_log_probs
from train.optimizer import MasterAdamW


def test_head_in_pieces_equals_one_softmax_with_gradients() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 50, bias=False)
    hidden = torch.randn(PIECE + 7, 8, requires_grad=True)
    targets = torch.randint(0, 50, (PIECE + 7,))
    chosen, entropies = log_probs_of(head, hidden, targets, temperature=0.7, entropy=True)
    full = torch.log_softmax(head(hidden) / 0.7, dim=-1)
    torch.testing.assert_close(chosen, full.gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropies, -(full.exp() * full).sum(dim=-1))
    (left,) = torch.autograd.grad(chosen.sum(), hidden, retain_graph=True)
    (right,) = torch.autograd.grad(full.gather(1, targets[:, None]).sum(), hidden)
    torch.testing.assert_close(left, right)
    speak, silent = log_masses(head, hidden, ((1, 2), (3,)))
    torch.testing.assert_close(speak.exp() + silent.exp(), torch.softmax(head(hidden), -1)[:, 1:4].sum(dim=-1))


def test_loss_weighs_decision_and_row() -> None:
    torch.manual_seed(1)
    head, hidden = torch.nn.Linear(4, 9, bias=False), torch.randn(2, 5, 4)
    labels = torch.tensor([[IGNORED, 2, 3, 4, IGNORED], [IGNORED, IGNORED, 5, 6, 7]])
    log_probs = token_log_probs(head, hidden, labels).detach()
    full = torch.log_softmax(head(hidden), dim=-1).detach()
    assert log_probs[0, 1] == pytest.approx(full[0, 0, 2].item(), abs=1e-6)
    assert log_probs[labels == IGNORED].abs().sum() == 0
    batch = {
        "labels": labels,
        "decision_index": torch.tensor([2, 3]),
        "decision_weight": torch.tensor([1.0, 0.5]),
        "row_weight": torch.tensor([1.0, 2.0]),
    }
    found = sft_loss(log_probs, batch, decision_weight=3.0)
    first = -(log_probs[0, 1] + log_probs[0, 3]) / 2 - 3 * log_probs[0, 2]
    second = -(log_probs[1, 2] + log_probs[1, 4]) / 2 - 3 * 0.5 * log_probs[1, 3]
    assert found.loss.item() == pytest.approx(((first + 2 * second) / 2).item(), rel=1e-5)


def test_masters_learn_what_bfloat16_would_lose() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = MasterAdamW([weight], lr=1e-4)
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert weight.float().tolist() == pytest.approx([0.99] * 4, abs=4e-3)


def test_optimizer_equals_torch_and_goes_on_from_its_state() -> None:
    torch.manual_seed(2)
    start = torch.randn(6)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    left = MasterAdamW([ours], lr=1e-2, weight_decay=0.1)
    right = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(6):
        if step == 3:
            saved = left.state_dict()
            ours = torch.nn.Parameter(torch.zeros(6))
            left = MasterAdamW([ours], lr=1e-2, weight_decay=0.1)
            left.load_state_dict(saved)
        gradient = torch.randn(6)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        left.step()
        right.step()
    torch.testing.assert_close(ours, theirs)


def test_auroc_counts_ties_as_half() -> None:
    assert auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True]) == pytest.approx(0.875)
    assert math.isnan(auroc([0.1, 0.2], [True, True]))


def test_pair_loss_is_the_mean_logistic_loss_of_speaking_against_silent_rows() -> None:
    odds = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
    speaks, weights = torch.tensor([True, False, False]), torch.tensor([1.0, 0.5, 1.0])
    found = pair_loss(odds, speaks, weights)
    assert float(found.detach()) == pytest.approx((0.5 * math.log(1 + math.exp(-3.0)) + math.log(1 + math.exp(-1.5))) / 2)
    found.backward()
    assert odds.grad is not None
    assert float(odds.grad.sum()) == pytest.approx(0.0, abs=1e-6), "how often to speak gets no gradient"
    assert float(pair_loss(odds, torch.tensor([False, False, False]), weights)) == 0.0
