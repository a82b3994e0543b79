"""Keys and values of a batch in buffers that grow by writing, not by copying, and attention that does not repeat them.

`transformers.DynamicCache` concatenates the whole cache at each token and its attention repeats keys and values once a query
head; on a CPU both cost more than the weights do. Here a row of a batch is a strip of columns, each column a token, a pad or
a gap; the attention mask says which.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "pmem_grouped"
MAX_GROUPED_QUERIES = 32
"""Above this many new tokens a row the repeated keys are cheap beside the rest of the pass."""


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer, `[rows, heads, width, dim]`, of which the first `num_filled` columns are set."""

    is_sliding = False

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.num_filled = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, dim = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_zeros((rows, heads, self.width, dim))
        self.values = value_states.new_zeros((rows, value_states.shape[1], self.width, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.num_filled, self.num_filled + key_states.shape[2]
        assert self.keys is not None and self.values is not None and end <= self.width
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.num_filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.num_filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.num_filled

    def get_max_length(self) -> int:
        return self.width


class KvRows(Cache):
    """The layers of one batch. `width` columns are laid out once."""

    def __init__(self, num_layers: int, width: int) -> None:
        self.buffers = [BufferLayer(width) for _ in range(num_layers)]
        super().__init__(layers=list(self.buffers))

    def load(self, strips: list[torch.Tensor | None], num_columns: int) -> None:
        """Fill the first columns from kept strips `[layers, 2, heads, length, dim]`, right-aligned at `num_columns`."""
        first = next(strip for strip in strips if strip is not None)
        for index, layer in enumerate(self.buffers):
            shape = (len(strips), first.shape[2], 0, first.shape[4])
            layer.lazy_initialization(first.new_empty(shape), first.new_empty(shape))
            assert layer.keys is not None and layer.values is not None
            for row, strip in enumerate(strips):
                if strip is not None:
                    columns = slice(num_columns - strip.shape[3], num_columns)
                    layer.keys[row, :, columns], layer.values[row, :, columns] = strip[index]
            layer.num_filled = num_columns

    def strip(self, row: int, columns: torch.Tensor) -> torch.Tensor:
        """The given columns of one row as a new `[layers, 2, heads, length, dim]`."""
        both = [(layer.keys[row, :, columns], layer.values[row, :, columns]) for layer in self.buffers]  # type: ignore[index]
        return torch.stack([torch.stack(pair) for pair in both])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep (or repeat) the given rows."""
        for layer in self.buffers:
            assert layer.keys is not None and layer.values is not None
            layer.keys, layer.values = layer.keys.index_select(0, indices), layer.values.index_select(0, indices)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot product attention; the query heads of one key head stand as further queries instead of repeated keys.

    `query` `[rows, heads, new, dim]`, `key`/`value` `[rows, key heads, columns, dim]`, answer `[rows, new, heads, dim]`.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    rows, heads, num_new, dim = query.shape
    if groups == 1 or attention_mask is None or attention_mask.shape[1] != 1 or num_new > MAX_GROUPED_QUERIES:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    folded = query.reshape(rows, heads // groups, groups * num_new, dim)
    mask = attention_mask.repeat(1, 1, groups, 1)
    output = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(rows, heads, num_new, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)
