"""Write what training made as a folder that serves: merged weights, tokenizer, template, adapter, `policy.json`, model card.

The folder's files are replaced one by one and `policy.json` comes last: a reader never finds a policy without its files.
"""

import dataclasses
import datetime
import hashlib
import shutil
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from pmem.atomic import write_text
from pmem.policy_file import PolicyFile, model_hash, write_policy
from pmem.prompt import PROMPT_VERSION
from serve.decision_tokens import DecisionPoint
from train.checkpoints import writing

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "tokenizers", "pmem")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyNotes:
    """What `policy.json` says besides hashes. `config`: the stage's whole configuration and what the run really did."""

    base: str
    config: dict[str, Any]
    data_hashes: dict[str, str]
    seeds: dict[str, int]
    card: str
    extra_config: dict[str, Any] = field(default_factory=dict)


def prompts_learned(policy: PolicyFile) -> dict[str, Any]:
    """What the starting policy has learned to read (window, plan notes), for the policy made from it."""
    return {key: policy.config[key] for key in ("trajectory_steps", "plan_notes") if key in policy.config}


def write_policy_folder(out: Path, model: Any, tokenizer: Any, point: DecisionPoint, notes: PolicyNotes) -> PolicyFile:
    """Merge an adapter into the weights, write all files into `out`, return the policy. `model` is used up.

    The weights are written as bfloat16 unless the configuration asks for float32, whatever this machine computes in.
    """
    out.mkdir(parents=True, exist_ok=True)
    with writing(out), tempfile.TemporaryDirectory(prefix=".model.", suffix=".tmp-pmem", dir=out) as scratch:
        staged = Path(scratch)
        if notes.config.get("dtype") != "float32":
            model.to(torch.bfloat16)
        adapter_hash = _save_model(model, staged)
        tokenizer.save_pretrained(staged)
        (out / "policy.json").unlink(missing_ok=True)
        _move_in(staged, out)
    policy = PolicyFile(
        model_hash=model_hash(out),
        base=notes.base,
        adapter_hash=adapter_hash,
        prompt_version=PROMPT_VERSION,
        template_hash=hashlib.sha256(tokenizer.chat_template.encode()).hexdigest(),
        data_hashes=notes.data_hashes,
        config={**notes.config, **notes.extra_config, **point.as_config()},
        seeds=notes.seeds,
        versions={name: found for name in PACKAGES if (found := _version(name))},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    write_text(out / "README.md", notes.card)
    write_policy(out, policy)
    return policy


def plain_config(config: Any) -> dict[str, Any]:
    """A stage's configuration as JSON values."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(config).items()}


def _save_model(model: Any, folder: Path) -> str | None:
    """Weights into `folder`, the adapter into `folder/adapter`; returns the adapter's hash."""
    adapter_hash = None
    if hasattr(model, "peft_config"):
        model.save_pretrained(folder / "adapter")
        (folder / "adapter" / "README.md").unlink(missing_ok=True)
        adapter_hash = model_hash(folder / "adapter")
        model = model.merge_and_unload()
    model.__dict__.pop("forward", None)  # TRL's patched forward
    model.save_pretrained(folder)
    return adapter_hash


def _move_in(staged: Path, out: Path) -> None:
    for old in out.glob("*.safetensors"):
        old.unlink()
    shutil.rmtree(out / "adapter", ignore_errors=True)
    for path in sorted(staged.iterdir()):
        if path.is_file():
            path.chmod(0o644)
        path.replace(out / path.name)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
