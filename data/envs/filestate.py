"""The state of a task is its files: read a folder into memory, compare, apply a change, write it back.

Commands run in subshells, so no shell state survives one; equal files are equal states. Modification times are not part of a
state (no family reads them), nor are paths a family calls volatile (git's index repeats them): kept and restored, not compared.
"""

import hashlib
import os  # the hot path of every execution: pathlib costs several times as much
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DIRECTORY, FILE, LINK = "d", "f", "l"
_MODULUS = 2**128


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file, folder or link (its content is the target). `mark` hashes path, kind and content; 0 = not compared."""

    kind: str
    executable: bool
    content: bytes
    mark: int


Change = Mapping[str, FileEntry | None]
"""What an act did to the files: path -> new entry, None where it is gone."""


@dataclass(frozen=True, slots=True)
class FileState:
    """All files of a task. `digest` is the sum of the marks: equal digests are equal states. `volatile` paths have no mark."""

    entries: Mapping[str, FileEntry]
    digest: int
    volatile: tuple[str, ...] = ()

    def text(self, path: str) -> str | None:
        """Content of a regular file, None when there is none at `path`."""
        entry = self.entries.get(path)
        return entry.content.decode("utf-8", "replace") if entry and entry.kind == FILE else None

    def change_to(self, other: "FileState") -> Change:
        """What makes `other` of this state."""
        gone: dict[str, FileEntry | None] = {path: None for path in self.entries if path not in other.entries}
        new = {path: entry for path, entry in other.entries.items() if self.entries.get(path) != entry}
        return gone | new

    def changed(self, change: Change) -> "FileState":
        """This state after a change."""
        entries, digest = dict(self.entries), self.digest
        for path, entry in change.items():
            old = entries.pop(path, None)
            digest -= old.mark if old else 0
            if entry is not None:
                entries[path] = entry
                digest += entry.mark
        missing = {folder for path, entry in change.items() if entry for folder in folders_of(path) if folder not in entries}
        for folder in missing:
            entries[folder] = file_entry(folder, DIRECTORY, False, b"", compared=not is_under(folder, self.volatile))
            digest += entries[folder].mark
        return FileState(entries, digest % _MODULUS, self.volatile)

    def part(self, prefixes: tuple[str, ...]) -> int:
        """Digest of the files named by `prefixes` (a path, or a folder ending in `/`)."""
        return sum(entry.mark for path, entry in self.entries.items() if is_under(path, prefixes)) % _MODULUS


def folders_of(path: str) -> list[str]:
    """The folders above a path: `a/b/c` -> `a`, `a/b`."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_under(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether `path` is one of `prefixes` or lies in one that ends in `/`."""
    return any(path == prefix or (prefix.endswith("/") and path.startswith(prefix)) for prefix in prefixes)


def file_entry(path: str, kind: str, executable: bool, content: bytes, *, compared: bool = True) -> FileEntry:
    """An entry with its mark."""
    head = f"{path}\0{kind}{int(executable)}\0".encode("utf-8", "surrogateescape")
    mark = int.from_bytes(hashlib.blake2b(head + content, digest_size=16).digest(), "big") if compared else 0
    return FileEntry(kind, executable, content, mark)


def file_state(entries: Mapping[str, FileEntry], volatile: tuple[str, ...] = ()) -> FileState:
    return FileState(entries, sum(entry.mark for entry in entries.values()) % _MODULUS, volatile)


EMPTY = file_state({})


def read_state(root: Path, volatile: tuple[str, ...] = ()) -> FileState:
    """Read every file under `root`; links are not followed."""
    entries: dict[str, FileEntry] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(f"{root}/{folder}") as found:
            for entry in found:
                path = f"{folder}{entry.name}"
                kind, executable, content = _read(entry)
                if kind == DIRECTORY:
                    pending.append(f"{path}/")
                if kind:
                    entries[path] = file_entry(path, kind, executable, content, compared=not is_under(path, volatile))
    return file_state(entries, volatile)


def write_state(root: Path, wanted: FileState, present: FileState) -> None:
    """Make the folder equal `wanted`, touching only what differs from `present`, which must be what stands there now."""
    change = present.change_to(wanted)
    for path in sorted(change, reverse=True):
        old, new = present.entries.get(path), change[path]
        if old and (new is None or new.kind != old.kind or old.kind != DIRECTORY):
            _remove(f"{root}/{path}", old.kind)
    for path in sorted(change):
        if (entry := change[path]) is not None:
            _write(f"{root}/{path}", entry)


def _read(entry: os.DirEntry[str]) -> tuple[str, bool, bytes]:
    if entry.is_symlink():
        return LINK, False, os.fsencode(os.readlink(entry.path))
    if entry.is_dir(follow_symlinks=False):
        return DIRECTORY, False, b""
    if not entry.is_file(follow_symlinks=False):
        return "", False, b""
    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        return FILE, bool(status.st_mode & 0o100), os.read(handle, status.st_size + 1)
    finally:
        os.close(handle)


def _remove(path: str, kind: str) -> None:
    if kind == DIRECTORY:
        os.rmdir(path)
    else:
        os.unlink(path)


def _write(path: str, entry: FileEntry) -> None:
    if entry.kind == DIRECTORY:
        os.makedirs(path, exist_ok=True)
    elif entry.kind == LINK:
        os.symlink(os.fsdecode(entry.content), path)
    else:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if entry.executable else 0o644)
        with os.fdopen(handle, "wb") as stream:
            stream.write(entry.content)
