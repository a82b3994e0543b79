"""Canonical JSON and the content ids made from it (files.md: UTF-8, sorted keys, separators `,` and `:`, no ASCII escaping)."""

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> str:
    """The one text of `value` that may be hashed. Raises ValueError on NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(value: Any) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value` (leave volatile fields out before calling)."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
