"""Operations that SFT teaches: what a writer without misses and errors does at each boundary of a recorded run.

The writer is walked through the run's snapshots in order, so that it writes a fact where it appears and not again later; the bank
it sees is the recorded one, with the scripted writer's misses and errors in it.
"""

import json
from pathlib import Path

from data.bank_writer import WriterConfig, writer_for_ref
from data.snapshots import read_snapshots, to_policy_snapshot
from data.tables import Row
from pmem.envelope import Operation

PERFECT = WriterConfig(miss_rate=0.0, error_rate=0.0)


def taught_operations(snapshots: Path, wanted: set[str]) -> dict[str, tuple[Operation, ...]]:
    """Operations by snapshot id, for the ids `wanted`."""
    runs: dict[str, list[Row]] = {}
    rollouts = {row["rollout_id"] for row in read_snapshots(snapshots) if row["snapshot_id"] in wanted}
    for row in read_snapshots(snapshots):
        if row["rollout_id"] in rollouts:
            runs.setdefault(row["rollout_id"], []).append(row)
    found: dict[str, tuple[Operation, ...]] = {}
    for rollout_id, rows in runs.items():
        ref = rows[0]["restore_ref"]
        writer = writer_for_ref(PERFECT, rollout_id, None if ref is None else json.loads(ref))
        for row in sorted(rows, key=lambda row: int(row["boundary_index"])):
            operations = tuple(writer.operations(to_policy_snapshot(row)))
            if row["snapshot_id"] in wanted:
                found[row["snapshot_id"]] = operations
    return found
