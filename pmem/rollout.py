"""The rollout file, `pmem.rollout/1`: one JSON line a rollout; importers and environments write it, replay reads it.

Events rather than flat steps: triggers, user turns and compactions need them (docs/design/files.md).
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pmem.atomic import replacing
from pmem.canonical import canonical_json, content_id
from pmem.errors import UserError

FORMAT = "pmem.rollout/1"
EventKind = Literal["user", "thought", "assistant", "tool_call", "tool_result", "compaction", "turn_end", "loop_signal"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Event(_Strict):
    """One thing that happened. A `tool_result` repeats the `call_id` of its `tool_call`; `i` counts from 0 within the rollout."""

    i: int
    kind: EventKind
    call_id: str | None = None
    batch_id: str | None = None
    tool: str | None = None
    args: dict[str, Any] | None = None
    text: str | None = None
    is_error: bool | None = None
    error_kind: str | None = None
    changes_workspace: bool | None = None
    is_probe: bool | None = None
    own_reminder: bool | None = None
    t_ms: float | None = None


class Agent(_Strict):
    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class Source(_Strict):
    name: str
    file: str | None = None
    record: str | None = None
    licence: str | None = None


class Outcome(_Strict):
    success: bool | None = None
    score: float | None = None
    kind: str | None = None


class Rollout(_Strict):
    """One run of an agent on a task."""

    format: Literal["pmem.rollout/1"] = "pmem.rollout/1"
    rollout_id: str = ""
    task_id: str
    family: str
    split_key: str
    seed: int | None = None
    agent: Agent
    source: Source
    outcome: Outcome
    events: list[Event]

    def with_id(self) -> "Rollout":
        """A copy whose `rollout_id` is the content hash without volatile fields (times, ids, file paths)."""
        value = self.model_dump(mode="json")
        value.pop("rollout_id")
        value["source"].pop("file")
        for event in value["events"]:
            event.pop("t_ms")
        return self.model_copy(update={"rollout_id": content_id(value)})


def read_rollouts(path: Path) -> Iterator[Rollout]:
    """Yield rollouts one at a time in constant memory; `.gz` files are read as they are. Raises UserError with file and line."""
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            yield _parse_line(line, path, number)


def write_rollouts(path: Path, rollouts: Iterable[Rollout]) -> int:
    """Write rollouts, one canonical JSON line each, in the order given; returns how many."""
    count = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for rollout in rollouts:
            stream.write(canonical_json(rollout.model_dump(mode="json")) + "\n")
            count += 1
    return count


def _lines(path: Path) -> Iterator[str]:
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as stream:
            yield from stream
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; name a {FORMAT} file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file; write it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; mend it or name another") from None


def _parse_line(line: str, path: Path, number: int) -> Rollout:
    try:
        return Rollout.model_validate(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        place = f"key {key!r}: " if key else ""
        hint = f"expected a {FORMAT} record (`python -m data.import_rollouts` makes them of other formats)"
        raise UserError(f"{path} line {number}: {place}{first['msg']}; {hint}") from None
    except (ValueError, RecursionError) as error:
        told = getattr(error, "msg", None) or str(error).partition(";")[0]
        hint = "the file may be cut off: write it again; or of another format: `python -m data.import_rollouts`"
        raise UserError(f"{path} line {number}: not valid JSON ({told}); {hint}") from None
