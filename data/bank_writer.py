"""The scripted bank writer of replay: what a careful note-taker writes at each boundary, with a stated miss and error rate.

Simulated rollouts: a fact is saved, in the words it was stated in, once it stands in the task text, a user turn or the
newest result; a later value updates the same entry. Imported rollouts: sentences of the user that sound like rules. No model,
nothing of the future.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from data.envs import EXTRAS, FAMILIES, make_task
from data.envs.base import Fact, choose, draw
from data.reminders import asserted, sentences, states
from pmem.config import STRICT
from pmem.envelope import MAX_OPERATIONS, Operation
from pmem.errors import UserError
from pmem.rollout import Rollout
from pmem.snapshot import BankState, Snapshot

MAX_RULES_A_MESSAGE = 6
MAX_RULE_CHARS = 200
_RULE = re.compile(
    r"\b(?:must|should|shall|only|never|always|do not|don't|make sure|ensure|required?|need to|needs to|has to|have to|at least|"
    r"at most|exactly|before|after|without|instead of|prefer|avoid|keep|use)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterConfig:
    """How reliable the scripted writer is."""

    __pydantic_config__ = STRICT

    miss_rate: float = 0.02
    """Share of statements it never saves; an update counts as one."""
    error_rate: float = 0.01
    """Share of statements it saves with a wrong value of the same kind (simulated rollouts only)."""

    def __post_init__(self) -> None:
        if not (0 <= self.miss_rate <= 1 and 0 <= self.error_rate <= 1):
            raise UserError("writer: miss_rate and error_rate are shares between 0 and 1")


class BankWriter:
    """One rollout's writer. It keeps which statements it has dealt with; the bank itself is the session's."""

    def __init__(self, config: WriterConfig, key: str, facts: Iterable[Fact] = ()) -> None:
        self.config = config
        self._key = key
        self._facts = tuple(facts)
        self._handled: set[tuple[str, int]] = set()
        self._read: set[str] = set()

    def operations(self, snapshot: Snapshot) -> tuple[Operation, ...]:
        """The writes at one boundary, at most eight."""
        if not self._facts:
            fresh = [message for message in snapshot.task_messages if message not in self._read]
            self._read.update(fresh)
            return tuple(_rules(fresh, snapshot.bank))[:MAX_OPERATIONS]
        return tuple(self._fact_writes(snapshot))[:MAX_OPERATIONS]

    def _fact_writes(self, snapshot: Snapshot) -> Iterable[Operation]:
        result = snapshot.window[-1].digest if snapshot.window else ""
        messages = "\n".join(snapshot.task_messages)
        for fact in self._facts:
            newest = _newest_stated(fact, messages, result)
            if newest is None or (fact.key, newest) in self._handled:
                continue
            self._handled.update((fact.key, index) for index in range(newest + 1))
            operation = self._write(fact, newest, snapshot.bank)
            if operation:
                yield operation

    def _write(self, fact: Fact, index: int, bank: BankState) -> Operation | None:
        if draw("writer", self._key, "miss", fact.key, index) < self.config.miss_rate:
            return None
        stage = fact.stages[index]
        content, settled = stage.text, {later.value for later in fact.stages[index:]}
        if draw("writer", self._key, "error", fact.key, index) < self.config.error_rate:
            wrong = choose([value for value in fact.kind.words if value != stage.value], "writer", self._key, "wrong", fact.key)
            content = re.sub(rf"(?<![\w-]){re.escape(stage.value)}(?![\w-])", wrong, content)
        verb = "procedural" if fact.mechanism == "failure_loop" else "knowledge"
        for entry in bank.entries:
            said = set().union(*(asserted(part, fact.subject, fact.kind.words) for part in sentences(entry.content)))
            if said & settled:
                return None
            if said and entry.kind == verb:
                return Operation(f"save_{verb}", content, entry.id)
        return Operation(f"save_{verb}", content)


def task_writer(config: WriterConfig, key: str, family: str, seed: int, num_acts: int) -> BankWriter:
    """The writer for a simulated task: it knows which statements are facts."""
    return BankWriter(config, key, make_task(family, seed, num_acts).facts.values())


def writer_for(config: WriterConfig, rollout: Rollout) -> BankWriter:
    """The writer of a rollout, simulated or imported."""
    if rollout.seed is None:
        return BankWriter(config, rollout.rollout_id)
    ref = {"family": rollout.family, "seed": rollout.seed, "agent": {"params": rollout.agent.params}}
    return writer_for_ref(config, rollout.rollout_id, ref)


def writer_for_ref(config: WriterConfig, key: str, ref: dict[str, Any] | None) -> BankWriter:
    """The writer behind a snapshot's `restore_ref`; None = imported."""
    if ref is None or ref["family"] not in FAMILIES | EXTRAS or "num_acts" not in ref["agent"]["params"]:
        return BankWriter(config, key)
    return task_writer(config, key, ref["family"], ref["seed"], ref["agent"]["params"]["num_acts"])


def _newest_stated(fact: Fact, messages: str, result: str) -> int | None:
    """Index of the newest stage that the visible text states, or None."""
    for index in reversed(range(len(fact.stages))):
        stage = fact.stages[index]
        if states(result if stage.source == "result" else messages, fact.subject, stage.value, fact.kind.words):
            return index
    return None


def _rules(messages: Iterable[str], bank: BankState) -> Iterable[Operation]:
    known = {entry.content.casefold() for entry in bank.entries}
    for message in messages:
        found = [part.strip() for part in sentences(message) if _RULE.search(part) and 12 <= len(part.strip()) <= MAX_RULE_CHARS]
        for sentence in found[:MAX_RULES_A_MESSAGE]:
            if sentence.casefold() not in known:
                known.add(sentence.casefold())
                yield Operation("save_knowledge", sentence)
