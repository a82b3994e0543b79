"""tau-bench runs (also AgentRx): `[{task_id, reward, info{task}, traj[chat messages], trial}]`.

The hidden instruction of the simulated user is not part of the rollout: the agent never saw it, so memory must not either.
"""

from collections.abc import Iterator
from typing import Any

from data.importers.base import Format, rollout, slug, success_of
from data.importers.chat import add_messages
from data.importers.documents import Document, Peek
from data.importers.events import EventLog, plain_text
from data.importers.reading import need
from pmem.rollout import Rollout


def detects(peek: Peek) -> bool:
    """A run has a trajectory, a reward and the task with its gold actions."""
    return peek.has("task_id", "reward", "traj") and isinstance(peek.first.get("info"), dict)


def convert(run: Any, document: Document) -> Iterator[Rollout]:
    """One run -> one rollout."""
    messages = need(run, "traj", list)
    domain = _domain(messages)
    log = EventLog()
    add_messages(log, messages, is_error=_is_error, only_first_call=True)
    task_id = f"tau-{domain}-{need(run, 'task_id', (int, str))}"
    yield rollout(
        log,
        document,
        family=f"tau-bench-{domain}",
        task_id=task_id,
        split_key=task_id,
        agent="tool-calling",
        record=f"{task_id}#{run.get('trial', 0)}",
        outcome=success_of(run.get("reward"), "reward"),
    )


def _domain(messages: list[Any]) -> str:
    policy = next((plain_text(message.get("content")) for message in messages if message.get("role") == "system"), "")
    heading = policy.lstrip("# ").split("\n")[0].lower()
    return next((name for name in ("airline", "retail", "telecom") if name in heading), slug(heading)[:20])


def _is_error(message: dict[str, Any], text: str) -> bool:
    return text.startswith("Error")


FORMAT = Format(name="tau-bench", detects=detects, convert=convert)
