"""Bytes of checkpoints, named by their SHA-256: `blobs/ab/abcdef…` and `manifests/<hash>.json` beside the store.

A manifest lists files (path, hash, size, executable) and the locators it builds on. Nothing here is ever changed, only added.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pmem.canonical import canonical_json, file_sha256
from pmem.errors import UserError

_BLOCK = 1 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeptFile(_Strict):
    """One file of a checkpoint. `path`: relative, with slashes."""

    path: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]
    executable: bool = False


class Manifest(_Strict):
    """What a checkpoint holds. Its id is the hash of its canonical JSON."""

    format: Literal["pmem.manifest/1"] = "pmem.manifest/1"
    files: tuple[KeptFile, ...]
    base: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return hashlib.sha256(canonical_json(self.model_dump(mode="json")).encode()).hexdigest()


class ChangedMeanwhile(UserError):
    """A file changed while it was read."""


def put_file(folder: Path, source: Path, path: str) -> KeptFile:
    """Keep one file's bytes. Raises ChangedMeanwhile, OSError."""
    before = source.stat()
    digest = hashlib.sha256()
    blobs = folder / "blobs"
    with _temporary(blobs) as temporary:
        with source.open("rb") as reading, temporary.open("wb") as writing:
            while block := reading.read(_BLOCK):
                digest.update(block)
                writing.write(block)
            writing.flush()
            os.fsync(writing.fileno())
        after = source.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ChangedMeanwhile(f"{source} changed while it was read; publish again when nothing writes there")
        name = digest.hexdigest()
        place = blob_path(folder, name)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(place)
    return KeptFile(path=path, sha256=name, size=after.st_size, executable=bool(after.st_mode & 0o100))


def put_manifest(folder: Path, manifest: Manifest) -> Path:
    """Keep a manifest; the same one again is the same file."""
    place = manifest_path(folder, manifest.id)
    if not place.exists():
        with _temporary(place.parent) as temporary:
            with temporary.open("w", encoding="utf-8") as stream:
                stream.write(canonical_json(manifest.model_dump(mode="json")))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(place)
    return place


def read_manifest(folder: Path, manifest_id: str) -> Manifest | None:
    """The manifest of an id when it is there and whole."""
    try:
        manifest = Manifest.model_validate(json.loads(manifest_path(folder, manifest_id).read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return None
    return manifest if manifest.id == manifest_id else None


def missing_blobs(folder: Path, manifest: Manifest) -> list[str]:
    """Paths of a manifest whose bytes are not there or not of their size."""
    missing = []
    for file in manifest.files:
        place = blob_path(folder, file.sha256)
        if not place.is_file() or place.stat().st_size != file.size:
            missing.append(file.path)
    return missing


def restore_file(folder: Path, file: KeptFile, destination: Path) -> None:
    """Bring one file's bytes and check them. Raises UserError when they are not what the manifest says."""
    target = destination / safe_path(file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(blob_path(folder, file.sha256), target)
    if file_sha256(target) != file.sha256:
        target.unlink()
        raise UserError(f"bytes of {file.path} are damaged in {folder / 'blobs'}; restore them from a backup")
    target.chmod(0o755 if file.executable else 0o644)


def copy_missing(source: Path, target: Path) -> int:
    """Copy blobs and manifests of another store's folder that this one lacks; the number copied."""
    num = 0
    for part in ("blobs", "manifests"):
        for file in sorted((source / part).rglob("*")) if (source / part).is_dir() else ():
            place = target / file.relative_to(source)
            if file.is_file() and not file.name.endswith(".tmp-pmem") and not place.exists():
                with _temporary(place.parent) as temporary:
                    shutil.copyfile(file, temporary)
                    temporary.replace(place)
                num += 1
    return num


def sweep(folder: Path, *, older_than_s: float = 3_600.0) -> int:
    """Remove temporary files that a killed publication left; the number removed."""
    num = 0
    for part in ("blobs", "manifests"):
        for file in (folder / part).glob("*.tmp-pmem"):
            try:
                if time.time() - file.stat().st_mtime > older_than_s:
                    file.unlink()
                    num += 1
            except OSError:
                continue  # another process was quicker, or may not write here
    return num


def safe_path(path: str) -> Path:
    """A manifest's path as a relative path. Raises UserError for one that would leave the folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        raise UserError(f"path {path!r} of a checkpoint would leave its folder; publish with relative paths")
    return Path(*parts)


def blob_path(folder: Path, sha256: str) -> Path:
    return folder / "blobs" / sha256[:2] / sha256


def manifest_path(folder: Path, manifest_id: str) -> Path:
    return folder / "manifests" / f"{manifest_id}.json"


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(suffix=".tmp-pmem", dir=folder)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
