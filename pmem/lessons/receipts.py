"""Tool history: one receipt for each call of a task's attempt, and its rendering for a completion check.

    record_receipt(store, Receipt(call="c1", task="t", attempt="1", tool="bash", status="ok", summary="12 passed"), session=…)
    rendered = render_history(store, "t", attempt="1", budget_tokens=800)

A receipt says what an adapter reported, not what is true. The rendering is for reading; nothing writes it back as a lesson.
"""

from dataclasses import dataclass
from typing import Literal

from pmem.bank import estimate_tokens
from pmem.canonical import content_id
from pmem.errors import UserError
from pmem.lessons.changes import change
from pmem.lessons.records import CODE, Provenance, Record
from pmem.lessons.shown import plain
from pmem.lessons.store import LessonStore, content, record_of
from pmem.redaction import redact

Status = Literal["ok", "error", "uncertain", "running"]
MAX_SUMMARY_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one call came to. `running` until it completed; `uncertain` when nobody knows."""

    call: str
    task: str
    attempt: str
    tool: str
    status: Status
    summary: str = ""

    @property
    def id(self) -> str:
        return f"rec-{content_id([self.task, self.attempt, self.call])}"


def record_receipt(store: LessonStore, receipt: Receipt, *, session: str, repository: str | None = None) -> Record:
    """Keep a receipt; one that was running is completed by its later one. A completed one never changes. Raises UserError."""
    summary, redactions = redact(receipt.summary)
    with change(store, CODE, "receipt") as edit:
        before = store.find(receipt.id)
        payload = {
            "call": receipt.call,
            "task": receipt.task,
            "attempt": receipt.attempt,
            "tool": receipt.tool,
            "status": receipt.status,
        }
        after = Record(
            id=receipt.id, key=content_id(payload), kind="receipt", collection=None,
            title=f"{receipt.tool}: {receipt.status}"[:200],
            body=summary[:MAX_SUMMARY_CHARS], tags=(), scope="repository", repository=repository, state="proposed",
            relevance_required=True, payload=payload, reason=None, decided_by=None, approved_text=None,
            provenance=Provenance(door="receipt", session=session, redactions=redactions),
            revision=(before.revision + 1) if before else 1, created=before.created if before else edit.at, updated=edit.at,
        )  # fmt: skip
        if before is not None and before.payload["status"] != "running":
            if _report(before) == _report(after):
                return before
            raise UserError(
                f"call {receipt.call} of attempt {receipt.attempt} has its receipt already; a completed call never changes"
            )
        return edit.put(before, after)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Receipts of a task as text. `num_left_out`: those the budget had no room for."""

    text: str
    num_shown: int
    num_left_out: int
    tokens: int


def render_history(store: LessonStore, task: str, *, attempt: str | None = None, budget_tokens: int = 800) -> Rendered:
    """Newest receipts that fit, in order of time, whole lines only; the first line says what was left out."""
    where = "kind = 'receipt' AND json_extract(payload, '$.task') = ?"
    values = [task]
    if attempt is not None:
        where += " AND json_extract(payload, '$.attempt') = ?"
        values.append(attempt)
    records = [record_of(row) for row in store.rows(f"SELECT * FROM nodes WHERE {where} ORDER BY number", values)]
    if not records:
        raise UserError(f"no receipts of task {task!r}" + (f", attempt {attempt!r}" if attempt else "") + "; check the ids")
    lines: list[str] = []
    room = budget_tokens - estimate_tokens(_heading(task, len(records), len(records)))
    for record in reversed(records):
        line = _line(record)
        room -= estimate_tokens(line + "\n")
        if room < 0:
            break
        lines.append(line)
    text = "\n".join([_heading(task, len(records), len(records) - len(lines)), *reversed(lines)])
    return Rendered(text, len(lines), len(records) - len(lines), estimate_tokens(text))


def _heading(task: str, num: int, num_left_out: int) -> str:
    left_out = f"{num_left_out} older ones left out by the budget" if num_left_out else "all of them"
    return f"Receipts of task {plain(task)}: {num} calls, {left_out}. Reported by tools, not verified."


def _line(record: Record) -> str:
    said = record.payload
    body = plain(record.body)
    return f"- attempt {plain(said['attempt'])}, call {plain(said['call'])}: {plain(said['tool'])} {said['status']}" + (
        f": {body}" if body else ""
    )


def _report(record: Record) -> dict[str, object]:
    return {name: value for name, value in content(record).items() if name in ("body", "payload")}
