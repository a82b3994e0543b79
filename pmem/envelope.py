"""The one parser and the one writer of the envelope: a model's text -> operations and a decision, or a reasoned refusal.

    <operations>[{"op":"save_knowledge","content":"…"}]</operations>
    <no_intervention/>                      or      <context_for_action>text citing [tm-k-1]</context_for_action>

`parse_envelope` is total (it never raises on a string) and linear in the length of the text. Where a text is unfinished or
ambiguous it keeps silent: a reminder is only read from a finished block of the last valid list (docs/design/runtime.md section 2).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pmem.envelope_scan import Draft, locate
from pmem.envelope_text import MAX_CONTENT_CHARS, citations, clean_content, clean_reminder
from pmem.snapshot import BankState

__all__ = [
    "EMPTY_LIST",
    "OPERATIONS_CLOSE",
    "OPERATIONS_OPEN",
    "SILENT",
    "SPEAK",
    "SPEAK_CLOSE",
    "Envelope",
    "Malformed",
    "Operation",
    "Resolved",
    "citations",
    "parse_envelope",
    "render_envelope",
    "render_operations",
    "resolve",
]

OPERATIONS_OPEN = "<operations>"
OPERATIONS_CLOSE = "</operations>"
EMPTY_LIST = f"{OPERATIONS_OPEN}[]{OPERATIONS_CLOSE}"
SPEAK = "<context_for_action>"
SPEAK_CLOSE = "</context_for_action>"
SILENT = "<no_intervention/>"

MAX_OPERATIONS = 8
_KEYS = {
    "update_status": (frozenset({"op", "content"}), frozenset({"op", "content"})),
    "save_knowledge": (frozenset({"op", "content"}), frozenset({"op", "content", "id"})),
    "save_procedural": (frozenset({"op", "content"}), frozenset({"op", "content", "id"})),
    "delete": (frozenset({"op", "id"}), frozenset({"op", "id"})),
}
"""Verb -> keys it needs, keys it may have."""
_KIND = {"save_knowledge": "knowledge", "save_procedural": "procedural"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One edit of the bank: `update_status`, `save_knowledge`, `save_procedural` or `delete`."""

    op: str
    content: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the model answered, ids not yet checked. `reminder` is cleaned; `reminder_raw` is as written, for the hygiene gate."""

    operations: tuple[Operation, ...]
    num_unknown: int = 0
    reminder: str | None = None
    reminder_raw: str | None = None
    reason: str | None = None
    """Of a silence that nobody chose: `cut_before_decision` or `reminder_cut_off`."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """No usable answer; nothing is applied, nothing said. `unparseable`, `truncated` or `all_operations_invalid`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """An envelope settled against a bank. `dropped` counts unknown verbs and deletes of unknown ids."""

    operations: tuple[Operation, ...]
    dropped: int = 0
    reminder: str | None = None
    reason: str | None = None
    reminder_raw: str | None = None


def parse_envelope(text: str, *, finish_reason: str | None = None) -> Envelope | Malformed:
    """Read a model's answer; the last complete and valid list wins, with its own phase-two line."""
    cut = finish_reason in ("length", "max_tokens")
    located = locate(text, cut=cut)
    refusal = None
    for draft in reversed(located.drafts):
        read = _operations(draft.items)
        if not isinstance(read, Malformed):
            return _envelope(read, draft, cut or located.thought_open)
        refusal = refusal or read
    if located.thought_open:
        return Malformed("truncated")
    return refusal or Malformed("truncated" if cut else "unparseable")


def _envelope(read: tuple[tuple[Operation, ...], int], draft: Draft, cut: bool) -> Envelope:
    operations, num_unknown = read
    if draft.phase == "cut_off":
        return Envelope(operations, num_unknown, reason="reminder_cut_off")
    if draft.phase == "absent":
        return Envelope(operations, num_unknown, reason="cut_before_decision" if cut else None)
    reminder = clean_reminder(draft.reminder) if draft.reminder else ""
    return Envelope(operations, num_unknown, reminder or None, draft.reminder if reminder else None)


def _operations(items: list[Any]) -> tuple[tuple[Operation, ...], int] | Malformed:
    """All or nothing: any known verb with a wrong shape refuses the list; unknown verbs cost only themselves."""
    if len(items) > MAX_OPERATIONS:
        return Malformed("unparseable")
    operations: list[Operation] = []
    num_unknown = 0
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("op"), str):
            return Malformed("unparseable")
        if item["op"] not in _KEYS:
            num_unknown += 1
            continue
        operation = _operation(item)
        if operation is None:
            return Malformed("unparseable")
        operations.append(operation)
    if num_unknown and not operations:
        return Malformed("all_operations_invalid")
    return tuple(operations), num_unknown


def _operation(item: dict[str, Any]) -> Operation | None:
    needed, allowed = _KEYS[item["op"]]
    keys = item.keys()
    if not needed <= keys or not keys <= allowed:
        return None
    content, name = item.get("content"), item.get("id")
    if "content" in item:
        content = clean_content(content) if isinstance(content, str) else ""
        if not content or len(content) > MAX_CONTENT_CHARS:
            return None
    if "id" in item and not (isinstance(name, str) and name.strip()):
        return None
    return Operation(item["op"], content, name)


def resolve(envelope: Envelope, bank: BankState) -> Resolved:
    """Settle ids: a save under an id that names no living entry of its class becomes a new entry, a delete of one is dropped."""
    kinds: dict[str, str] = {entry.id: entry.kind for entry in bank.entries}
    operations: list[Operation] = []
    dropped = envelope.num_unknown
    for operation in envelope.operations:
        if operation.op == "delete":
            if operation.id is None or kinds.pop(operation.id, None) is None:
                dropped += 1
                continue
        elif operation.id is not None and kinds.get(operation.id) != _KIND.get(operation.op):
            operation = Operation(operation.op, operation.content)
        operations.append(operation)
    return Resolved(tuple(operations), dropped, envelope.reminder, envelope.reason, envelope.reminder_raw)


def render_operations(operations: Iterable[Operation]) -> str:
    """The canonical first line: compact JSON, keys op, content, id; `</` as `<\\/`, so no content holds the closing tag."""
    items = []
    for operation in operations:
        item = {"op": operation.op}
        if operation.content is not None:
            item["content"] = clean_content(operation.content)
        if operation.id is not None:
            item["id"] = operation.id
        items.append(item)
    array = json.dumps(items, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f"{OPERATIONS_OPEN}{array}{OPERATIONS_CLOSE}"


def render_envelope(operations: Iterable[Operation], reminder: str | None) -> str:
    """The canonical two lines, without a newline at the end: the target of training."""
    second = f"{SPEAK}{reminder}{SPEAK_CLOSE}" if reminder else SILENT
    return f"{render_operations(operations)}\n{second}"
