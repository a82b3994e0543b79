"""Hindsight labels: what came after shows where a reminder was missing. Opinions by rule, marked so; they measure no control.

    python -m data.hindsight snapshots=runs/snapshots.parquet rollouts=[runs/imported.jsonl] out=runs/hindsight.parquet

failure_loop  a call failed, and fails again alike with nothing changed in between
diagnosis     something looked up before is looked up again, alike, with nothing changed in between
requirement   a call touches what a message of the user forbade, and the run failed
The label `need` sits on the last snapshot before the act; snapshots of runs that did not fail, with nothing of the kind in the
next six steps, are `not_needed`; the rest is `unknown`.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.importers.effects import effects
from data.labels import write_labels
from data.snapshots import read_snapshots
from data.tables import Row
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import read_rollouts
from pmem.trajectory import error_key

DEFAULT = Path("configs/hindsight.yaml")
HORIZON = 6
REPEAT_WITHIN = 8
"""Steps between two equal failures, as the collections were measured."""
FORGOTTEN_AFTER = 3
"""A look repeated sooner than this is no sign of forgetting."""
MIN_LOOK_CHARS = 40
MAX_TEXT_CHARS = 200
_FORBIDS = re.compile(r"\b(?:do not|don't|never|must not|should not|avoid|without)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"`([^`\n]{2,60})`|\"([^\"\n]{2,60})\"|"
    r"((?:[\w.-]+/)+[\w.-]*|\b[\w-]+\.(?:py|js|ts|json|ya?ml|toml|cfg|txt|md|csv|sql|sh)\b)"
)
_SENTENCE = re.compile(r"(?<=[.!?\n])\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class HindsightConfig:
    """Settings of the hindsight labels."""

    snapshots: Path = Path("runs/snapshots.parquet")
    """Snapshots file; only snapshots of imported rollouts are labelled."""
    rollouts: tuple[Path, ...] = ()
    """Their rollouts, for the outcomes; without them no run counts as failed."""
    out: Path = Path("runs/hindsight.parquet")
    """The labels file to write."""


@dataclass(frozen=True, slots=True)
class Finding:
    """At `step` the run did what a reminder about `since` (a step, 0 = the task) would have spared it."""

    step: int
    since: int
    mechanism: str
    sentence: str | None = None
    """The words that were violated."""


@dataclass(frozen=True, slots=True)
class _Act:
    """A completed step with what it did to the workspace."""

    row: dict[str, Any]
    changes: bool

    @property
    def failed(self) -> bool:
        return bool(self.row["outcome"] == "error")


def findings(rows: Sequence[Row], failed: bool) -> list[Finding]:
    """All findings of one run from its snapshot rows, in order of steps. `failed`: the run's outcome is known to be a failure."""
    acts = _acts(rows)
    found = [*_repeated_failures(acts), *_repeated_looks(acts)]
    if failed:
        found += _violations(acts, rows[-1]["task_messages"])
    return sorted(found, key=lambda finding: (finding.step, finding.mechanism))


def hindsight_labels(rows: Iterable[Row], outcomes: Mapping[str, bool | None] | None = None) -> Iterator[Row]:
    """Label rows of kind `hindsight` for snapshot rows of imported rollouts. `outcomes`: success by rollout id, where known."""
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["rollout_id"]].append(row)
    for rollout_id, members in sorted(runs.items()):
        success = (outcomes or {}).get(rollout_id)
        yield from _label_run(sorted(members, key=lambda row: int(row["boundary_index"])), success)


def _label_run(rows: Sequence[Row], success: bool | None) -> Iterator[Row]:
    found = findings(rows, failed=success is False)
    needs: dict[str, Finding] = {}
    for finding in found:
        before = [row for row in rows if finding.since <= row["step"] < finding.step]
        if before:
            needs.setdefault(before[-1]["snapshot_id"], finding)
    for row in rows:
        need = needs.get(row["snapshot_id"])
        soon = any(row["step"] < finding.step <= row["step"] + HORIZON for finding in found)
        verdict = "need" if need else "unknown" if soon or success is False else "not_needed"
        yield _label(row, verdict)
        if need and (said := _reminder(row, need)):
            yield {**_label(row, verdict), **said}


def _label(row: Row, verdict: str) -> Row:
    return {
        "snapshot_id": row["snapshot_id"],
        "label_kind": "hindsight",
        "candidate_id": None,
        "cited_ids": [],
        "verdict": verdict,
        "continuation": "recorded",
        "divergence": False,
    }


def _reminder(row: Row, finding: Finding) -> Row | None:
    """A reminder from the bank entry that holds the forgotten thing; None when the bank of that moment does not hold it."""
    step = next((step for step in row["window"] if step["step"] == finding.since), None)
    for entry in row["bank_before"]["entries"]:
        if finding.sentence is not None:
            text = entry["content"] if _same(entry["content"], finding.sentence) else None
        else:
            is_its = step is not None and entry["content"].startswith(f"{step['call']} failed")
            text = f"{step['call']} already failed: {step['digest']}" if step and is_its else None
        if text:
            sentence = text.strip().rstrip(".")[:MAX_TEXT_CHARS]
            return {"candidate_id": entry["id"], "reminder_text": f"{sentence}. [{entry['id']}]", "cited_ids": [entry["id"]]}
    return None


def _acts(rows: Sequence[Row]) -> list[_Act]:
    """Every step that some window shows, once, in order."""
    steps = {step["step"]: step for row in rows for step in row["window"]}
    return [_Act(step, _changes(step)) for _, step in sorted(steps.items())]


def _changes(step: dict[str, Any]) -> bool:
    """Whether a successful step changed something, from its tool and the call as it is shown."""
    arguments = {"command": step["call"].partition(" ")[2]}
    return step["outcome"] == "ok" and bool(effects(step["tool"], arguments, "", False).changes_workspace)


def _repeated_failures(acts: Sequence[_Act]) -> Iterator[Finding]:
    last: dict[str, tuple[int, str]] = {}
    for act in acts:
        number, key = act.row["step"], error_key(act.row["digest"])
        if act.changes:
            last.clear()
        if not act.failed:
            last.pop(act.row["fingerprint"], None)
            continue
        earlier = last.get(act.row["fingerprint"])
        if earlier and earlier[1] == key and number - earlier[0] <= REPEAT_WITHIN:
            yield Finding(number, earlier[0], "failure_loop")
        last[act.row["fingerprint"]] = (number, key)


def _repeated_looks(acts: Sequence[_Act]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], int] = {}
    for act in acts:
        if act.changes:
            seen.clear()
        if act.failed or act.changes or len(act.row["digest"]) < MIN_LOOK_CHARS:
            continue
        key = act.row["fingerprint"], act.row["digest"]
        if key in seen and act.row["step"] - seen[key] >= FORGOTTEN_AFTER:
            yield Finding(act.row["step"], seen[key], "diagnosis")
        seen[key] = act.row["step"]


def _violations(acts: Sequence[_Act], messages: Sequence[str]) -> Iterator[Finding]:
    """The first act that changes something which a message forbids by name."""
    for sentence in (part for message in messages for part in _SENTENCE.split(message)):
        forbids = _FORBIDS.search(sentence)
        if forbids is None:
            continue
        names = {next(filter(None, found)) for found in _NAMED.findall(sentence[forbids.start() :])}
        act = next((act for act in acts if act.changes and any(name in act.row["call"] for name in names)), None)
        if act is not None:
            yield Finding(act.row["step"], 0, "requirement", sentence.strip())


def _same(content: str, sentence: str) -> bool:
    left, right = (" ".join(text.split()).casefold().strip(" .") for text in (content, sentence))
    return left in right or right in left


def label(config: HindsightConfig) -> list[Row]:
    """Run the stage. Raises UserError when no snapshot is of an imported rollout."""
    rows = [row for row in read_snapshots(config.snapshots) if row["restore_ref"] is None]
    if not rows:
        raise UserError(f"{config.snapshots} holds no snapshot of an imported rollout; simulated ones are measured by data.label")
    outcomes = {rollout.rollout_id: rollout.outcome.success for path in config.rollouts for rollout in read_rollouts(path)}
    labels = list(hindsight_labels(rows, outcomes))
    write_labels(config.out, labels)
    return labels


def main() -> int:
    """Entry point of `python -m data.hindsight`."""
    config = parse_stage(HindsightConfig, __doc__, DEFAULT)
    labels = label(config)
    verdicts = Counter(row["verdict"] for row in labels if row["candidate_id"] is None)
    said = sum(row["candidate_id"] is not None for row in labels)
    shown = ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
    print(f"hindsight labels for {sum(verdicts.values())} snapshots ({shown}; {said} with a reminder) -> {config.out}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
