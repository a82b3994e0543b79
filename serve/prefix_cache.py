"""Kept keys and values of earlier requests: a request that begins like one of them computes only what is new.

The three requests of one step share prompt and list, and every request shares the system prompt. Strips are found by a chain
of hashes over blocks of tokens (as vLLM does), compared token by token at the end, and dropped oldest use first.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """`strip`: `[layers, 2, heads, length, dim]` of the tokens `ids`."""

    ids: tuple[int, ...]
    strip: torch.Tensor

    @property
    def num_bytes(self) -> int:
        return self.strip.numel() * self.strip.element_size()


class PrefixCache:
    """At most `max_bytes` of strips; 0 keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._kept: OrderedDict[tuple[int, ...], Kept] = OrderedDict()
        self._owners: dict[int, dict[tuple[int, ...], None]] = {}

    def find(self, ids: tuple[int, ...]) -> torch.Tensor | None:
        """The longest kept beginning of `ids` that leaves at least one token to compute, as a view of the strip."""
        owners = next((owners for chain in reversed(_chain(ids)) if (owners := self._owners.get(chain))), None)
        if owners is None:
            return None
        best = next(reversed(owners))
        self._kept.move_to_end(best)
        kept = self._kept[best]
        length = min(_common(kept.ids, ids), len(ids) - 1)
        return kept.strip[:, :, :, :length] if length >= BLOCK else None

    def keep(self, ids: Sequence[int], strip: torch.Tensor) -> None:
        """Keep the strip of `ids`, dropping the least recently used ones when it does not fit beside them."""
        kept = Kept(tuple(ids), strip)
        if kept.num_bytes > self.max_bytes or len(kept.ids) < BLOCK:
            return
        self._drop(kept.ids)
        while self.num_bytes + kept.num_bytes > self.max_bytes:
            self._drop(next(iter(self._kept)))
        self._kept[kept.ids] = kept
        self.num_bytes += kept.num_bytes
        for chain in _chain(kept.ids):
            self._owners.setdefault(chain, {})[kept.ids] = None

    def clear(self) -> None:
        self._kept.clear()
        self._owners.clear()
        self.num_bytes = 0

    def _drop(self, ids: tuple[int, ...]) -> None:
        kept = self._kept.pop(ids, None)
        if kept is None:
            return
        self.num_bytes -= kept.num_bytes
        for chain in _chain(ids):
            owners = self._owners[chain]
            del owners[ids]
            if not owners:
                del self._owners[chain]


def common_prefix(requests: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Tokens that all requests begin with."""
    if not requests:
        return ()
    low, high = min(requests), max(requests)
    return low[: _common(low, high)]


def _chain(ids: tuple[int, ...]) -> list[int]:
    chains, value = [], 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        value = hash((value, ids[start : start + BLOCK]))
        chains.append(value)
    return chains


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    length = min(len(a), len(b))
    for index in range(length):
        if a[index] != b[index]:
            return index
    return length
