"""Content-free rows: one a completed step (`pmem.step/1`), one a billed call (`pmem.usage/1`). Nothing of anybody's text.

`FileTelemetry` writes `<state>/memory/steps.jsonl` and `<state>/usage/out-of-turn.jsonl` in the background.
`Ledger` keeps rows in memory.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pmem.journal import Journal
from pmem.outcomes import REASONS, Decision, Reason
from pmem.settings import Settings
from pmem.snapshot import Trigger

Count = Annotated[int, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClassDelta(_Row):
    added: Count = 0
    updated: Count = 0
    deleted: Count = 0


class RowDelta(_Row):
    """Entries changed by a step, a class."""

    status: ClassDelta = ClassDelta()
    knowledge: ClassDelta = ClassDelta()
    procedural: ClassDelta = ClassDelta()


class StepRow(_Row):
    """One completed memory step; counts, outcomes and names of routes only."""

    at: str
    format: Literal["pmem.step/1"] = "pmem.step/1"
    triggers: Annotated[tuple[Trigger, ...], Field(min_length=1, max_length=3)]
    tier: Literal["rules", "llm"]
    bank_delta: RowDelta = RowDelta()
    decision: Decision
    reason: Reason
    num_operations: Count = 0
    num_dropped: Count = 0
    num_cited: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    tokens_total: Count = 0
    latency_ms: Annotated[float, Field(ge=0)] = 0.0
    prob_speak: Annotated[float, Field(ge=0, le=1)] | None = None
    label_mass: Annotated[float, Field(ge=0)] | None = None
    threshold_id: str | None = None
    route: str | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "StepRow":
        if self.reason not in REASONS[self.decision]:
            raise ValueError(f"reason {self.reason!r} does not belong to decision {self.decision!r}")
        if self.tokens_total != self.tokens_in + self.tokens_out:
            raise ValueError("tokens_total is not the sum of tokens_in and tokens_out")
        return self


class UsageRow(_Row):
    """One call that cost something, under the route and model that really spent it."""

    at: str
    format: Literal["pmem.usage/1"] = "pmem.usage/1"
    label: Literal["background-memory"] = "background-memory"
    route: str
    model: str
    tokens_in: Count = 0
    tokens_out: Count = 0
    cached_tokens: Count = 0
    duration_ms: Annotated[float, Field(ge=0)] = 0.0
    outcome: str


class Telemetry(Protocol):
    """Where rows go. Neither method may block or raise."""

    def step(self, row: StepRow) -> None: ...

    def usage(self, row: UsageRow) -> None: ...

    def close(self) -> None: ...


@dataclass
class Ledger:
    """Rows kept in memory: replay, evaluation, tests."""

    steps: list[StepRow] = field(default_factory=list)
    usages: list[UsageRow] = field(default_factory=list)

    def step(self, row: StepRow) -> None:
        self.steps.append(row)

    def usage(self, row: UsageRow) -> None:
        self.usages.append(row)

    def close(self) -> None:
        """Nothing to flush."""


class FileTelemetry:
    """Rows appended in the background. `lost` counts rows that a full disk or a read-only folder swallowed."""

    def __init__(self, settings: Settings) -> None:
        self._steps = Journal(settings.steps_file)
        self._usage = Journal(settings.usage_file, max_bytes=None)

    @property
    def lost(self) -> int:
        return self._steps.lost + self._usage.lost

    def step(self, row: StepRow) -> None:
        self._steps.append(row.model_dump_json())

    def usage(self, row: UsageRow) -> None:
        self._usage.append(row.model_dump_json())

    def close(self) -> None:
        self._steps.flush()


def timestamp(seconds: float) -> str:
    """Canonical UTC time of a row: `2026-01-31T12:00:00.000Z`. Total: a clock out of range gives the epoch."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Row = TypeVar("Row", bound=BaseModel)


@dataclass
class Rows:
    """What `read_rows` skipped: lines cut off, of another format, or not JSON."""

    num_skipped: int = 0


def read_rows(path: Path, kind: type[Row], skipped: Rows | None = None) -> Iterator[Row]:
    """Rows of the old generation, then of the current one. A broken line is skipped and counted, a missing file is empty."""
    skipped = skipped or Rows()
    for file in (path.with_name(path.name + ".1"), path):
        if not file.exists():
            continue
        with file.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if not line.strip():
                    continue
                try:
                    yield kind.model_validate(json.loads(line))
                except (ValueError, ValidationError, RecursionError):
                    skipped.num_skipped += 1
