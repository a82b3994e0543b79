"""The task bank of one session: B = (status, knowledge, procedural), bounded, ids never reused (docs/design/runtime.md section 1).

    bank = Bank(clock=time.time)
    bank.apply(operations)       # all accepted operations or, on a fault, none
    bank.render(400)             # "- [tm-k-3] knowledge: …", newest touched first, within 400 tokens

Safe to use from several threads. Status is one private slot beside the counter: it is never cited, never rendered here.
"""

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pmem.snapshot import BankState, Entry, EntryKind

if TYPE_CHECKING:
    from pmem.envelope import Operation

MAX_KNOWLEDGE = 20
MAX_PROCEDURAL = 30
MAX_CONTENT_CHARS = 1200
MAX_SENTENCE_CHARS = 200
STATUS_ID = "tm-s-0"

BankDelta = dict[str, dict[str, int]]
"""`{status|knowledge|procedural: {added, updated, deleted}}`; an eviction counts as deleted."""

_PREFIX: dict[str, str] = {"knowledge": "tm-k-", "procedural": "tm-p-"}
_KIND_OF_SAVE: dict[str, EntryKind] = {"save_knowledge": "knowledge", "save_procedural": "procedural"}


def normal_content(content: str) -> str:
    """Whitespace runs collapsed, at most 1,200 code points. Raises ValueError on blank content."""
    collapsed = " ".join(content.split())
    if not collapsed:
        raise ValueError("bank content must not be blank")
    return collapsed[:MAX_CONTENT_CHARS].rstrip()


def estimate_tokens(text: str) -> int:
    """Tokens as every budget of pmem counts them: ceil(chars / 4), whatever the tokenizer."""
    return math.ceil(len(text) / 4)


def entry_number(entry_id: str) -> int:
    """The counter value inside an id: `tm-k-12` -> 12."""
    return int(entry_id.rpartition("-")[2])


def render_entries(state: BankState, budget_tokens: int) -> str:
    """Knowledge and procedural entries, one line each, newest touched first; an entry that does not fit is skipped, never cut."""
    kind_order = {"knowledge": 0, "procedural": 1}
    shown = [entry for entry in state.entries if entry.kind in kind_order]
    shown.sort(key=lambda entry: (-entry.touched, kind_order[entry.kind], entry_number(entry.id)))
    lines: list[str] = []
    num_chars = -1
    for entry in shown:
        line = f"- [{entry.id}] {entry.kind}: {entry.content}"
        if math.ceil((num_chars + 1 + len(line)) / 4) <= budget_tokens:
            lines.append(line)
            num_chars += 1 + len(line)
    return "\n".join(lines)


def cited_sentence(entry: Entry) -> str:
    """An entry as one short sentence with its citation, as a reminder says it. Of an entry about a failure only what the failure said."""
    sentence = entry.content.rpartition("): ")[2] if entry.kind == "procedural" else entry.content
    sentence = sentence.strip().rstrip(".;")[:MAX_SENTENCE_CHARS]
    return f"{sentence[:1].upper()}{sentence[1:]}. [{entry.id}]"


@dataclass
class _Contents:
    """What one batch of operations works on; swapped in as a whole when the batch has gone through."""

    status: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    next_number: int = 1

    def copy(self) -> "_Contents":
        return _Contents(self.status, dict(self.entries), self.next_number)

    def twin(self, kind: EntryKind, content: str) -> Entry | None:
        """The entry of that class whose content is equal after case folding."""
        folded = content.casefold()
        return next((e for e in self.entries.values() if e.kind == kind and e.content.casefold() == folded), None)

    def save(self, kind: EntryKind, content: str, entry_id: str | None, now: float) -> str:
        """Write one entry and return its id. An id that names no entry of the class makes a new one."""
        twin = self.twin(kind, content)
        named = self.entries.get(entry_id) if entry_id else None
        if named is None or named.kind != kind:
            named = twin
        elif twin is not None and twin.id != named.id:
            del self.entries[twin.id]
        if named is not None:
            self.entries[named.id] = named.model_copy(update={"content": content, "touched": now})
            return named.id
        new_id = f"{_PREFIX[kind]}{self.next_number}"
        self.next_number += 1
        self.entries[new_id] = Entry(id=new_id, kind=kind, content=content, created=now, touched=now)
        return new_id

    def evict(self, kind: EntryKind, limit: int) -> None:
        """Drop entries over the cap: oldest touched, then oldest created, then smallest id."""
        ours = [entry for entry in self.entries.values() if entry.kind == kind]
        ours.sort(key=lambda entry: (entry.touched, entry.created, entry_number(entry.id)))
        for entry in ours[: max(0, len(ours) - limit)]:
            del self.entries[entry.id]

    def state(self) -> BankState:
        ordered = sorted(self.entries.values(), key=lambda entry: (entry.created, entry_number(entry.id)))
        return BankState(status=self.status, entries=tuple(ordered), next_number=self.next_number)


class Bank:
    """One session's bank. `clock` gives seconds or step counts; readings that run backwards are held at the newest one seen."""

    def __init__(
        self, *, clock: Callable[[], float], max_knowledge: int = MAX_KNOWLEDGE, max_procedural: int = MAX_PROCEDURAL
    ) -> None:
        if max_knowledge < 1 or max_procedural < 1:
            raise ValueError(f"bank caps must be at least 1, got {max_knowledge} and {max_procedural}")
        self._clock = clock
        self._limits: dict[EntryKind, int] = {"knowledge": max_knowledge, "procedural": max_procedural}
        self._contents = _Contents()
        self._newest = -math.inf
        self._lock = threading.RLock()

    @classmethod
    def from_state(
        cls,
        state: BankState,
        *,
        clock: Callable[[], float],
        max_knowledge: int = MAX_KNOWLEDGE,
        max_procedural: int = MAX_PROCEDURAL,
    ) -> "Bank":
        """A bank that goes on from `state`; its ids keep their meaning and the counter never falls behind them."""
        bank = cls(clock=clock, max_knowledge=max_knowledge, max_procedural=max_procedural)
        next_number = max([state.next_number, *(entry_number(entry.id) + 1 for entry in state.entries)])
        bank._contents = _Contents(state.status, {entry.id: entry for entry in state.entries}, next_number)
        bank._newest = max((entry.touched for entry in state.entries), default=-math.inf)
        return bank

    def apply(self, operations: Iterable["Operation"]) -> BankDelta:
        """Apply one batch atomically. Raises ValueError on an unknown verb or blank content, and the bank stays as it was.

        Unknown ids are settled here too, since the bank may have moved on after the model saw it: a save becomes a new entry,
        a delete does nothing.
        """
        with self._lock:
            now = self._now()
            before, after = self._contents, self._contents.copy()
            written: set[str] = set()
            for operation in operations:
                written |= self._apply_one(after, operation, now)
            self._contents = after
            return _delta(before, after, written)

    def upsert_procedural(self, content: str, id: str | None = None) -> str:
        """Write one procedural entry (the rules tier's path) and return its id."""
        with self._lock:
            contents = self._contents.copy()
            entry_id = contents.save("procedural", normal_content(content), id, self._now())
            contents.evict("procedural", self._limits["procedural"])
            self._contents = contents
            return entry_id

    def record_injection(self, ids: Iterable[str]) -> None:
        """Count one delivered reminder on each distinct cited entry and touch it; unknown and status ids are ignored."""
        with self._lock:
            now, contents = self._now(), self._contents.copy()
            for entry_id in set(ids) & set(contents.entries):
                entry = contents.entries[entry_id]
                contents.entries[entry_id] = entry.model_copy(update={"injections": entry.injections + 1, "touched": now})
            self._contents = contents

    def get(self, id: str) -> Entry | None:
        """The entry of that id, or None. Status has no entry."""
        return self._contents.entries.get(id)

    def state(self) -> BankState:
        """A detached copy: entries ordered by creation, then id."""
        with self._lock:
            return self._contents.state()

    def render(self, budget_tokens: int) -> str:
        """The lines a policy sees (`render_entries`)."""
        return render_entries(self.state(), budget_tokens)

    def _apply_one(self, contents: _Contents, operation: "Operation", now: float) -> set[str]:
        if operation.op == "update_status":
            contents.status = normal_content(operation.content or "")
            return {STATUS_ID}
        if operation.op == "delete":
            if operation.id == STATUS_ID:
                contents.status = None
            contents.entries.pop(operation.id or "", None)
            return set()
        kind = _KIND_OF_SAVE.get(operation.op)
        if kind is None:
            raise ValueError(f"unknown bank operation {operation.op!r}")
        entry_id = contents.save(kind, normal_content(operation.content or ""), operation.id, now)
        contents.evict(kind, self._limits[kind])
        return {entry_id}

    def _now(self) -> float:
        self._newest = max(self._newest, float(self._clock()))
        return self._newest


def _delta(before: _Contents, after: _Contents, written: set[str]) -> BankDelta:
    status = {
        "added": int(before.status is None and after.status is not None),
        "updated": int(before.status is not None and after.status is not None and STATUS_ID in written),
        "deleted": int(before.status is not None and after.status is None),
    }
    return {"status": status, **{kind: _class_delta(before, after, written, prefix) for kind, prefix in _PREFIX.items()}}


def _class_delta(before: _Contents, after: _Contents, written: set[str], prefix: str) -> dict[str, int]:
    old = {entry_id for entry_id in before.entries if entry_id.startswith(prefix)}
    new = {entry_id for entry_id in after.entries if entry_id.startswith(prefix)}
    return {"added": len(new - old), "updated": len(old & new & written), "deleted": len(old - new)}
