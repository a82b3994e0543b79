"""Values of reminders that nobody measured beforehand: the environment is branched on demand, with the pairs of `data.label`.

live = LiveValues(Path("runs/snapshots.parquet"), {"…"})
live.value("…", "Write the report as JSON. [tm-k-1]")      # share of the branches that pass; None where nothing can be rebuilt
"""

import json
from collections.abc import Collection
from pathlib import Path
from statistics import fmean

from data.branches import continuation_seeds
from data.episode import rebuild
from data.label import diverged
from data.snapshots import read_snapshots
from data.tables import Row


class LiveValues:
    """Branches of the simulated runs behind some snapshots. The same seeds as `data.label seed_set=…`, so values pair with its labels.

    Imported snapshots cannot be rebuilt and have no value.
    """

    def __init__(self, snapshots: Path, wanted: Collection[str], *, num_branches: int = 8, seed_set: int = 0) -> None:
        self._rows: dict[str, Row] = {
            row["snapshot_id"]: row
            for row in read_snapshots(snapshots)
            if row["snapshot_id"] in wanted and row["restore_ref"] is not None
        }
        self._seeds = continuation_seeds(seed_set, num_branches)
        self._known: dict[tuple[str, str], float | None] = {}

    @property
    def num_measured(self) -> int:
        """Different reminders measured so far."""
        return len(self._known)

    def value(self, snapshot_id: str, reminder: str) -> float | None:
        """Share of the branches that pass when the agent reads `reminder` there."""
        asked = (snapshot_id, reminder)
        if asked not in self._known:
            self._known[asked] = self._measure(*asked)
        return self._known[asked]

    def _measure(self, snapshot_id: str, reminder: str) -> float | None:
        row = self._rows.get(snapshot_id)
        if row is None:
            return None
        episode = rebuild({**json.loads(row["restore_ref"]), "step": row["step"]})
        if episode.done or diverged(row, episode.events):
            return None
        return fmean(bool(episode.fork(seed).run_to_end(reminder).success) for seed in self._seeds)
