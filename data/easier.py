"""Easier views of a train row, for a course: the same decision with fewer facts to compare the plan with.

A small model learns within some hundred rows to compare a plan with one fact, and in thousands of rows does not learn to compare it
with a whole bank. A course of growing banks takes it there (docs/results.md).
"""

from collections.abc import Collection

from data.splits import hash_fraction
from pmem.snapshot import Snapshot


def easier(snapshot: Snapshot, bears: Collection[str], num_entries: int) -> Snapshot | None:
    """`snapshot` without its task and its older steps, with the entries `bears` and others drawn by hash up to `num_entries`.

    None when the bank holds no entry of `bears`.
    """
    entries = snapshot.bank.entries
    mine = [entry for entry in entries if entry.id in bears]
    if not mine:
        return None
    others = sorted((entry for entry in entries if entry.id not in bears), key=lambda entry: _draw(snapshot, entry.id))
    kept = {entry.id for entry in (*mine, *others[: max(0, num_entries - len(mine))])}
    bank = snapshot.bank.model_copy(update={"entries": tuple(entry for entry in entries if entry.id in kept)})
    return snapshot.model_copy(update={"task_messages": (), "window": snapshot.window[-1:], "bank": bank})


def _draw(snapshot: Snapshot, entry_id: str) -> float:
    return hash_fraction(f"easier:{snapshot.snapshot_id}:{entry_id}")
