"""Checkpoints that survive a kill at any moment: only whole ones are resumed, and only by the run that wrote them."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmem.atomic import write_text
from pmem.canonical import content_id
from pmem.errors import UserError
from train.run_state import RUN_STATE_NAME

FULL_DISK_WORDS = ("no space left", "pytorchstreamwriter failed", "disk quota", "errno 28", "os error 28")


def checkpoint_folder(out: Path) -> Path:
    """Where a stage keeps its checkpoints while it runs."""
    return Path(out) / "checkpoints"


def prepare(out: Path, fingerprint: dict[str, Any]) -> Path | None:
    """The newest whole checkpoint of the same run, or None after clearing what another run left.

    `fingerprint`: everything that must be equal for a checkpoint to be continued (config, data and base hashes).
    """
    folder = checkpoint_folder(out)
    note, wanted = folder / "run.json", content_id(fingerprint)
    try:
        same = json.loads(note.read_text(encoding="utf-8"))["fingerprint"] == wanted
    except (OSError, ValueError, KeyError):
        same = False
    if not same:
        shutil.rmtree(folder, ignore_errors=True)
        with writing(out):
            folder.mkdir(parents=True, exist_ok=True)
            write_text(note, json.dumps({"fingerprint": wanted, "run": fingerprint}, default=str) + "\n")
        return None
    return last_good(folder)


def last_good(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; half-written ones are removed."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for path in found:
        if (path / RUN_STATE_NAME).exists():
            return path
        shutil.rmtree(path, ignore_errors=True)
    return None


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn the many shapes of a full disk (torch, safetensors and the system each have one) into one sentence."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if not any(word in str(error).lower() for word in FULL_DISK_WORDS):
            raise
        raise UserError(
            f"no space left while writing {place}; free some space and run the same command again, "
            "it goes on from the last whole checkpoint"
        ) from None
