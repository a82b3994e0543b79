"""Files as importers see them: plain, gzip, bzip2, xz, or members of a zip, read as they are and never unpacked to disk.

    for document in open_path(Path("runs.zip")): peek = document.peek(); ...

`Peek` is what detection looks at: the first megabyte parsed as far as it goes, never the file's name.
"""

import bz2
import gzip
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import ijson

from pmem.errors import UserError

Layout = Literal["object", "array", "lines", "archive", "other"]
HEAD_BYTES = 1 << 20
MAX_SAMPLES = 60
BOM = b"\xef\xbb\xbf"
_OPENERS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open))
_ZIP = b"PK\x03\x04"


class CutOff(Exception):
    """The document ends in the middle of a record, at `where` when the place is known."""

    def __init__(self, reason: str, where: str | None = None) -> None:
        super().__init__(f"{where + ': ' if where else ''}the file is cut off in the middle of a record ({reason})")


class BadDocument(Exception):
    """The document cannot be read at all; the message is the reason."""


@dataclass(frozen=True)
class Peek:
    """The beginning of a document. `samples`: the object, the first array items, or the first lines, as far as parsed."""

    layout: Layout
    samples: list[Any] = field(default_factory=list)
    cut_off: bool = False
    """The whole document was looked at and ends inside a value."""

    @property
    def first(self) -> dict[str, Any]:
        """The first sample that is a JSON object, else an empty one."""
        return next((sample for sample in self.samples if isinstance(sample, dict)), {})

    def has(self, *keys: str) -> bool:
        """True when one sample holds all of `keys`."""
        return any(isinstance(sample, dict) and all(key in sample for key in keys) for sample in self.samples)


@dataclass(frozen=True)
class Document:
    """One readable stream: a file, or one member of a zip."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """What reports call it: the path, or `path!member`."""
        return f"{self.path}!{self.member}" if self.member else str(self.path)

    @property
    def stem(self) -> str:
        """The file's name without folders and without any suffix."""
        return Path(self.member or self.path).name.split(".")[0]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The decompressed bytes. Raises CutOff when a compressed stream ends early."""
        try:
            if self.member is not None:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                    yield _without_bom(stream)
            else:
                with _opener(self.path)(self.path, "rb") as stream:
                    yield _without_bom(stream)
        except (EOFError, zipfile.BadZipFile, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
            raise CutOff(f"compressed stream: {error}", self.member) from None

    @cached_property
    def peek(self) -> Peek:
        """Layout and first samples (parsed once)."""
        if self.member is None and _is_zip(self.path):
            return Peek("archive", [{"members": zipfile.ZipFile(self.path).namelist()}])
        with self.open() as stream:
            head = stream.read(HEAD_BYTES)
        return peek_bytes(head, whole=len(head) < HEAD_BYTES)


def peek_bytes(head: bytes, *, whole: bool = False) -> Peek:
    """Layout and samples of the first bytes of a document; `whole`: there are no more."""
    text = head.lstrip()
    if not text.startswith((b"{", b"[")):
        return Peek("other")
    if text.startswith(b"{"):
        lines = _whole_lines(text)
        if len(lines) > 1 or (lines and len(text.strip().split(b"\n")) > 1):
            return Peek("lines", lines)
    value, ended = _partial(text)
    if isinstance(value, list):
        return Peek("array", value[:MAX_SAMPLES], cut_off=whole and not ended)
    return Peek("object", [value], cut_off=whole and not ended)


def open_path(path: Path) -> Iterator[Document]:
    """The documents of a file: itself; for a zip that is not a log archive of its own, each member that holds JSON."""
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if not _is_zip(path):
        yield Document(path)
        return
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "header.json" in names or "_journal/start.json" in names:
        yield Document(path)
        return
    yield from (Document(path, name) for name in sorted(names) if not name.endswith("/"))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as stream:
        if not stream.read(4).startswith(_ZIP):
            return False
    if not zipfile.is_zipfile(path):
        raise CutOff("the zip's directory is missing")
    return True


def _opener(path: Path) -> Any:
    with path.open("rb") as stream:
        magic = stream.read(8)
    return next((opener for prefix, opener in _OPENERS if magic.startswith(prefix)), open)


def _without_bom(stream: Any) -> BinaryIO:
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)
    if buffered.peek(3)[:3] == BOM:
        buffered.read(3)
    return buffered


def _whole_lines(text: bytes) -> list[Any]:
    """The leading lines that are JSON objects by themselves; empty when the first one is not."""
    values: list[Any] = []
    lines = text.split(b"\n")
    for line in lines[: MAX_SAMPLES * 2]:
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            if not values:
                return []
    return values[:MAX_SAMPLES]


def _partial(text: bytes) -> tuple[Any, bool]:
    """The JSON value as far as the bytes go, and whether it ended: ijson's builder holds what was parsed before the end came."""
    builder = ijson.ObjectBuilder()
    try:
        for event, value in ijson.basic_parse(io.BytesIO(text), use_float=True):
            builder.event(event, value)
    except ijson.IncompleteJSONError:
        return getattr(builder, "value", None), False
    except (ijson.JSONError, ValueError):
        pass
    return getattr(builder, "value", None), True
