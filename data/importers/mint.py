"""MINT results: a line a task, `{state{history, success}, task{task_id, task_name, prompt}}`; code in `<execute>` is the tool.

Runs with and without expert feedback of the same task are a paired experiment; the feedback is a user turn, as the agent saw it.
"""

import re
from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, slug, success_of
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import need
from pmem.rollout import Rollout

FEEDBACK = "Expert feedback:"
_EXECUTE = re.compile(r"<execute>\n?(.*?)\n?</execute>", re.DOTALL)
_SOLUTION = re.compile(r"<solution>(.*?)</solution>", re.DOTALL)
_THOUGHT = re.compile(r"</?thought>|^\s*Assistant:\s*")
_BUDGET = re.compile(r"\nYou have \d+ steps? left and \d+ chances? to propose solution left\.")
_FAILED = re.compile(r"Traceback \(most recent call last\)|^\w*Error\b|Nothing happens", re.MULTILINE)


def detects(peek: Peek) -> bool:
    """A state with a history and the task it belongs to."""
    state = peek.first.get("state")
    return isinstance(state, dict) and "history" in state and isinstance(peek.first.get("task"), dict)


def convert(record: Any, document: Document) -> Iterator[Rollout]:
    """One line -> one rollout. The few-shot examples before the task text are left out."""
    state, task = need(record, "state", dict), need(record, "task", dict)
    log = EventLog()
    log.user(task["prompt"])
    for message in need(state, "history", list)[1:]:
        text = plain_text(message.get("content"))
        (_assistant if message["role"] == "assistant" else _observation)(log, text)
    task_id = f"{slug(str(task.get('task_name')))}-{task['task_id']}"
    latest = state.get("latest_output") or {}
    feedback = str(latest.get("feedback_type") or "no_feedback")
    yield rollout(
        log,
        document,
        family="mint-alfworld" if "alfworld" in task_id else "mint",
        task_id=task_id,
        split_key=f"alfworld-{task['task_id']}",
        agent="mint-agent",
        record=f"{task_id}#{feedback}",
        params={"feedback": feedback},
        outcome=success_of(bool(state.get("success")), "task success"),
    )


def _assistant(log: EventLog, text: str) -> None:
    code, solution = _EXECUTE.search(text), _SOLUTION.search(text)
    found = code or solution
    log.thought(_THOUGHT.sub("", text[: found.start()] if found else text))
    if code:
        log.call("python", {"code": code.group(1)})
    elif solution:
        log.call("submit", {"solution": solution.group(1).strip()})


def _observation(log: EventLog, text: str) -> None:
    body, _, feedback = text.partition(FEEDBACK)
    body = _BUDGET.sub("", body).removeprefix("Observation:").strip()
    waiting = log.unanswered()
    call_id = waiting[-1] if waiting else log.call("python", {})
    wrong = not waiting or "Your answer is wrong" in body
    log.result(call_id, body, is_error=wrong or bool(_FAILED.search(body)))
    log.user(feedback)


FORMAT = Format(name="mint", detects=detects, convert=convert)
