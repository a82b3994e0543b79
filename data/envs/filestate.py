"""The state of a task is its files: read a folder into memory, hash it, write it back.

Commands run in subshells, so no shell state survives one; equal files are equal states. Modification times are not part of a state
(no family reads them), nor are paths a family calls volatile, such as git's index, which repeats them.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

DIRECTORY, FILE, LINK = "d", "f", "l"


@dataclass(frozen=True, slots=True)
class FileState:
    """`entries`: relative path -> (kind, executable, content); a link's content is its target, never what it points to."""

    entries: Mapping[str, tuple[str, bool, bytes]]
    digest: bytes

    def text(self, path: str) -> str | None:
        """Content of a regular file, None when there is none at `path`."""
        kind, _, content = self.entries.get(path, (DIRECTORY, False, b""))
        return content.decode("utf-8", "replace") if kind == FILE else None


def file_state(entries: Mapping[str, tuple[str, bool, bytes]], volatile: tuple[str, ...] = ()) -> FileState:
    """A state with its digest; `volatile` are path patterns kept in the state but left out of the digest."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(entries):
        if any(fnmatch(path, pattern) for pattern in volatile):
            continue
        kind, executable, content = entries[path]
        digest.update(f"{path}\0{kind}{int(executable)}{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return FileState(entries, digest.digest())


def read_state(root: Path, volatile: tuple[str, ...] = ()) -> FileState:
    """Read every file under `root`; links are not followed."""
    entries: dict[str, tuple[str, bool, bytes]] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(root, folder)) as found:
            for entry in found:
                path = f"{folder}{entry.name}"
                if entry.is_symlink():
                    entries[path] = (LINK, False, os.fsencode(os.readlink(entry.path)))
                elif entry.is_dir(follow_symlinks=False):
                    entries[path] = (DIRECTORY, False, b"")
                    pending.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    entries[path] = _read_file(entry.path)
    return file_state(entries, volatile)


def write_state(root: Path, wanted: FileState, present: FileState) -> None:
    """Make the folder equal `wanted`, touching only what differs from `present`, which must be what stands there now."""
    old = present.entries
    for path in sorted(old, reverse=True):
        if path not in wanted.entries or wanted.entries[path][0] != old[path][0]:
            _remove(os.path.join(root, path), old[path][0])
    for path in sorted(wanted.entries):
        if path not in old or old[path] != wanted.entries[path]:
            _write(os.path.join(root, path), *wanted.entries[path])


EMPTY = file_state({})


def _read_file(path: str) -> tuple[str, bool, bytes]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as stream:
        return FILE, bool(os.fstat(handle).st_mode & 0o100), stream.read()


def _remove(path: str, kind: str) -> None:
    os.rmdir(path) if kind == DIRECTORY else os.unlink(path)


def _write(path: str, kind: str, executable: bool, content: bytes) -> None:
    if kind == DIRECTORY:
        os.makedirs(path, exist_ok=True)
        return
    if os.path.lexists(path):
        os.unlink(path)
    if kind == LINK:
        os.symlink(os.fsdecode(content), path)
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if executable else 0o644)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
