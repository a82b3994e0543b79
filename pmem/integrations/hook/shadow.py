"""Shadow mode: memory runs as it would, says nothing, and keeps what it would have said for the person to judge.

`<state>/shadow/said.jsonl` holds those texts (redacted, readable by their owner only); telemetry of shadow sessions stands in the
same folder, so that the books of what was really said stay clean.
"""

import json
import time
from collections import deque
from pathlib import Path
from typing import Any

from pmem.journal import Journal
from pmem.settings import Settings
from pmem.telemetry import timestamp


def shadow_settings(settings: Settings) -> Settings:
    """The same settings with state of their own. What was not said earns no lesson."""
    return settings.model_copy(update={"state_dir": settings.state_dir / "shadow", "lessons": False})


def said_file(settings: Settings) -> Path:
    return settings.state_dir / "shadow" / "said.jsonl"


class Shadow:
    """Appends in the background; best effort."""

    def __init__(self, settings: Settings) -> None:
        self._journal = Journal(said_file(settings))

    def record(self, client: str, session_id: str, event: str, text: str) -> None:
        """One answer that was not given."""
        row = {"at": timestamp(time.time()), "client": client, "session_id": session_id, "event": event, "text": text}
        self._journal.append(json.dumps(row, ensure_ascii=False))


def read_said(settings: Settings, *, newest: int) -> tuple[int, list[dict[str, Any]]]:
    """How many answers are kept, and the newest of them."""
    kept: deque[dict[str, Any]] = deque(maxlen=newest)
    num = 0
    path = said_file(settings)
    for file in (path.with_name(path.name + ".1"), path):
        if not file.exists():
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                kept.append(json.loads(line))
            except ValueError:
                continue
            num += 1
    return num, list(kept)
