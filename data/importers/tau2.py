"""tau2-bench results: `{info, tasks[], simulations[]}`, and single recorded simulations (human trajectories).

Both sides may call tools; calls of the simulated user are left out: the agent never saw them.
Runs without a user (solo) begin with the ticket, which the agent's prompt showed.
"""

from collections.abc import Iterator
from typing import Any

import ijson

from data.importers.base import Format, rollout, success_of
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import Record, items, need, values
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """A results file names its domain; a single simulation has messages with turn indices and a termination reason."""
    info = peek.first.get("info")
    if isinstance(info, dict) and "environment_info" in info:
        return True
    return peek.has("messages", "termination_reason", "task_id")


def records(document: Document) -> Iterator[Record]:
    """Simulations one at a time, each with the domain, the model and its task's ticket."""
    if "messages" in document.peek.first:
        for record in values(document):
            yield record if record.error else Record(record.where, {"simulation": record.value, "domain": _from_path(document)})
        return
    info, tickets = _info(document), _tickets(document)
    for record in items(document, "simulations.item"):
        task_id = str(record.value.get("task_id"))
        yield Record(record.where, {"simulation": record.value, **info, "ticket": tickets.get(task_id)})


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One simulation -> one rollout."""
    simulation, domain = record["simulation"], record.get("domain") or "unknown"
    task = str(need(simulation, "task_id", (str, int)))
    log = EventLog()
    messages = need(simulation, "messages", list)
    if record.get("ticket") and not any(message["role"] == "user" for message in messages):
        log.user(record["ticket"])
    for message in messages:
        add_message(log, message)
    reward = (simulation.get("reward_info") or {}).get("reward")
    task_id = f"tau-{domain}-{task}"
    yield rollout(
        log,
        document,
        family=f"tau2-{domain}",
        task_id=task_id,
        agent=record.get("agent") or "human",
        record=str(simulation["id"]),
        params={"termination_reason": simulation.get("termination_reason")},
        outcome=success_of(reward, "reward"),
    )


def add_message(log: EventLog, message: dict[str, Any]) -> None:
    """Note one message as the agent saw it."""
    role = message["role"]
    if role == "user":
        log.user(message.get("content"))
    elif role == "assistant":
        _assistant(log, message)
    elif role == "tool" and message.get("requestor") != "user":
        results = message.get("tool_messages") or [message]
        for result in results:
            log.result(result.get("id"), result.get("content"), is_error=bool(result.get("error")))


def _assistant(log: EventLog, message: dict[str, Any]) -> None:
    calls = message.get("tool_calls") or []
    log.thought(message.get("reasoning"))
    (log.thought if calls else log.assistant)(message.get("content"))
    batch = f"batch-{len(log.events)}" if len(calls) > 1 else None
    for call in calls:
        log.call(plain_text(call["name"]), call.get("arguments"), call_id=call.get("id"), batch_id=batch)


def _info(document: Document) -> dict[str, Any]:
    with document.open() as stream:
        info: dict[str, Any] = next(ijson.items(stream, "info", use_float=True), {})
    return {"domain": info["environment_info"].get("domain_name"), "agent": (info.get("agent_info") or {}).get("llm")}


def _tickets(document: Document) -> dict[str, str]:
    """Ticket by task id; a small part of the file, kept in memory."""
    with document.open() as stream:
        return {
            str(task["id"]): str(task["ticket"])
            for task in ijson.items(stream, "tasks.item", use_float=True)
            if task.get("ticket")
        }


def _from_path(document: Document) -> str:
    """A single simulation does not name its domain; its folder does."""
    parts = f"{document.path.parent.name}/{document.stem}".lower()
    return next((name for name in ("airline", "retail", "telecom") if name in parts), "unknown")


FORMAT = Format(name="tau2", detects=detects, convert=convert, records=records)
