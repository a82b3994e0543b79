"""Which dtype a machine computes in."""

import time

import torch

from serve.dtype import compute_dtype


def test_a_gpu_computes_in_bfloat16_and_a_named_dtype_is_taken() -> None:
    assert compute_dtype("auto", "cuda") is torch.bfloat16
    assert compute_dtype("float32", "cpu") is torch.float32 and compute_dtype("bfloat16", "cpu") is torch.bfloat16


def test_auto_is_not_the_dtype_that_this_cpu_emulates() -> None:
    seconds = {dtype: seconds_of_a_layer(dtype) for dtype in (torch.bfloat16, torch.float32)}
    assert seconds[compute_dtype("auto", "cpu")] < 3 * min(seconds.values()), "an emulated product takes nine times as long"


def seconds_of_a_layer(dtype: torch.dtype) -> float:
    """Of a product of the size that a small model's layers have, the fastest of seven."""
    rows, weight = torch.ones(512, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
    found = []
    for _ in range(7):
        began = time.perf_counter()
        torch.nn.functional.linear(rows, weight)
        found.append(time.perf_counter() - began)
    return min(found)
