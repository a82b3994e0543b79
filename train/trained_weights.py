"""The trained weights alone (an adapter's, or all) as one file that is replaced whole: the best step, the last good one."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from pmem.atomic import replacing
from train.processes import is_main

NAME = "trained.safetensors"


def save_trained(model: Any, folder: Path) -> None:
    """Write the trained weights only (adapter, or all) as one safetensors file; the file is replaced whole.

    Every process must call it: sharded weights are gathered from all, the main process writes.
    """
    trained = {name: whole(param).contiguous() for name, param in model.named_parameters() if param.requires_grad}
    if not is_main():
        return
    with replacing(folder / NAME) as temporary:
        save_file(trained, temporary)


def load_trained(model: Any, folder: Path) -> None:
    """Load what `save_trained` wrote."""
    saved = load_file(folder / NAME)
    with torch.no_grad():
        for name, param in model.named_parameters():
            if param.requires_grad:
                param.copy_(saved[name])


def whole(param: torch.Tensor) -> torch.Tensor:
    """The whole of a parameter that may be sharded over processes."""
    gather = getattr(param.detach(), "full_tensor", None)
    return gather() if gather else param.detach()
