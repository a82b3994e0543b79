"""Kept prefixes: what is found is a true beginning, the bound holds, and no beginning is lost while an owner is kept."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.prefix_cache import BLOCK, PrefixCache, common_prefix


def strip_of(ids: tuple[int, ...]) -> torch.Tensor:
    """A strip that spells its own tokens: `[layers 1, 2, heads 1, length, dim 1]`."""
    return torch.tensor(ids, dtype=torch.float32).view(1, 1, 1, -1, 1).expand(1, 2, 1, len(ids), 1).contiguous()


sequences = st.lists(st.integers(0, 1), min_size=1, max_size=60).map(lambda tail: (7,) * 20 + tuple(tail))


@settings(max_examples=60, deadline=None)
@given(st.lists(sequences, min_size=1, max_size=12), sequences)
def test_found_is_the_longest_kept_beginning(kept: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    cache = PrefixCache(10**9)
    for ids in kept:
        cache.keep(ids, strip_of(ids))
    found = cache.find(wanted)
    assert found is not None, "all begin with the same 20 tokens"
    spelled = tuple(int(value) for value in found[0, 0, 0, :, 0])
    assert spelled == wanted[: len(spelled)] and len(spelled) < len(wanted)
    best = max(min(len(common_prefix([ids, wanted])), len(wanted) - 1) for ids in kept)
    assert len(spelled) >= min(best, best // BLOCK * BLOCK)


@settings(max_examples=40, deadline=None)
@given(st.lists(sequences, max_size=30), st.integers(200, 2000))
def test_the_bound_on_bytes_holds(kept: list[tuple[int, ...]], max_bytes: int) -> None:
    cache = PrefixCache(max_bytes)
    for ids in kept:
        cache.keep(ids, strip_of(ids))
        assert 0 <= cache.num_bytes <= max_bytes
    cache.clear()
    assert cache.num_bytes == 0 and cache.find((7,) * 40) is None


def test_a_dropped_owner_leaves_the_beginning_to_the_others() -> None:
    first, second = (7,) * 32 + (1,) * 16, (7,) * 32 + (2,) * 16
    cache = PrefixCache(strip_of(first).numel() * 4 * 2)
    cache.keep(first, strip_of(first))
    cache.keep(second, strip_of(second))
    third = (9,) * 48
    cache.keep(third, strip_of(third))
    found = cache.find((7,) * 32 + (3,) * 4)
    assert found is not None and found.shape[3] == 32


def test_nothing_is_kept_without_room() -> None:
    cache = PrefixCache(0)
    cache.keep((1,) * 32, strip_of((1,) * 32))
    assert cache.find((1,) * 32) is None
