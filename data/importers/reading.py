"""Records of a document, one at a time in constant memory, whatever it is: one object, an array of them, or one a line.

A line or record that is not valid JSON comes back as a `Record` with `error` set, so that the caller can report it and go on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ijson

from data.importers.documents import BadDocument, CutOff, Document


class BadRecord(Exception):
    """One record is not what its format promises; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Record:
    """`where` is what a report names: `line 3`, `record 5`, or the key of a mapping. Exactly one of value and error is set."""

    where: str
    value: Any = None
    error: str | None = None


def values(document: Document) -> Iterator[Record]:
    """Every record of an object, an array of objects or a file of JSON lines."""
    if document.peek.layout == "array":
        yield from items(document, "item")
    elif document.peek.layout == "lines":
        yield from lines(document)
    else:
        yield from _object_or_lines(document)


def lines(document: Document) -> Iterator[Record]:
    """JSON lines. Raises CutOff when the last line has no end and is not valid JSON."""
    with document.open() as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _line(line, number)


def session(document: Document) -> Iterator[Record]:
    """A file of lines that is one record: every good line, in order. Bad lines come first, each as its own `Record`."""
    found: list[Any] = []
    for record in lines(document):
        if record.error or not isinstance(record.value, dict):
            yield Record(record.where, error=record.error or "not a JSON object")
        else:
            found.append(record.value)
    if found:
        yield Record("session", found)


def items(document: Document, prefix: str) -> Iterator[Record]:
    """The elements of the array at `prefix` (ijson's notation: `item`, `simulations.item`), streamed."""
    with document.open() as stream, _syntax(document, "record"):
        for number, value in enumerate(ijson.items(stream, prefix, use_float=True), start=1):
            yield Record(f"record {number}", value)


def members(document: Document, prefix: str = "") -> Iterator[Record]:
    """The values of the mapping at `prefix`, streamed; `where` is the key."""
    with document.open() as stream, _syntax(document, "key"):
        for key, value in ijson.kvitems(stream, prefix, use_float=True):
            yield Record(f"key {key!r}", value)


def whole(document: Document) -> Any:
    """The one JSON value of a document. Raises CutOff or BadDocument."""
    with document.open() as stream:
        return _parse_whole(stream.read(), document)


def need(value: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    """`value[key]`, or BadRecord naming the key when it is missing or of another type."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        wanted = kind.__name__ if isinstance(kind, type) else " or ".join(part.__name__ for part in kind)
        raise BadRecord(f"key {key!r} must be {wanted}, found {type(found).__name__}")
    return found


def _line(line: bytes, number: int) -> Record:
    try:
        return Record(f"line {number}", json.loads(line))
    except RecursionError:
        return Record(f"line {number}", error="nested too deeply")
    except ValueError as error:
        if not line.endswith(b"\n"):
            raise CutOff(_reason(error), f"line {number}") from None
        return Record(f"line {number}", error=f"not valid JSON ({_reason(error)})")


def _object_or_lines(document: Document) -> Iterator[Record]:
    """An object over many lines, or a file of lines whose first one is longer than what detection looked at."""
    with document.open() as stream:
        first = stream.readline()
        try:
            value = json.loads(first)
        except ValueError:
            yield Record("record 1", _parse_whole(first + stream.read(), document))
            return
        yield Record("line 1", value)
        for number, line in enumerate(stream, start=2):
            if line.strip():
                yield _line(line, number)


def _parse_whole(data: bytes, document: Document) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise BadDocument("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise BadDocument(f"not UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        if error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg:
            raise CutOff(error.msg, document.member) from None
        raise BadDocument(f"not valid JSON ({error.msg} at line {error.lineno})") from None


class _syntax:
    """Turn ijson's errors into ours: the end of the stream inside a value is CutOff, anything else BadDocument."""

    def __init__(self, document: Document, unit: str) -> None:
        self.document, self.unit = document, unit

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ijson.IncompleteJSONError):
            raise CutOff(_reason(error), self.document.member) from None
        if isinstance(error, ijson.JSONError):
            raise BadDocument(f"not valid JSON ({_reason(error)})") from None


def _reason(error: BaseException) -> str:
    """The first words of an error; ijson's drawing of the place is left out."""
    return " ".join(str(error).split("\n")[0].split())[:120]
