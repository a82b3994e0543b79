"""What an importer is: a name, a test of content, the records of a document, and one record turned into rollouts.

FORMAT = Format(name="tau-bench", detects=detects, convert=convert)        # one such value a file
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from data.importers.reading import BadRecord, Record, values
from pmem.rollout import Agent, Event, Outcome, Rollout, Source


@dataclass(frozen=True)
class Format:
    """One trajectory format. `records` streams; `convert` yields the rollouts of one record (most formats: exactly one).

    `convert` raises BadRecord, or any of `SHAPE_ERRORS` when the record is not shaped as its format promises.
    """

    name: str
    detects: Callable[[Peek], bool]
    convert: Callable[[Any, Document], Iterable[Rollout]]
    records: Callable[[Document], Iterator[Record]] = values


SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


def rollout(
    log: EventLog | list[Event],
    document: Document,
    *,
    family: str,
    task_id: str,
    agent: str,
    record: str,
    split_key: str | None = None,
    params: dict[str, Any] | None = None,
    outcome: Outcome | None = None,
) -> Rollout:
    """Put a rollout together. Licence and id are filled by the caller. Raises BadRecord when nothing happened in it.

    `split_key` defaults to the task id: datasets that share tasks (SWE-bench instances) then share splits.
    """
    events = log.events if isinstance(log, EventLog) else log
    if not any(event.kind in {"user", "tool_call"} for event in events):
        raise BadRecord("no user message and no tool call in it")
    return Rollout.model_construct(
        format="pmem.rollout/1",
        rollout_id="",
        task_id=task_id,
        family=family,
        split_key=split_key or task_id,
        seed=None,
        agent=Agent(name=agent or "unknown", params=params or {}),
        source=Source(name=family, file=document.name, record=record, licence=None),
        outcome=outcome or Outcome(),
        events=events,
    )


def success_of(score: Any, kind: str, *, threshold: float = 1.0) -> Outcome:
    """An outcome from a numeric reward; None when there is no number."""
    if isinstance(score, bool):
        return Outcome(success=score, score=float(score), kind=kind)
    if not isinstance(score, int | float):
        return Outcome(success=None, score=None, kind=None)
    return Outcome(success=score >= threshold - 1e-9, score=float(score), kind=kind)


def slug(text: str) -> str:
    """Letters, digits, dots and dashes of `text`, for family names."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "unknown"
