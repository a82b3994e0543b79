"""ATIF trajectories (Harbor, v1.x): `{schema_version, agent, steps[{source, message, tool_calls, observation}]}`.

A trajectory that `data.export_atif` wrote carries under `extra.pmem` what ATIF has no field for, and comes back event by event.
Others have no error flags: terminal output is judged by how it reads. Steps copied from an earlier trajectory are left out.
"""

import json
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout
from data.importers.documents import Document, Peek
from data.importers.effects import reads_like_error
from data.importers.events import EventLog, plain_text
from data.importers.openhands import add_text_call
from data.importers.outcomes import beside
from data.importers.reading import need
from pmem.rollout import Agent, Event, Outcome, Rollout, Source

_SUMMARISED = ("context summarization", "context was summarized", "context compaction")


def detects(peek: Peek) -> bool:
    """The schema says so."""
    return any(isinstance(sample, dict) and str(sample.get("schema_version", "")).startswith("ATIF") for sample in peek.samples)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One trajectory -> one rollout; embedded sub-agent trajectories are their own business and left out."""
    ours = (record.get("extra") or {}).get("pmem")
    if ours is not None:
        yield restored(record, ours)
        return
    log = EventLog()
    for step in need(record, "steps", list):
        if not step.get("is_copied_context"):
            _step(log, step)
    name = str(record.get("trajectory_id") or record.get("session_id") or document.stem)
    task_id = document.stem if name.startswith("NORMALIZED") else name
    agent = record.get("agent") or {}
    yield rollout(
        log,
        document,
        family=f"atif-{agent.get('name') or 'agent'}",
        task_id=task_id,
        agent=str(agent.get("model_name") or agent.get("name") or "unknown"),
        record=task_id,
        outcome=_outcome(record, document, task_id),
    )


def _step(log: EventLog, step: dict[str, Any]) -> None:
    text = plain_text(step.get("message"))
    if step["source"] == "user":
        log.user(text)
    elif step["source"] == "system":
        if any(words in text.lower() for words in _SUMMARISED):
            log.mark("compaction")
    else:
        _agent(log, step, text)


def _agent(log: EventLog, step: dict[str, Any], text: str) -> None:
    log.thought(step.get("reasoning_content"))
    calls = [call for call in step.get("tool_calls") or [] if call.get("function_name") != "finish"]
    results = (step.get("observation") or {}).get("results") or []
    if calls:
        log.thought(text)
        batch = f"step-{step.get('step_id')}" if len(calls) > 1 else None
        for call in calls:
            log.call(plain_text(call["function_name"]), call.get("arguments"), call_id=call.get("tool_call_id"), batch_id=batch)
    elif "<function=" in text:
        add_text_call(log, text)
    elif not (results and _written_commands(log, text)):
        log.assistant(text)
    _results(log, results)


def _results(log: EventLog, results: list[Any]) -> None:
    """A result without a call id is the terminal after all calls of the step: it belongs to the last, the others get none."""
    for result in results:
        if "content" not in result:
            continue
        text, waiting = plain_text(result.get("content")), log.unanswered()
        call_id = result.get("source_call_id")
        if call_id is None and waiting:
            for earlier in waiting[:-1]:
                log.result(earlier, "", is_error=False)
            call_id = waiting[-1]
        if call_id is not None:
            log.result(call_id, text, is_error=reads_like_error(text))


def _written_commands(log: EventLog, text: str) -> bool:
    """An answer kept as the model wrote it: `{"analysis", "plan", "commands": [{"keystrokes"}]}`."""
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    if not isinstance(answer, dict) or not isinstance(answer.get("commands"), list):
        return False
    log.thought("\n".join(plain_text(answer.get(key)) for key in ("analysis", "plan")))
    batch = f"batch-{len(log.events)}" if len(answer["commands"]) > 1 else None
    for command in answer["commands"]:
        log.call("bash_command", command, batch_id=batch)
    return True


def _outcome(record: dict[str, Any], document: Document, task_id: str) -> Outcome:
    """Rewards stand beside ATIF files; some producers write a verdict into the final metrics."""
    verdict = ((record.get("final_metrics") or {}).get("extra") or {}).get("verdict")
    if verdict in {"PASS", "FAIL"}:
        return Outcome(success=verdict == "PASS", score=float(verdict == "PASS"), kind="verdict of the producer")
    return beside(document, task_id)


def restored(record: dict[str, Any], ours: dict[str, Any]) -> Rollout:
    """The rollout that `data.export_atif` wrote."""
    events: list[Event] = []
    for step in record["steps"]:
        for fields in _exported_events(step):
            events.append(Event(i=len(events), **fields))
    agent = record["agent"]
    return Rollout(
        task_id=ours["task_id"],
        family=ours["family"],
        split_key=ours["split_key"],
        seed=ours["seed"],
        agent=Agent(name=agent["name"], params=(agent.get("extra") or {}).get("params") or {}),
        source=Source(**ours["source"]),
        outcome=Outcome(**ours["outcome"]),
        events=events,
    )


def _exported_events(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of one exported step, in order: `extra.pmem.events` names kind and place of each."""
    calls = step.get("tool_calls") or []
    results = (step.get("observation") or {}).get("results") or []
    for noted in step["extra"]["pmem"]["events"]:
        fields = {key: value for key, value in noted.items() if key not in {"call", "result"}}
        if "call" in noted:
            call = calls[noted["call"]]
            fields = {"call_id": call["tool_call_id"], "tool": call["function_name"], "args": call["arguments"], **fields}
        elif "result" in noted:
            fields = {"text": results[noted["result"]].get("content"), **fields}
        elif noted["kind"] in {"user", "thought", "assistant"}:
            fields = {"text": step["message"], **fields}
        yield fields


FORMAT = Format(name="atif", detects=detects, convert=convert)
