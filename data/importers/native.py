"""`pmem.rollout/1` itself, so that one command also merges, checks and re-licenses rollout files."""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format
from data.importers.documents import Document, Peek
from pmem.rollout import FORMAT as ROLLOUT_FORMAT
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """The format's own name."""
    return peek.first.get("format") == ROLLOUT_FORMAT


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """The record, validated."""
    yield Rollout.model_validate(record)


FORMAT = Format(name="pmem-rollout", detects=detects, convert=convert)
