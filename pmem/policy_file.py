"""`policy.json` (`pmem.policy/1`): what a trained model folder is, and the hash that a threshold is bound to."""

import hashlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pmem.atomic import write_text
from pmem.canonical import file_sha256
from pmem.errors import UserError
from pmem.plan_notes import with_notes

MODEL_SUFFIXES = (".safetensors", ".gguf", ".bin", ".jinja", ".model")
MODEL_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)


class PolicyFile(BaseModel):
    """`config` also holds `decision_prefix` (text shared by both answers before they differ) and `decision_token_ids`, and, where
    the training rows state it, `trajectory_steps`: the window the model has learned to read, and `plan_notes`: the version of the
    plan notes that end its lists.
    """

    model_config = ConfigDict(extra="forbid")

    format: Literal["pmem.policy/1"] = "pmem.policy/1"
    model_hash: str
    base: str
    adapter_hash: str | None = None
    prompt_version: str
    template_hash: str
    data_hashes: dict[str, str] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)
    seeds: dict[str, int] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    created: str

    @property
    def trajectory_steps(self) -> int | None:
        """Steps of the window in the training rows; None when training did not write it down."""
        found = self.config.get("trajectory_steps")
        return int(found) if isinstance(found, int | str) and str(found).isdigit() and int(found) > 0 else None

    @property
    def plan_notes(self) -> bool:
        """Whether the training rows had plan notes. Raises UserError when they were of another version than this one writes."""
        return with_notes(self.config.get("plan_notes"), "the model")


def model_hash(folder: Path) -> str:
    """SHA-256 over the sorted (name, SHA-256) pairs of weight, tokenizer and template files of `folder`."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix in MODEL_SUFFIXES or path.name in MODEL_NAMES)
    if not files:
        raise UserError(f"{folder} holds no model files; name the folder that training wrote")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


def read_policy(folder: Path) -> PolicyFile:
    """Read `policy.json` of a model folder. Raises UserError when it is missing or of another format."""
    path = Path(folder) / "policy.json"
    try:
        return PolicyFile.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; {folder} is not a folder that `python -m train.sft` wrote") from None
    except ValidationError as error:
        raise UserError(f"{path}: {error.errors()[0]['msg']}; expected pmem.policy/1") from None


def plan_notes_of(folder: Path, otherwise: bool = False) -> bool:
    """Whether a model folder's lists end with plan notes: as `policy.json` says, `otherwise` for a folder without one."""
    return read_policy(folder).plan_notes if (Path(folder) / "policy.json").exists() else otherwise


def write_policy(folder: Path, policy: PolicyFile) -> None:
    """Write `policy.json` into a model folder."""
    write_text(Path(folder) / "policy.json", policy.model_dump_json(indent=2) + "\n")
