"""InterCode results: a mapping of task id to `{query, environment, turn_history{actions, observations, rewards, …}}`."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from data.importers.base import Format, rollout, slug, success_of
from data.importers.documents import Document, Peek
from data.importers.effects import reads_like_error
from data.importers.events import EventLog, plain_text
from data.importers.reading import Record, members, need
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """A mapping whose values have a query and a turn history."""
    return any(_is_run(value) for value in peek.first.values()) or _is_run(peek.first)


def records(document: Document) -> Iterator[Record]:
    """The runs of the mapping, streamed."""
    yield from members(document)


def convert(run: Any, document: Document) -> Iterator[Rollout]:
    """One run -> one rollout. The reward that counts is the last turn's."""
    history = need(run, "turn_history", dict)
    environment = str(run.get("environment") or "intercode").removeprefix("ic_")
    tool = {"bash": "bash", "sql": "sql", "ctf": "bash", "python": "python"}.get(environment, environment)
    log = EventLog()
    log.user(run["query"])
    columns = (history.get("actions") or [], history.get("observations") or [], history.get("valid_action") or [])
    for action, observation, valid in zip_longest(*columns):
        call_id = log.call(tool, {"command": plain_text(action)})
        text = plain_text(observation)
        log.result(call_id, text, is_error=valid is False or reads_like_error(text) or text.startswith("Error"))
    dataset = slug(str(run.get("dataset") or environment).rsplit("/", 1)[-1].removesuffix(".json"))
    task_id = f"intercode-{dataset}-{run.get('task_id')}"
    reward = (run.get("summary") or {}).get("max_reward", (history.get("rewards") or [None])[-1])
    yield rollout(
        log,
        document,
        family=f"intercode-{environment}",
        task_id=task_id,
        agent="intercode-agent",
        record=task_id,
        outcome=success_of(reward, "best reward of a turn"),
    )


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and "turn_history" in value and "query" in value


FORMAT = Format(name="intercode", detects=detects, convert=convert, records=records)
