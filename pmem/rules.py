"""The tier without a model: one entry a failing operation, one advisory when it fails again, one restore after a compaction.

Design/runtime.md section 6. Synchronous, no I/O; the session calls it under its own lock.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pmem.bank import Bank
from pmem.snapshot import BankState, Step
from pmem.trajectory import cut_chars, error_key

MAX_FAILURES = 30
ADVISED_CALL_CHARS = 120
"""Of the call as an advisory names it: with the digest it stays under the budget of any reminder."""
_CLAUSE = re.compile(r"[.,;:!?\n]+|\bthen\b|\band\b|\bbut\b", re.IGNORECASE)
_REPEAT = re.compile(
    r"^\s*(?:please\s+|pls\s+|now\s+|ok(?:ay)?\s+|can you\s+|could you\s+|just\s+)*"
    r"(?:(?:rerun|re-run|retry|re-try|repeat)\b|"
    r"(?:run|execute|invoke|try)\b.*\b(?:again|twice|thrice|once more|one more time|second time|another time))",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:not|never|don't|dont|do not|avoid|stop|without|won't|shouldn't)\b", re.IGNORECASE)


@dataclass
class Failure:
    """What is remembered of one failing operation."""

    first_step: int
    last_step: int
    key: str
    count: int = 1
    previous_step: int = 0
    """The failure before the newest one."""
    equal_count: int = 1
    """Equal failures in a row with nothing changed in between."""
    entry_id: str | None = None


@dataclass(frozen=True)
class Advisory:
    """The sentence that is appended to the failing result, and the entry it cites."""

    text: str
    entry_id: str


class Rules:
    """Repeated failures of one session. `reaches(step)` says whether a step still stands in the window."""

    def __init__(self, bank: Bank, reaches: Callable[[int], bool]) -> None:
        self._bank = bank
        self._reaches = reaches
        self._failures: OrderedDict[str, Failure] = OrderedDict()
        self._advised: set[str] = set()

    def on_turn_start(self) -> None:
        """The same command failing again after an operator's turn is news again."""
        self._advised.clear()

    def on_success(self, step: Step, *, changed: bool) -> None:
        """A success ends the episode of that operation; a change of the workspace makes every next failure a first one."""
        self._failures.pop(step.fingerprint, None)
        if changed:
            for failure in self._failures.values():
                failure.equal_count = 0

    def on_failure(self, step: Step, *, exempt: bool) -> Advisory | None:
        """Keep the failure as one procedural entry; on its repeat, once a turn, the advisory.

        `exempt`: the operator asked for the repeat.
        """
        failure = self._record(step)
        failure.entry_id = self._bank.upsert_procedural(_entry_text(step, failure), failure.entry_id)
        if failure.equal_count < 2 or exempt or step.fingerprint in self._advised:
            return None
        self._advised.add(step.fingerprint)
        return Advisory(_advisory_text(step, failure), failure.entry_id)

    def _record(self, step: Step) -> Failure:
        key = error_key(step.digest)
        failure = self._failures.get(step.fingerprint)
        if failure is None:
            failure = self._failures[step.fingerprint] = Failure(step.step, step.step, key)
            while len(self._failures) > MAX_FAILURES:
                self._failures.popitem(last=False)
            return failure
        repeats = failure.key == key and self._reaches(failure.last_step)
        failure.equal_count = failure.equal_count + 1 if repeats else 1
        failure.count += 1
        failure.key, failure.previous_step, failure.last_step = key, failure.last_step, step.step
        self._failures.move_to_end(step.fingerprint)
        return failure


def requests_repeat(message: str) -> bool:
    """Whether a user message asks to run something again: a clause that starts so and holds no negation."""
    return any(_REPEAT.search(clause) and not _NEGATED.search(clause) for clause in _CLAUSE.split(message[:4_000]))


def restored_state(bank: BankState, max_chars: int) -> tuple[str, tuple[str, ...]]:
    """Text that restores a bank after a compaction, and the ids it shows; ("", ()) for an empty bank.

    Status first, then knowledge and procedural, newest touched first, each quoted as JSON; equal contents once; what does not
    fit is left out whole.
    """
    lines = [_RESTORE_HEAD]
    if bank.status:
        lines.append(f"- status (historical): {json.dumps(bank.status, ensure_ascii=False)}")
    room = max_chars - sum(len(line) + 1 for line in lines)
    shown: list[str] = []
    seen: set[str] = set()
    for entry in sorted(bank.entries, key=lambda entry: (entry.kind != "knowledge", -entry.touched)):
        line = f"- [{entry.id}] {entry.kind}: {json.dumps(entry.content, ensure_ascii=False)}"
        if entry.kind == "status" or entry.content.casefold() in seen or len(line) + 1 > room:
            continue
        seen.add(entry.content.casefold())
        shown.append(entry.id)
        lines.append(line)
        room -= len(line) + 1
    return ("\n".join(lines), tuple(shown)) if len(lines) > 1 else ("", ())


_RESTORE_HEAD = (
    "execution state restored after compaction. Remembered and unverified: what you are told and observe now comes first."
)


def _entry_text(step: Step, failure: Failure) -> str:
    times = f"failed {failure.count} times" if failure.count > 1 else "failed"
    return f"{step.call} {times} (first at step {failure.first_step}): {step.digest}"


def _advisory_text(step: Step, failure: Failure) -> str:
    return (
        f"{cut_chars(step.call, ADVISED_CALL_CHARS)} already failed at step {failure.previous_step} with the same error "
        f"and nothing has changed since: {step.digest} [{failure.entry_id}]"
    )
