"""Recorded decisions of a published memory agent -> snapshots with the bank it wrote itself, and labels of kind `teacher`.

Each decision names its task and the agent step it followed; the trajectory is replayed through the runtime's session with the
recorded operations as the bank's writer (its random ids become ours). Where a reminder names no entry, the one is cited whose
telling words it shares most; a reminder that shares too few stays without a citation and teaches no target.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.importers.documents import Document
from data.importers.memory_pages import convert
from data.importers.reading import values
from data.replay import replay_rollout
from data.splits import SplitConfig, assign_split
from data.tables import Row
from pmem.envelope import MAX_OPERATIONS, Operation, citations
from pmem.errors import UserError
from pmem.rollout import Rollout
from pmem.snapshot import BankState, Snapshot
from pmem.words import telling_words

VERBS = {
    "UPDATE_STATUS": "update_status",
    "SAVE_KNOWLEDGE": "save_knowledge",
    "SAVE_PROCEDURAL": "save_procedural",
    "DELETE": "delete",
}
SPEAKS = "INJECT"
MIN_SHARED_WORDS = 4
_ACTION = re.compile(r"([A-Z_]+)(?:\s*\[([\w-]+)\])?")

Decision = dict[str, Any]


def import_decisions(decisions: Path, runs: Sequence[Path]) -> tuple[list[Row], list[Row]]:
    """Snapshot rows and label rows. Raises UserError when a decision's trajectory is missing or a line is not a decision."""
    by_task: dict[str, list[Decision]] = {}
    for decision in _read(decisions):
        by_task.setdefault(str(decision["task"]), []).append(decision)
    trajectories = {rollout.task_id: (rollout, ordinals) for path in runs for rollout, ordinals in _trajectories(path)}
    snapshots: list[Row] = []
    labels: list[Row] = []
    for task, members in sorted(by_task.items()):
        if task not in trajectories:
            raise UserError(f"{decisions}: no trajectory of task {task!r} with memory among runs=; give its file")
        rows, made = _one_task(*trajectories[task], {int(decision["action_step"]): decision for decision in members})
        snapshots += rows
        labels += made
    return snapshots, labels


class RecordedWriter:
    """Plays recorded operations back: `ordinals[i]` is the agent step behind boundary i."""

    def __init__(self, decisions: dict[int, Decision], ordinals: Sequence[int]) -> None:
        self._decisions = decisions
        self._ordinals = list(ordinals)
        self._boundary = 0
        self.names: dict[str, str] = {}
        """Our entry ids by the recorded ones."""
        self._saved: list[tuple[str, str]] = []

    def operations(self, snapshot: Snapshot) -> tuple[Operation, ...]:
        """What the memory agent wrote at this boundary, at most eight operations, under our ids."""
        self._learn_ids(snapshot.bank)
        decision = self._decisions.get(self._ordinals[self._boundary], {})
        self._boundary += 1
        found = [operation for item in decision.get("operations") or [] if (operation := self._operation(item))]
        return tuple(found[:MAX_OPERATIONS])

    def _operation(self, item: dict[str, Any]) -> Operation | None:
        match = _ACTION.match(str(item.get("action")))
        verb = VERBS.get(match.group(1)) if match else None
        if match is None or verb is None:
            return None
        name = match.group(2)
        if verb == "delete":
            return Operation(verb, id=self.names[name]) if name in self.names else None
        content = " ".join(str(item.get("content") or "").split())[:1_200]
        if not content:
            return None
        if verb != "update_status" and name:
            self._saved.append((name, content))
        return Operation(verb, content, self.names.get(name or "") if verb != "update_status" else None)

    def _learn_ids(self, bank: BankState) -> None:
        """After a write the bank shows which id our entry got for each of theirs."""
        for name, content in self._saved:
            entry = next((entry for entry in bank.entries if entry.content == content), None)
            if entry is not None:
                self.names[name] = entry.id
        self._saved.clear()


def _one_task(rollout: Rollout, ordinals: list[int], decisions: dict[int, Decision]) -> tuple[list[Row], list[Row]]:
    split = assign_split(rollout.split_key, rollout.family, SplitConfig())
    writer = RecordedWriter(decisions, ordinals)
    rows = list(replay_rollout(rollout, writer.operations, split=split))
    behind = [(row, decisions[ordinal]) for row, ordinal in zip(rows, ordinals) if ordinal in decisions]
    return rows, [label for row, decision in behind for label in _labels(row, decision, writer.names)]


def _labels(row: Row, decision: Decision, names: Mapping[str, str]) -> Iterator[Row]:
    speaks = decision["decision"] == SPEAKS
    label = {
        "snapshot_id": row["snapshot_id"],
        "label_kind": "teacher",
        "candidate_id": None,
        "cited_ids": [],
        "num_branches": 1,
        "num_success": int(speaks),
        "verdict": "need" if speaks else "not_needed",
        "continuation": "recorded",
        "agent": str(decision.get("model") or "published memory agent"),
        "divergence": False,
    }
    yield label
    text = " ".join(str(decision.get("injected_context") or "").split())
    if speaks and text:
        for name, ours in names.items():
            text = re.sub(rf"[\[(]?\b{re.escape(name)}\b[\])]?", f"[{ours}]", text)
        named = [name for name in citations(text) if any(entry["id"] == name for entry in row["bank_before"]["entries"])]
        cited = named or cited_entries(text, row)
        shown = f"{text} [{', '.join(cited)}]" if cited and not named else text
        yield {**label, "candidate_id": "teacher", "reminder_text": shown, "cited_ids": cited}


def cited_entries(text: str, row: Row) -> list[str]:
    """The entry whose telling words the reminder shares most, when it shares enough of them."""
    said = telling_words(text)
    shared = {entry["id"]: len(said & telling_words(entry["content"])) for entry in row["bank_before"]["entries"]}
    best = max(shared, key=lambda name: (shared[name], name), default=None)
    return [best] if best is not None and shared[best] >= MIN_SHARED_WORDS else []


def _trajectories(path: Path) -> Iterator[tuple[Rollout, list[int]]]:
    """Trajectories with memory, and the ordinal among the agent's steps of each step that has calls (= a boundary)."""
    document = Document(path)
    for record in values(document):
        if not isinstance(record.value, dict) or "memory" not in str(record.value.get("variant")):
            continue
        steps = [step for step in record.value["steps"] if step["source"] == "agent"]
        ordinals = [number for number, step in enumerate(steps) if step.get("tool_calls")]
        for rollout in convert(record.value, document):
            yield rollout.with_id(), ordinals


def _read(path: Path) -> Iterator[Decision]:
    if not path.exists():
        raise UserError(f"{path} does not exist")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            decision = json.loads(line)
            yield {
                **decision,
                "task": decision["task"],
                "action_step": int(decision["action_step"]),
                "decision": decision["decision"],
            }
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} line {number}: not a decision with task, action_step and decision") from None
