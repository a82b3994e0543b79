"""The one composite reward of GRPO: what a sampled answer was measured to be worth, all or nothing, never a default.

    malformed, cut off or without a phase-two line   -> -1
    reminder without a valid citation, or too long   -> -0.5
    silence                                          -> V_silent
    reminder that says a measured candidate          -> V_remind(candidate) - cost(reminder)
    reminder that says none of them                  -> None: no credit either way (counted as `unmapped`), unless it is measured on demand
    + validity of the operations, in [-0.2, 0.1]

With several reward functions TRL counts the None of one as 0, and an unmeasured silence would earn credit for doing nothing.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from data.matching import match_candidate
from pmem.config import STRICT
from pmem.envelope import SILENT, SPEAK, Malformed, citations, parse_envelope, resolve
from pmem.snapshot import BankState, Entry

Kind = Literal["malformed", "uncited", "silent", "mapped", "unmapped"]
BANK_LINE = re.compile(r"^- \[(tm-[kp]-\d+)\] (knowledge|procedural): (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """Scale of the reward; values are probabilities of task success."""

    __pydantic_config__ = STRICT

    malformed: float = -1.0
    """Reward of an answer that cannot be read, was cut off, or has no decision."""
    uncited: float = -0.5
    """Reward of a reminder without a valid citation, or longer than max_chars."""
    valid_operations: float = 0.1
    """Added when every operation is accepted; an empty list counts."""
    dropped_operation: float = -0.1
    """Added for each operation that is dropped, or that saves what the bank already holds."""
    worst_operations: float = -0.2
    """Least sum of the two above."""
    cost: float = 0.01
    """Cost of a reminder."""
    cost_per_token: float = 0.0002
    """Cost of each of its tokens, counted as ceil(chars / 4)."""
    max_chars: int = 500
    """Longest reminder."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A measured reminder; `value` is V_remind, before its cost."""

    candidate_id: str
    text: str
    cited_ids: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Pivot:
    """A row of `pivots.parquet` as the reward reads it. `bank` is the bank as the prompt shows it, `begun` the assistant's text before
    what is sampled."""

    snapshot_id: str
    bank: BankState
    value_silent: float | None
    candidates: tuple[Candidate, ...]
    begun: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """`decision`: reward of decision and reminder, None when nothing measured matches; `operations`: of the list."""

    kind: Kind
    operations: float
    decision: float | None

    @property
    def total(self) -> float | None:
        return None if self.decision is None else self.decision + self.operations


def pivot_of(row: Mapping[str, Any]) -> Pivot:
    """A pivot row, read for scoring."""
    found = [
        Candidate(item["candidate_id"], item["text"] or "", tuple(item["cited_ids"] or ()), float(item["value"]))
        for item in row["candidates"]
        if item["value"] is not None
    ]
    silent = row["value_silent"]
    messages = row["prompt_messages"]
    value = None if silent is None else float(silent)
    return Pivot(row["snapshot_id"], shown_bank(messages), value, tuple(found), begun_of(messages))


def begun_of(messages: Sequence[Mapping[str, str]]) -> str:
    """The assistant's text that a prompt already holds."""
    return messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""


def shown_bank(messages: Sequence[Mapping[str, str]]) -> BankState:
    """The entries that a prompt shows (what does not fit its budget cannot be cited either)."""
    _, _, bank = messages[1]["content"].partition("# Bank\n")
    lines = bank.partition("\n# Recent steps\n")[0]
    entries = tuple(
        Entry.model_validate({"id": entry, "kind": kind, "content": content, "created": 0, "touched": 0})
        for entry, kind, content in BANK_LINE.findall(lines)
    )
    numbers = [int(entry.id.rpartition("-")[2]) for entry in entries]
    return BankState(entries=entries, next_number=max(numbers, default=0) + 1)


def score(
    text: str,
    pivot: Pivot,
    config: RewardConfig,
    *,
    truncated: bool = False,
    measure: Callable[[str, str], float | None] | None = None,
) -> Score:
    """Score one sampled answer. `truncated`: it was cut at the token limit. `measure`: value of a reminder (snapshot id, text) that says
    no measured candidate, None where it cannot be had."""
    text = pivot.begun + text
    read = parse_envelope(text, finish_reason="length" if truncated else "stop")
    if isinstance(read, Malformed) or truncated or (SPEAK not in text and SILENT not in text):
        return Score("malformed", 0.0, config.malformed)
    resolved = resolve(read, pivot.bank)
    if isinstance(resolved, Malformed):
        return Score("malformed", 0.0, config.malformed)
    contents = {entry.content.casefold() for entry in pivot.bank.entries}
    repeated = sum((operation.content or "").casefold() in contents for operation in resolved.operations)
    operations = _operations_reward(resolved.dropped + repeated, config)
    if not resolved.reminder:
        return Score("silent", operations, pivot.value_silent)
    cited = [entry for entry in citations(resolved.reminder) if any(entry == held.id for held in pivot.bank.entries)]
    if not cited or len(resolved.reminder) > config.max_chars:
        return Score("uncited", operations, config.uncited)
    matched = match_candidate(resolved.reminder, cited, pivot.candidates)
    known = {candidate.candidate_id: candidate.value for candidate in pivot.candidates}
    if matched is not None:
        value: float | None = known[matched]
    else:
        value = None if measure is None else measure(pivot.snapshot_id, resolved.reminder)
    if value is None:
        return Score("unmapped", operations, None)
    return Score("mapped", operations, value - reminder_cost(resolved.reminder, config))


def reminder_cost(text: str, config: RewardConfig) -> float:
    """cost(r) = cost + cost_per_token * tokens(r), tokens counted as everywhere: ceil(chars / 4)."""
    return config.cost + config.cost_per_token * math.ceil(len(text) / 4)


def speaking_value(scores: Sequence[Score], pivot: Pivot, config: RewardConfig) -> float | None:
    """What speaking is worth at a pivot: the mean of the group's measured reminders, else the best candidate's net value."""
    measured = [one.decision for one in scores if one.kind == "mapped" and one.decision is not None]
    if measured:
        return sum(measured) / len(measured)
    return max((one.value - reminder_cost(one.text, config) for one in pivot.candidates), default=None)


def _operations_reward(num_bad: int, config: RewardConfig) -> float:
    return max(config.worst_operations, (0.0 if num_bad else config.valid_operations) + num_bad * config.dropped_operation)
