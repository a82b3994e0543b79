"""The model behind an arm: transformers in this process, or a server by URL. Same interface, same decisions file."""

from pathlib import Path

from pmem.backend import Backend
from pmem.errors import UserError

DEFAULT_BASE = Path(".cache/base/smollm2-135m-instruct")


def model_folder(arm: str, run: Path, model: Path | None) -> Path:
    """The folder of the model of an arm: as named, else where the stages of a run leave it."""
    if model is not None:
        return model
    places = {"sft": run / "sft", "sft_grpo": run / "grpo"}
    folder = places.get(arm, DEFAULT_BASE)
    if not folder.exists():
        stage = {"sft": "train.sft", "sft_grpo": "train.grpo"}.get(arm, "train.base")
        raise UserError(f"arm {arm}: model folder {folder} does not exist; run `python -m {stage}` first, or name model=FOLDER")
    return folder


def open_backend(folder: Path | None, url: str | None, *, model_name: str = "", max_batch_tokens: int = 16_384) -> Backend:
    """The backend of a folder, or of a server that serves it. Raises UserError when it cannot be had."""
    if url:
        return _http(url, folder, model_name)
    if folder is None:
        raise UserError("neither a model folder nor url= is given; name one of them")
    from serve.embedded import EmbeddedBackend

    return EmbeddedBackend(folder, max_batch_tokens=max_batch_tokens)


def _http(url: str, folder: Path | None, model_name: str) -> Backend:
    from pmem.route import HttpBackend

    from pmem.policy_file import model_hash
    from pmem.settings import RouteSettings

    settings = RouteSettings(
        url=url, model=model_name or (folder.name if folder else ""), model_hash=model_hash(folder) if folder else None
    )
    return HttpBackend(settings)
