"""KnowAgent ALFWorld trajectories: a line a task, `{name, result, traj}`, the run as one text of `> action` and result lines."""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, success_of
from data.importers.documents import Document, Peek
from data.importers.events import EventLog
from data.importers.reading import need
from pmem.rollout import Rollout

_STATED = re.compile(r"^(?:think|actionpath)\s*:?\s*", re.IGNORECASE)


def detects(peek: Peek) -> bool:
    """The three keys, the run as text."""
    return peek.has("name", "result", "traj") and isinstance(peek.first.get("traj"), str)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One line -> one rollout. `Think` and `ActionPath` lines are what the agent states; every other `>` line is an act."""
    log = EventLog()
    task, _, run = need(record, "traj", str).partition("\n> ")
    log.user(task)
    for turn in run.split("\n> ") if run else []:
        action, _, result = turn.partition("\n")
        if _STATED.match(action):
            if not action.lower().startswith("actionpath"):
                log.thought(_STATED.sub("", action))
            continue
        verb, _, rest = action.strip().partition(" ")
        call_id = log.call(verb or "act", {"input": rest} if rest else {})
        log.result(call_id, result, is_error=result.strip() in {"Nothing happens.", "Nothing happens"})
    name = str(record["name"])
    yield rollout(
        log,
        document,
        family="knowagent-alfworld",
        task_id=name,
        split_key=f"alfworld-{name}",
        agent="knowagent-llama-2-13b",
        record=name,
        outcome=success_of(bool(record["result"]), "task success"),
    )


FORMAT = Format(name="knowagent", detects=detects, convert=convert)
