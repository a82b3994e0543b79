"""The dtype that a model computes in on this machine: bfloat16, or float32 where a CPU has no instructions for it."""

import torch

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
BFLOAT16 = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")
"""What a CPU with such instructions has, under the names of `torch.cpu.get_capabilities`."""


def compute_dtype(name: str, device: str) -> torch.dtype:
    """`name` as a torch dtype; `auto` chooses by the device.

    Where bfloat16 is emulated a matrix product takes longer than in float32 (nine times on an AVX2 core); float32 takes twice the memory.
    """
    if name != "auto":
        return DTYPES[name]
    emulated = device == "cpu" and not any(map(torch.cpu.get_capabilities().get, BFLOAT16))
    return DTYPES["float32" if emulated else "bfloat16"]
