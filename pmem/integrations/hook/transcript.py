"""What the agent said, read from the transcript that its client writes: the stated plan shows a lapse before it happens.

Only new lines are read, at most the last 256 KiB of them, and only assistant text and reasoning summaries are kept. A format
that is not understood gives nothing.
"""

import json
import stat
from pathlib import Path
from typing import Any

REACH = 262_144
"""Bytes read at most at a time."""


class Transcript:
    """Reads on where it stopped."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._offset = 0

    def new_texts(self, path: str | None) -> list[str]:
        """Texts of the agent since the last call, oldest first; empty when there is no readable file."""
        if path is None:
            return []
        try:
            return [text for line in self._new_lines(path) for text in spoken(line)]
        except OSError:
            return []

    def _new_lines(self, path: str) -> list[bytes]:
        file = Path(path)
        state = file.stat()
        if not stat.S_ISREG(state.st_mode):
            return []
        if path != self._path or state.st_size < self._offset:
            self._path, self._offset = path, 0
        start = max(self._offset, state.st_size - REACH)
        with file.open("rb") as stream:
            stream.seek(start)
            data = stream.read(REACH)
        if start > self._offset:
            data = data[data.find(b"\n") + 1 :]
            start = state.st_size - len(data)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset = start + len(whole)
        return whole.splitlines()


def spoken(line: bytes) -> list[str]:
    """Assistant texts of one line, in Claude Code's or Codex's shape."""
    if b"assistant" not in line and b"reasoning" not in line:
        return []
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if not isinstance(entry, dict) or entry.get("isSidechain") is True:
        return []
    if entry.get("type") == "assistant":
        message = entry.get("message")
        return _texts(message.get("content")) if isinstance(message, dict) else []
    payload = entry.get("payload")
    if entry.get("type") != "response_item" or not isinstance(payload, dict):
        return []
    if payload.get("type") == "reasoning":
        return _texts(payload.get("summary"))
    return _texts(payload.get("content")) if payload.get("role") == "assistant" else []


def _texts(blocks: Any) -> list[str]:
    if isinstance(blocks, str):
        return [blocks]
    if not isinstance(blocks, list):
        return []
    found = [block.get("text") or block.get("thinking") for block in blocks if isinstance(block, dict)]
    return [text for text in found if isinstance(text, str) and text.strip()]
