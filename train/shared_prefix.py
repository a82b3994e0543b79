"""The hidden states of many rows, with the tokens that rows share computed once.

Every memory request begins with the same system prompt, and the siblings of a GRPO group share their whole prompt. Keys and
values of the shared part are computed once, repeated to the rows that own them, and the gradients of all rows flow back into
them, so the result is that of the plain forward pass (up to rounding) at a fraction of its work:

    hidden = hidden_states(backbone, rows)          # (rows, length, hidden size), of the tokens after the shared part

`folded_attention` is the attention of this pass on a CPU: the query heads of one key head stand as further queries, so that
keys are not repeated, and the softmax stays in the model's dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.masking_utils import eager_mask

FOLDED = "pmem_folded"


@dataclass(frozen=True, slots=True)
class SharedRows:
    """`prefix_ids`, `prefix_mask`: (prefixes, prefix length), padded left. `owner`: (rows,), which prefix a row continues.

    `ids`, `mask`: (rows, length), padded right, the rest of each row.
    """

    prefix_ids: torch.Tensor
    prefix_mask: torch.Tensor
    owner: torch.Tensor
    ids: torch.Tensor
    mask: torch.Tensor


def hidden_states(backbone: Any, rows: SharedRows) -> torch.Tensor:
    """Last hidden states `(rows, length, hidden size)` of `rows.ids`. `backbone`: the decoder without its vocabulary head."""
    prefix_mask = rows.prefix_mask[rows.owner]
    positions = prefix_mask.sum(dim=1, keepdim=True) + torch.arange(rows.ids.shape[1], device=rows.ids.device)
    if rows.prefix_ids.shape[1] == 0:
        mask = {"attention_mask": rows.mask}
        return backbone(input_ids=rows.ids, position_ids=positions, use_cache=False, **mask).last_hidden_state
    cache = DynamicCache(config=backbone.config)
    backbone(
        input_ids=rows.prefix_ids,
        attention_mask=rows.prefix_mask,
        position_ids=(rows.prefix_mask.cumsum(dim=1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
    )
    layers: list[Any] = cache.layers
    for layer in layers:
        layer.keys, layer.values = layer.keys.index_select(0, rows.owner), layer.values.index_select(0, rows.owner)
    return backbone(
        input_ids=rows.ids,
        attention_mask=torch.cat((prefix_mask, rows.mask), dim=1),
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state


def common_prefix(sequences: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all sequences begin with; each sequence keeps at least its last token to itself."""
    if not sequences:
        return 0
    low, high = min(sequences), max(sequences)
    length = next((index for index, (a, b) in enumerate(zip(low, high)) if a != b), min(len(low), len(high)))
    return min(length, min(len(sequence) for sequence in sequences) - 1)


def folded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """`query` (rows, heads, new, dim), `key`/`value` (rows, key heads, columns, dim); answer (rows, new, heads, dim)."""
    rows, heads, num_new, dim = query.shape
    key_heads, columns = key.shape[1], key.shape[2]
    groups = heads // key_heads
    scale = dim**-0.5 if scaling is None else scaling
    folded = (query * scale).reshape(rows, key_heads, groups * num_new, dim)
    scores = (folded @ key.transpose(2, 3)).view(rows, key_heads, groups, num_new, columns)
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, None, :, :columns]
    probs = torch.softmax(scores, dim=-1)
    if dropout and module.training:
        probs = torch.nn.functional.dropout(probs, p=dropout)
    output = probs.view(rows, key_heads, groups * num_new, columns) @ value
    return output.view(rows, heads, num_new, -1).transpose(1, 2), None


AttentionInterface.register(FOLDED, folded_attention)
AttentionMaskInterface.register(FOLDED, eager_mask)
