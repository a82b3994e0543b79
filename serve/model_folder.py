"""What a folder must hold before a route serves it, said in one sentence when it does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pmem.errors import UserError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_model_folder(folder: Path) -> None:
    """Raise UserError naming what `folder` lacks: configuration, weights, tokenizer or chat template."""
    if not folder.is_dir():
        raise UserError(f"model folder {folder} does not exist; name the folder that `python -m train.sft` wrote")
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} holds no config.json; name a folder with a whole transformers model")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise UserError(f"{folder} holds no weights (*.safetensors); merge the adapter, or name the merged model folder")
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise UserError(f"{folder} holds no tokenizer; copy the tokenizer files of its base model beside the weights")
    if not _has_template(folder):
        raise UserError(f"{folder} has no chat template; copy chat_template.jinja of its base model beside the weights")


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").exists() or (folder / "chat_template.json").exists():
        return True
    config = folder / "tokenizer_config.json"
    return config.exists() and '"chat_template"' in config.read_text(encoding="utf-8")


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Turn what transformers says of damaged weights or a damaged tokenizer into one sentence."""
    from safetensors import SafetensorError

    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder} cannot be loaded ({reason[:200]}); copy it again, or train it again") from None
