"""Bring the files behind a locator, bases before what builds on them. Everything is checked before a file is written.

    materialize(store, "les-…", Path("workspace"))

Refused with the id: a dependency cycle, a missing record, manifest or file, a directory that changed since it was registered.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmem.canonical import content_id
from pmem.errors import UserError
from pmem.lessons.blobs import Manifest, missing_blobs, read_manifest, restore_file
from pmem.lessons.records import LOCATORS, Record
from pmem.lessons.repository import repository_of
from pmem.lessons.session_start import Start, record_delivery
from pmem.lessons.store import LessonStore

MAX_DIRECTORY_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Materialized:
    """`order`: the records whose files were brought, bases first."""

    order: tuple[str, ...]
    num_files: int


def materialize(store: LessonStore, record_id: str, destination: Path) -> Materialized:
    """Write a locator's files into an empty or new folder. Raises UserError before anything is written."""
    destination = Path(destination)
    if destination.exists() and any(destination.iterdir()):
        raise UserError(f"{destination} is not empty; name a new folder")
    order = resolve(store, record_id)
    manifests = {record.id: _checked(store, record) for record in order}
    destination.mkdir(parents=True, exist_ok=True)
    num = 0
    for record in order:
        manifest = manifests[record.id]
        if manifest is None:
            num += _copy_directory(Path(record.payload["path"]), destination)
        else:
            for file in manifest.files:
                restore_file(store.folder, file, destination)
            num += len(manifest.files)
    names = tuple(record.id for record in order)
    told = Start(session="files", repository=repository_of(destination), text="", delivered=names, cut=(), num_cut=0, tokens=0)
    record_delivery(store, told, route="materialize")
    return Materialized(names, num)


def resolve(store: LessonStore, record_id: str) -> list[Record]:
    """A locator and everything it builds on, bases first, each once. Raises UserError naming the id that cannot be resolved."""
    order: dict[str, Record] = {}
    resolving: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in resolving:
            raise UserError(f"dependency cycle at {name}: {' -> '.join([*resolving, name])}; unlink one of them")
        record = store.find(name)
        if record is None or record.kind not in LOCATORS:
            raise UserError(
                f"{name} is no directory or checkpoint of the store; it is needed by {resolving[-1] if resolving else 'you'}"
            )
        resolving.append(record.id)
        for base in store.targets(record.id, "base"):
            visit(base)
        for base in record.payload.get("base", []):
            visit(base)
        resolving.pop()
        order[record.id] = record

    visit(store.get(record_id).id)
    return list(order.values())


def directory_payload(path: Path) -> dict[str, Any]:
    """What a directory locator keeps: where it is and how it looked. Raises UserError when it is none."""
    place = path.resolve()
    if not place.is_dir():
        raise UserError(f"{path} is no folder; name one that exists")
    fingerprint, num = directory_fingerprint(place)
    return {"path": str(place), "fingerprint": fingerprint, "num_files": num}


def directory_fingerprint(place: Path) -> tuple[str, int]:
    """Hash over names, sizes and times of change of a folder's files, and their number."""
    seen: list[list[Any]] = []
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            file = Path(folder) / name
            stat = file.lstat()
            seen.append([file.relative_to(place).as_posix(), stat.st_size, stat.st_mtime_ns])
        if len(seen) > MAX_DIRECTORY_FILES:
            raise UserError(f"{place} holds over {MAX_DIRECTORY_FILES:,} files; publish a part of it as a checkpoint")
    return content_id(seen), len(seen)


def _checked(store: LessonStore, record: Record) -> Manifest | None:
    """The manifest of a checkpoint with all its bytes there; None for an unchanged directory."""
    if record.kind == "directory":
        place = Path(record.payload["path"])
        if not place.is_dir():
            raise UserError(f"{record.id}: its directory {place} is not there; bring it back or withdraw the record")
        if directory_fingerprint(place)[0] != record.payload["fingerprint"]:
            raise UserError(f"{record.id}: its directory {place} changed since it was registered; register it anew")
        return None
    manifest = read_manifest(store.folder, record.payload["manifest"])
    if manifest is None:
        raise UserError(f"{record.id}: its manifest {record.payload['manifest']} is missing or damaged; restore it from a backup")
    missing = missing_blobs(store.folder, manifest)
    if missing:
        raise UserError(f"{record.id}: bytes of {', '.join(missing[:5])} are missing; restore them from a backup")
    return manifest


def _copy_directory(source: Path, destination: Path) -> int:
    num = 0
    for file in sorted(source.rglob("*")):
        if file.is_file() and not file.is_symlink():
            target = destination / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            num += 1
    return num
