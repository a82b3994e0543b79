"""The model behind an arm: transformers in this process, or a server by URL. Same interface, same decisions file."""

from pathlib import Path
from typing import Any

from pmem.backend import Backend
from pmem.errors import UserError
from pmem.policy_file import model_hash

DEFAULT_BASE = Path(".cache/base/smollm2-135m-instruct")


def model_folder(arm: str, run: Path, model: Path | None) -> Path:
    """The folder of the model of an arm: as named, else where the stages of a run leave it (`base.path` names its base model)."""
    places = {"sft": run / "sft", "sft_grpo": run / "grpo"}
    folder = model or places.get(arm) or _base_of(run)
    if not folder.exists():
        stage = {"sft": "train.sft", "sft_grpo": "train.grpo"}.get(arm, "train.base")
        raise UserError(f"arm {arm}: model folder {folder} does not exist; run `python -m {stage}` first, or name model=FOLDER")
    return folder


def _base_of(run: Path) -> Path:
    noted = run / "base.path"
    return Path(noted.read_text(encoding="utf-8").strip()) if noted.exists() else DEFAULT_BASE


def open_backend(
    folder: Path, url: str | None, *, model_name: str = "", concurrency: int = 8, max_batch_tokens: int = 16_384
) -> Backend:
    """The backend of a folder, or of a server that serves that folder. Raises UserError when it cannot be had."""
    if url:
        return _http(folder, url, model_name, concurrency)
    from serve.embedded import EmbeddedBackend

    return EmbeddedBackend(folder, max_batch_tokens=max_batch_tokens)


def _http(folder: Path, url: str, model_name: str, concurrency: int) -> Backend:
    """A server cannot be asked which tokens decide, so the folder's tokenizer says; its hash binds decisions and threshold.

    A `url` that ends in `/decisions` asks vLLM's own endpoint of that name (serve.zero_shot).
    """
    from transformers import AutoTokenizer

    from pmem.route import HttpBackend
    from serve.decision_tokens import decision_tokens
    from serve.model_folder import check_model_folder, loading
    from serve.zero_shot import ZeroShotBackend

    kind = ZeroShotBackend if url.rstrip("/").endswith("/decisions") else HttpBackend
    check_model_folder(folder)
    with loading(folder):
        point: dict[str, Any] = decision_tokens(AutoTokenizer.from_pretrained(folder)).as_config()
    backend = kind(url, model_name or folder.name, model_hash=model_hash(folder), concurrency=concurrency, **point)
    facts = backend.probe()
    if facts.problem:
        raise UserError(f"{url}: {facts.problem}; start the server with `python -m serve.route`, or check url and model_name")
    if facts.model_hash and facts.model_hash != backend.model_hash:
        raise UserError(
            f"{url} serves model {facts.model_hash[:16]}, {folder} is {str(backend.model_hash)[:16]}; name the model it serves"
        )
    return backend
