"""Rollouts -> snapshots: the runtime's own session is fed every event, and what a policy would see after each tool step is kept.

    python -m data.replay rollouts=[runs/rollouts.jsonl] out=runs/snapshots.parquet

The bank is written by the scripted writer (docs/design/calibration.md), with its stated miss and error rates; no model takes part.
Splits are by task hash; near-duplicate snapshots that two splits share are left out of the one that matters less.
"""

import dataclasses
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from data.bank_writer import WriterConfig, writer_for
from data.envs import HELDOUT
from data.near_duplicates import NearDuplicates
from data.progress import track
from data.snapshots import MECHANISMS, SNAPSHOT_SCHEMA, snapshot_columns, with_snapshot_id
from data.splits import SplitConfig, assign_split
from data.tables import Row, gather, write_table
from pmem.canonical import canonical_json
from pmem.config import bounded, parse_stage
from pmem.envelope import Operation
from pmem.errors import UserError, exit_code
from pmem.prompt import PROMPT_VERSION
from pmem.replay import feed
from pmem.rollout import Rollout, read_rollouts
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.snapshot import Snapshot

DEFAULT = Path("configs/replay.yaml")
Writer = Callable[[Snapshot], Sequence[Operation]]
"""Operations at one boundary from what the policy sees there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayConfig:
    """Settings of the replay stage."""

    rollouts: tuple[Path, ...] = ()
    """Rollout files (`pmem.rollout/1`, .gz too)."""
    out: Path = Path("runs/snapshots.parquet")
    """The snapshots file to write."""
    cadence: int = 1
    """Completed tools between snapshots; 1 = the paper's, after every tool step."""
    trajectory_steps: int = 8
    """Steps in the window. The runtime's `trajectory_steps` must be the same when the policy is used."""
    splits: SplitConfig = field(default_factory=SplitConfig)
    """How tasks fall into splits."""
    writer: WriterConfig = field(default_factory=WriterConfig)
    """Miss and error rate of the scripted bank writer."""
    near_duplicate_jaccard: float = 0.9
    """Snapshots of two splits this alike count as the same; above 1 turns the check off."""
    min_steps: int = 1
    """Rollouts with fewer completed tools are passed over."""

    def __post_init__(self) -> None:
        if self.cadence < 1:
            raise UserError(f"cadence is {self.cadence}; it must be at least 1")
        if not 1 <= self.trajectory_steps <= 64:
            raise UserError(f"trajectory_steps is {self.trajectory_steps}; it must lie between 1 and 64")
        bounded(self, 0, math.inf, "near_duplicate_jaccard", "min_steps")


@dataclass(slots=True)
class ReplayCounts:
    """What the closing line reports."""

    rollouts: int = 0
    too_short: int = 0
    repeated: int = 0
    snapshots: Counter[str] = field(default_factory=Counter)
    near_duplicates: int = 0


def replay_rollout(rollout: Rollout, writer: Writer, *, split: str, cadence: int = 1, trajectory_steps: int = 8) -> Iterator[Row]:
    """One snapshot row a due boundary. The session's clock counts completed tools, so the rows hold no time of day."""
    num_steps = 0

    def clock() -> float:
        return float(num_steps)

    settings = Settings(cadence_tool_calls=cadence, trajectory_steps=trajectory_steps, telemetry=False)
    session = MemorySession(settings, clock=clock, session_id="replay")
    boundary_index = 0
    for event in rollout.events:
        num_steps += event.kind == "tool_result"
        if not feed(session, event).boundary:
            continue
        snapshot = session.prepare()
        if snapshot is None:
            continue
        yield _row(rollout, snapshot, split=split, boundary_index=boundary_index, step=num_steps)
        boundary_index += 1
        session.apply_operations(writer(snapshot))
    session.close()


def restore_ref(rollout: Rollout, step: int) -> str | None:
    """How to rebuild the state behind a snapshot of a simulated rollout: everything `data.episode` needs, as canonical JSON.

    Null for imported rollouts, which have no seed, and for those of a real model, which cannot be drawn again.
    """
    if rollout.seed is None or "agent_seed" not in rollout.agent.params:
        return None
    params = {key: value for key, value in rollout.agent.params.items() if key != "mechanisms"}
    agent = {"name": rollout.agent.name, "params": params}
    return canonical_json({"family": rollout.family, "seed": rollout.seed, "agent": agent, "step": step})


def replay(config: ReplayConfig) -> ReplayCounts:
    """Run the stage: read, replay, leave near-duplicates out, write. Raises UserError when there is nothing to replay."""
    if not config.rollouts:
        raise UserError("no rollouts given; add rollouts=[path, …]")
    counts = ReplayCounts()
    index = NearDuplicates(config.near_duplicate_jaccard)
    table = gather(SNAPSHOT_SCHEMA, _rows(config, counts, index))
    if not len(table):
        raise UserError(f"no snapshots in {', '.join(map(str, config.rollouts))}: no rollout has a completed tool step")
    if absent := sorted(set(config.splits.heldout_families) - set(table["family"].unique().to_pylist())):
        raise UserError(f"splits.heldout_families: no rollout is of family {absent[0]!r}; mend the name or leave it out")
    if config.near_duplicate_jaccard <= 1:
        dropped = index.straddling()
        counts.near_duplicates = len(dropped)
        table = table.filter(pc.invert(pc.is_in(table["snapshot_id"], value_set=pa.array(sorted(dropped), pa.string()))))
    facts = {
        "writer": canonical_json(dataclasses.asdict(config.writer)),
        "trajectory_steps": str(config.trajectory_steps),
        "near_duplicates": str(counts.near_duplicates),
    }
    write_table(config.out, table, sort_by=["snapshot_id"], facts=facts)
    counts.snapshots = Counter(table["split"].to_pylist())
    return counts


def _rows(config: ReplayConfig, counts: ReplayCounts, index: NearDuplicates) -> Iterator[Row]:
    splits = replace(config.splits, heldout_families=config.splits.heldout_families or HELDOUT)
    seen: set[str] = set()
    for rollout in track(_rollouts(config.rollouts), "replaying", unit="rollouts"):
        if rollout.rollout_id in seen:
            counts.repeated += 1
            continue
        seen.add(rollout.rollout_id)
        if sum(event.kind == "tool_result" for event in rollout.events) < config.min_steps:
            counts.too_short += 1
            continue
        counts.rollouts += 1
        split = assign_split(rollout.split_key, rollout.family, splits)
        writer = writer_for(config.writer, rollout)
        shape = {"cadence": config.cadence, "trajectory_steps": config.trajectory_steps}
        for row in replay_rollout(rollout, writer.operations, split=split, **shape):
            index.add(row["snapshot_id"], split, _policy_text(row))
            yield row


def _rollouts(paths: Iterable[Path]) -> Iterator[Rollout]:
    for path in paths:
        for rollout in read_rollouts(path):
            yield rollout if rollout.rollout_id else rollout.with_id()


def _row(rollout: Rollout, snapshot: Snapshot, *, split: str, boundary_index: int, step: int) -> Row:
    return with_snapshot_id(
        {
            "rollout_id": rollout.rollout_id,
            "task_id": rollout.task_id,
            "family": rollout.family,
            "split": split,
            "mechanism": _mechanism(rollout, step),
            "boundary_index": boundary_index,
            "step": step,
            **snapshot_columns(snapshot),
            "prompt_version": PROMPT_VERSION,
            "restore_ref": restore_ref(rollout, step),
        }
    )


def _mechanism(rollout: Rollout, step: int) -> str | None:
    """The paper's mechanism at work after `step` acts; environments note one after each act, other rollouts do not know."""
    noted = rollout.agent.params.get("mechanisms") or []
    return noted[step - 1] if step <= len(noted) and noted[step - 1] in MECHANISMS else None


def _policy_text(row: Row) -> str:
    """What makes two snapshots the same to a policy, without ids and numbers of steps."""
    steps = (" ".join((step["call"], step["outcome"], step["digest"], step["thought"] or "")) for step in row["window"])
    return "\n".join([*row["task_messages"], *steps])


def main() -> int:
    """Entry point of `python -m data.replay`."""
    config = parse_stage(ReplayConfig, __doc__, DEFAULT)
    start = time.perf_counter()
    counts = replay(config)
    seconds = time.perf_counter() - start
    total = sum(counts.snapshots.values())
    splits = ", ".join(f"{name} {count}" for name, count in sorted(counts.snapshots.items()))
    print(
        f"replayed {counts.rollouts} rollouts ({counts.too_short} too short, {counts.repeated} repeated) into {total} "
        f"snapshots ({splits}; {counts.near_duplicates} near-duplicates left out), {total / seconds:.0f}/s -> {config.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
