"""A fully trained policy as a small LoRA adapter over its base, and back: what fits into a repository, or beside others on one server.

Run:  python -m train.adapter model=runs/cpu-full/sft out=docs/results/cpu-full/sft rank=8        (the adapter nearest to the change)
      python -m train.adapter adapter=docs/results/cpu-full/sft out=runs/again/sft                (a model folder to score or serve)

The change of each linear layer is cut to its `rank` largest singular values; norms and whatever else was trained keep the base's
values. So the adapter decides a little differently than its policy: score what it gives, and let it have a threshold of its own.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pmem.config import bounded, check_out, load_config
from pmem.errors import UserError, exit_code
from pmem.policy_file import PolicyFile, model_hash, read_policy, write_policy


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterConfig:
    """Configuration of `train.adapter`. Exactly one of `model` and `adapter`."""

    model: Path | None = None
    """Model folder that training wrote, to make an adapter of."""
    adapter: Path | None = None
    """Folder of such an adapter, to make a model folder of."""
    base: str | None = None
    """Base model of both: empty for SmolLM2-135M-Instruct, a hub id, or a folder."""
    out: Path
    """Folder to write."""
    rank: int = 8
    """Rank of the adapter on every linear layer."""

    def __post_init__(self) -> None:
        bounded(self, 1, 4096, "rank")
        if (self.model is None) == (self.adapter is None):
            raise UserError(
                "name model=FOLDER to make an adapter of it, or adapter=FOLDER to make a model folder of that; one of them"
            )


def extract(config: AdapterConfig) -> float:
    """Write the adapter of `config.model`; returns the share of the change (squared norm) that it holds.

    Raises UserError when the model was not trained from the base.
    """
    from train.base import resolve_base
    from train.loading import load_model, load_tokenizer, lora_config

    assert config.model is not None
    policy = read_policy(config.model)
    base = resolve_base(config.base)
    tokenizer = load_tokenizer(base)
    trained, start = (load_model(folder, tokenizer, dtype="float32", shares_prefix=False) for folder in (config.model, base))
    _check_shapes(trained, start, config.model, base)
    from peft import get_peft_model

    model = get_peft_model(start, lora_config(rank=config.rank, alpha=config.rank, dropout=0.0))
    kept = whole = 0.0
    for layer, weight in _layers(model, trained):
        change = weight - layer.base_layer.weight.detach()
        left, sizes, right = torch.linalg.svd(change, full_matrices=False)
        root = sizes[: config.rank].sqrt()
        num = len(root)
        with torch.no_grad():
            layer.lora_B["default"].weight[:, :num] = left[:, :num] * root
            layer.lora_A["default"].weight[:num] = root[:, None] * right[:num]
        kept, whole = kept + float((sizes[:num] ** 2).sum()), whole + float((sizes**2).sum())
    if not whole:
        raise UserError(f"{config.model} has the linear layers of {base}; there is no change to make an adapter of")
    config.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".adapter.", suffix=".tmp-pmem", dir=config.out) as scratch:
        model.to(torch.bfloat16).save_pretrained(scratch)
        (Path(scratch) / "README.md").unlink(missing_ok=True)
        for path in sorted(Path(scratch).iterdir()):
            path.chmod(0o644)
            path.replace(config.out / path.name)
    noted = {"rank": config.rank, "share_of_change": round(kept / whole, 4), "from_model_hash": policy.model_hash}
    found = model_hash(config.out)
    write_policy(
        config.out,
        policy.model_copy(update={"model_hash": found, "adapter_hash": found, "config": {**policy.config, "adapter": noted}}),
    )
    return kept / whole


def merge(config: AdapterConfig) -> PolicyFile:
    """Write base and adapter as one model folder. Raises UserError when they do not belong together."""
    from peft import PeftModel

    from train.base import resolve_base
    from train.loading import load_model, load_tokenizer
    from train.policy_folder import PolicyNotes, write_policy_folder
    from train.rows import check_decision

    assert config.adapter is not None
    policy = read_policy(config.adapter)
    base = resolve_base(config.base)
    found = model_hash(base)
    if (wanted := policy.data_hashes.get("base", found)) != found:
        raise UserError(
            f"{config.adapter} was made over base {wanted[:16]}, {base} is {found[:16]}; name the base it was trained from"
        )
    tokenizer = load_tokenizer(base)
    start = load_model(base, tokenizer, dtype="auto", shares_prefix=False)
    try:
        model: Any = PeftModel.from_pretrained(start, str(config.adapter))
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{config.adapter} is no adapter of {base}: {str(error).splitlines()[0]}") from None
    noted = {**policy.config.get("adapter", {}), "from_adapter_hash": policy.model_hash}
    notes = PolicyNotes(
        base=policy.base, config={**policy.config, "adapter": noted}, data_hashes=policy.data_hashes, seeds=policy.seeds,
        card=f"# {policy.base} with the adapter {policy.model_hash[:16]}\n\nMerged by `python -m train.adapter`; `policy.json` says the rest.\n",
    )  # fmt: skip
    return write_policy_folder(config.out, model, tokenizer, check_decision(tokenizer, str(base)), notes)


def _layers(model: Any, trained: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """The layers of `model` that carry an adapter, each with the trained weight of its like."""
    weights = dict(trained.named_modules())
    for name, layer in model.get_base_model().named_modules():
        if hasattr(layer, "lora_A"):
            yield layer, weights[name].weight.detach()


def _check_shapes(trained: Any, start: Any, folder: Path, base: Path) -> None:
    shapes = [{name: tuple(weight.shape) for name, weight in model.named_parameters()} for model in (trained, start)]
    if shapes[0] != shapes[1]:
        raise UserError(f"{folder} has other layers than {base}; name the base model that it was trained from")


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=", ".join(AdapterConfig.__dataclass_fields__))
    config = load_config(AdapterConfig, None, parser.parse_args().overrides)
    check_out(config)
    if config.model is not None:
        share = extract(config)
        megabytes = sum(path.stat().st_size for path in config.out.iterdir()) / 1e6
        print(f"{config.out}: adapter of rank {config.rank}, {share:.1%} of the change, {megabytes:.1f} MB")
    else:
        print(f"{config.out}: model {merge(config).model_hash[:16]}; it needs a threshold of its own (eval.sweep)")


if __name__ == "__main__":
    sys.exit(exit_code(main))
