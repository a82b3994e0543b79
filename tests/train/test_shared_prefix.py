"""Sharing a prefix changes nothing but the work: same hidden states, same gradients as the plain forward pass."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny import tiny_model
from train.shared_prefix import FOLDED, SharedRows, common_prefix, hidden_states


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def model_of(folder: Path, attention: str) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)


def test_two_prompts_of_unlike_length_give_the_plain_hidden_states(folder: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, 250, (length,), generator=generator) for length in (9, 5)]
    rests = [torch.randint(3, 250, (length,), generator=generator) for length in (4, 6, 3)]
    owner = torch.tensor([0, 1, 0])
    rows = SharedRows(
        prefix_ids=torch.stack([prompts[0], torch.cat((torch.zeros(4, dtype=torch.long), prompts[1]))]),
        prefix_mask=torch.tensor([[1] * 9, [0] * 4 + [1] * 5]),
        owner=owner,
        ids=torch.nn.utils.rnn.pad_sequence(rests, batch_first=True),
        mask=torch.nn.utils.rnn.pad_sequence([torch.ones_like(rest) for rest in rests], batch_first=True),
    )
    plain, shared = model_of(folder, "sdpa"), model_of(folder, FOLDED)
    found = hidden_states(shared.base_model, rows)
    total = torch.zeros(())
    for row, rest in enumerate(rests):
        whole = torch.cat((prompts[owner[row]], rest))[None]
        wanted = plain.base_model(input_ids=whole).last_hidden_state[0, -len(rest) :]
        torch.testing.assert_close(found[row, : len(rest)], wanted, rtol=1e-4, atol=1e-5)
        total = total + wanted.square().sum()
    total.backward()
    sum(found[row, : len(rest)].square().sum() for row, rest in enumerate(rests)).backward()
    for (name, left), right in zip(plain.named_parameters(), shared.parameters()):
        if left.grad is not None:
            torch.testing.assert_close(right.grad, left.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_no_shared_tokens_is_the_plain_pass(folder: Path) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    none = torch.zeros((1, 0), dtype=torch.long)
    model = model_of(folder, FOLDED)
    found = hidden_states(model.base_model, SharedRows(none, none, torch.zeros(1, dtype=torch.long), ids, torch.ones_like(ids)))
    torch.testing.assert_close(found, model_of(folder, "sdpa").base_model(input_ids=ids).last_hidden_state)


@pytest.mark.parametrize(
    ("sequences", "length"),
    [([(1, 2, 3), (1, 2, 4, 5)], 2), ([(1, 2), (1, 2)], 1), ([(1,), (2,)], 0), ([], 0), ([(1, 2, 3), (1, 2)], 1)],
)
def test_common_prefix_leaves_each_its_last_token(sequences: list[tuple[int, ...]], length: int) -> None:
    assert common_prefix(sequences) == length
