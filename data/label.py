"""Measured labels: from each chosen snapshot K branches in silence and K with each candidate reminder, really checked.

    python -m data.label snapshots=runs/snapshots.parquet out=runs/labels.parquet

Value, cost and verdict: docs/design/calibration.md. Snapshots without `restore_ref` (imported rollouts) get hindsight labels, marked
so. A stopped run goes on where it stood; the file is the same on any number of cores.
"""

import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from data.branches import Candidate, Measured, candidates_for, continuation_seeds, measure, run_branches, verdict_of
from data.envs.base import draw
from data.episode import Episode, process_place, start
from data.labels import write_labels
from data.parallel import ordered_map
from data.progress import track
from data.snapshots import read_snapshots, to_policy_snapshot
from data.splits import SPLITS
from data.tables import Row
from data.twins import twin_of
from pmem.canonical import canonical_json, content_id
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import Event
from pmem.trajectory import digest, fingerprint, stated_thought

DEFAULT = Path("configs/label.yaml")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelConfig:
    """Settings of the labelling stage."""

    snapshots: Path = Path("runs/snapshots.parquet")
    """Snapshots file of `data.replay`."""
    out: Path = Path("runs/labels.parquet")
    """The labels file to write."""
    num_branches: int = 8
    """K: pairs of branches a candidate."""
    train_branches: int | None = None
    """K in split train, where a noisier label of more tasks teaches more; empty: the same."""
    max_candidates: int = 2
    """Candidate reminders a snapshot, decoys included."""
    per_episode: dict[str, int] = field(
        default_factory=lambda: {"train": 8, "dev": 6, "fit": 5, "certify": 5, "test": 5, "heldout": 3}
    )
    """Snapshots measured an episode, by split; a split that is missing gets none."""
    need_share: dict[str, float] = field(default_factory=lambda: {"train": 0.4})
    """By split, the share of an episode's snapshots that is taken first from those where memory is structurally needed, while
    there are any; the rest are drawn evenly. Without it the base rate of need is the natural one."""
    rollouts_per_task: dict[str, int] = field(default_factory=dict)
    """Rollouts measured a task, by split; a split that is missing measures all. Where certificates count episodes as units: 1."""
    twins: bool = False
    """In split train, beside each snapshot taken for need the like one of another rollout of its task where nothing is lost
    (`data.twins`; needs `attempts` above 1 in `data.simulate`)."""
    seed_set: int = 0
    """Which set of continuation seeds; another one measures label noise."""
    num_workers: int = 0
    """Processes; 0 = one a core."""
    ray_address: str = ""
    """Ray cluster that runs the branches instead: auto, local or ray://host:port; empty: this machine's cores."""

    def __post_init__(self) -> None:
        if min(self.num_branches, self.branches("train")) < 2 or self.max_candidates < 1:
            raise UserError("label: num_branches and train_branches must be at least 2 and max_candidates at least 1")
        bounded(self, 0, math.inf, "per_episode", "num_workers")
        bounded(self, 0, 2**31 - 1, "seed_set")
        bounded(self, 1, math.inf, "rollouts_per_task")
        bounded(self, 2, 10_000, "num_branches", "train_branches")
        bounded(self, 0, 1, "need_share")
        if unknown := sorted({*self.per_episode, *self.need_share, *self.rollouts_per_task} - set(SPLITS)):
            raise UserError(
                f"label: unknown split {unknown[0]!r} in per_episode, need_share or rollouts_per_task; known are {', '.join(SPLITS)}"
            )

    def branches(self, split: str) -> int:
        """K in a split."""
        return self.train_branches if split == "train" and self.train_branches is not None else self.num_branches


@dataclass(frozen=True, slots=True)
class Unit:
    """All chosen snapshots of one rollout."""

    rows: tuple[Row, ...]

    def key(self, config: LabelConfig) -> str:
        """What its labels depend on."""
        settings = [config.branches(self.rows[0]["split"]), config.max_candidates, config.seed_set]
        return content_id([settings, [row["snapshot_id"] for row in self.rows]])


@dataclass(frozen=True, slots=True)
class Labelled:
    """Label rows of a unit, and what they cost."""

    key: str
    rows: tuple[Row, ...]
    num_steps: int
    num_real: int
    seconds: float = 0.0
    """Of one core."""


def choose_rows(rows: list[Row], config: LabelConfig, asked: Sequence[Row] = ()) -> list[Row]:
    """The snapshots of one rollout that are measured: those needed, those `asked` for, then the rest by hash up to the count."""
    count = config.per_episode.get(rows[0]["split"], 0)
    first = [*needed_rows(rows, config), *asked]
    return [*first, *(row for row in _order(rows) if row not in first)][: max(count, len(first)) if count else 0]


def needed_rows(rows: Sequence[Row], config: LabelConfig) -> list[Row]:
    """The snapshots of one rollout that are taken because memory is structurally needed there, as many as `need_share` says."""
    split = rows[0]["split"]
    num_needed = round(config.per_episode.get(split, 0) * config.need_share.get(split, 0.0))
    return [row for row in _order(rows) if row["mechanism"]][:num_needed]


def _order(rows: Sequence[Row]) -> list[Row]:
    """By hash, without the last one: no act follows it."""
    last = max(row["step"] for row in rows)
    return sorted((row for row in rows if row["step"] < last), key=lambda row: draw("choose", row["snapshot_id"]))


def label_unit(unit: Unit, config: LabelConfig) -> Labelled:
    """Replay the rollout once and branch at each chosen snapshot."""
    began = time.perf_counter()
    rows = sorted(unit.rows, key=lambda row: row["step"])
    episode = start(json.loads(rows[0]["restore_ref"]), place=process_place())
    seeds = continuation_seeds(config.seed_set, config.branches(rows[0]["split"]))
    made: list[Row] = []
    for row in rows:
        while episode.num_done < row["step"] and not episode.done:
            episode.advance()
        made += _label_rows(row, episode, seeds, config)
    memory = episode.environment.memory
    return Labelled(unit.key(config), tuple(made), memory.num_steps, memory.num_real, time.perf_counter() - began)


def diverged(row: Row, events: Iterable[Event]) -> bool:
    """Whether the replayed prefix differs from what the snapshot's window holds: calls, results or thoughts."""
    steps: list[tuple[str, str, str | None]] = []
    thoughts: list[str] = []
    for event in events:
        if event.kind == "thought":
            thoughts.append(event.text or "")
        elif event.kind == "tool_call":
            call = fingerprint(event.tool or "", event.args)
        elif event.kind == "tool_result":
            steps.append((call, digest(event.text or "", is_error=bool(event.is_error)), stated_thought(thoughts)))
            thoughts = []
    window = [(step["fingerprint"], step["digest"], step["thought"]) for step in row["window"]]
    return len(steps) != row["step"] or steps[-len(window) :] != window


def _label_rows(row: Row, episode: Episode, seeds: list[int], config: LabelConfig) -> Iterator[Row]:
    common = {
        "snapshot_id": row["snapshot_id"],
        "label_kind": "counterfactual",
        "cited_ids": [],
        "need_true": episode.agent.need()[0],
        "seed_set": config.seed_set,
        "continuation": "never",
        "agent": episode.agent.params.name,
        "divergence": False,
        "cost": 0.0,
    }
    if diverged(row, episode.events):
        yield {**common, "verdict": "unknown", "divergence": True}
        return
    candidates = [] if episode.done else candidates_for(episode, to_policy_snapshot(row).bank, config.max_candidates)
    outcomes = run_branches(episode, candidates, seeds)
    measured = {candidate.candidate_id: measure(outcomes[candidate.candidate_id], outcomes[None]) for candidate in candidates}
    verdict = verdict_of(measured, {candidate.candidate_id: candidate.cost for candidate in candidates})
    yield {**common, "verdict": verdict, **_figures(measure(outcomes[None], None))}
    for candidate in candidates:
        yield {**common, "verdict": verdict, **_figures(measured[candidate.candidate_id]), **_said(candidate)}


def _figures(measured: Measured) -> dict[str, Any]:
    figures = asdict(measured)
    figures.pop("all_equal")
    return figures


def _said(candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate_id": candidate.candidate_id,
        "reminder_text": candidate.text,
        "cited_ids": list(candidate.cited_ids),
        "cost": round(candidate.cost, 6),
    }


def units_of(config: LabelConfig) -> tuple[list[Unit], list[Row]]:
    """The units to measure, and the chosen snapshots that cannot be rebuilt (imported ones)."""
    by_task: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    imported: list[Row] = []
    for row in read_snapshots(config.snapshots):
        if row["restore_ref"] is None:
            imported.append(row)
        else:
            by_task[row["task_id"]][row["rollout_id"]].append(row)
    chosen = {name: rows for rollouts in by_task.values() for name, rows in choose_of_task(rollouts, config).items()}
    return [Unit(tuple(rows)) for _, rows in sorted(chosen.items()) if rows], imported


def choose_of_task(rollouts: dict[str, list[Row]], config: LabelConfig) -> dict[str, list[Row]]:
    """The chosen snapshots of one task's rollouts, by rollout."""
    split = next(iter(rollouts.values()))[0]["split"]
    names = sorted(rollouts, key=lambda name: draw("attempt", name))[: config.rollouts_per_task.get(split)]
    asked: dict[str, list[Row]] = defaultdict(list)
    if config.twins and split == "train":
        candidates = [row for name in names for row in _order(rollouts[name])]
        for row in (row for name in names for row in needed_rows(rollouts[name], config)):
            twin = twin_of(row, candidates)
            if twin and twin not in asked[twin["rollout_id"]]:
                asked[twin["rollout_id"]].append(twin)
    return {name: choose_rows(rollouts[name], config, asked[name]) for name in names}


def label(config: LabelConfig) -> tuple[list[Row], list[Labelled]]:
    """Run the stage; returns the rows and what each unit cost. Raises UserError when there is nothing to label."""
    units, imported = units_of(config)
    if not units and not imported:
        raise UserError(f"{config.snapshots}: no snapshot of the splits {', '.join(config.per_episode)}; replay more rollouts")
    journal = config.out.with_name(f"{config.out.name}.partial")
    done = _read_journal(journal)
    todo = [unit for unit in units if unit.key(config) not in done]
    journal.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(journal, "a", encoding="utf-8") as stream:
            work = ordered_map(partial(label_unit, config=config), todo, config.num_workers, config.ray_address)
            for labelled in track(work, "labelling", total=len(todo), unit="episodes"):
                done[labelled.key] = labelled
                stream.write(canonical_json(asdict(labelled)) + "\n")
                stream.flush()
    except UserError:
        if not done:
            journal.unlink()
        raise
    finished = [done[unit.key(config)] for unit in units]
    rows = [row for labelled in finished for row in labelled.rows] + _hindsight(imported)
    write_labels(config.out, rows)
    journal.unlink()
    return rows, finished


def _hindsight(rows: list[Row]) -> list[Row]:
    """Labels of imported snapshots, by rules that look at what came after."""
    if not rows:
        return []
    from data.hindsight import hindsight_labels

    return list(hindsight_labels(rows))


def _read_journal(path: Path) -> dict[str, Labelled]:
    """Units that an earlier, stopped run finished; a last line that was cut off is ignored."""
    done: dict[str, Labelled] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                values = json.loads(line)
            except json.JSONDecodeError:
                continue
            done[values["key"]] = Labelled(**{**values, "rows": tuple(values["rows"])})
    return done


def main() -> int:
    """Entry point of `python -m data.label`."""
    config = parse_stage(LabelConfig, __doc__, DEFAULT)
    began = time.perf_counter()
    rows, units = label(config)
    silent = [row for row in rows if row.get("candidate_id") is None and row["label_kind"] == "counterfactual"]
    verdicts = Counter(row["verdict"] for row in silent)
    projected = sum(unit.seconds for unit in units) / max(1, len(silent)) * 100_000 / 3_600
    steps, real = sum(unit.num_steps for unit in units), sum(unit.num_real for unit in units)
    print(
        f"labelled {len(silent)} snapshots ({', '.join(f'{name} {count}' for name, count in sorted(verdicts.items()))}, "
        f"structurally needed {sum(bool(row['need_true']) for row in silent)}, "
        f"diverged {sum(row['divergence'] for row in silent)}) "
        f"in {time.perf_counter() - began:.0f} s; {steps} steps of branches, {real} really executed; "
        f"100,000 snapshots would take {projected:.1f} core hours -> {config.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
