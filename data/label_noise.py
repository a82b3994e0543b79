"""How much of the labels is luck: the share of snapshots whose verdict flips when other continuations are drawn.

    python -m data.label seed_set=1 out=runs/quickstart/labels.second.parquet     (the same snapshots, a second seed set)
    python -m data.label_noise runs/quickstart/labels.parquet runs/quickstart/labels.second.parquet

Printed: the verdicts of both sets against each other; the share that flips between need and not_needed; the share that differs at
all, unknown included; and the difference of the measured values in standard errors, whose spread should be near 1.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.labels import read_labels
from data.tables import Row
from pmem.errors import UserError, exit_code

CONFIDENT = {"need", "not_needed"}


@dataclass(frozen=True, slots=True)
class Noise:
    """`table`: (first verdict, second verdict) -> snapshots. `spread`: standard deviation of paired differences in standard errors."""

    table: Counter[tuple[str, str]]
    spread: float | None

    @property
    def total(self) -> int:
        return sum(self.table.values())

    @property
    def flipped(self) -> int:
        """Between need and not needed."""
        return sum(count for (one, two), count in self.table.items() if one != two and {one, two} == CONFIDENT)

    @property
    def differing(self) -> int:
        """At all: to or from unknown as well."""
        return sum(count for (one, two), count in self.table.items() if one != two)


def label_noise(first: Sequence[Row], second: Sequence[Row]) -> Noise:
    """Compare counterfactual labels of the snapshots that both hold. Raises UserError when nothing can be compared."""
    one, two = _measured(first), _measured(second)
    shared = sorted(set(one) & set(two))
    if not shared:
        raise UserError("no snapshot has counterfactual labels in both files; label the same snapshots.parquet twice")
    if {one[name]["seed_set"] for name in shared} & {two[name]["seed_set"] for name in shared}:
        raise UserError("both files come from the same seed set, so nothing can flip; run data.label with another seed_set")
    return Noise(Counter((one[name]["verdict"], two[name]["verdict"]) for name in shared), _spread(first, second))


def wilson(count: int, total: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, share = 1.96, count / total
    centre, half = share + z * z / (2 * total), z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (centre - half) / (1 + z * z / total), (centre + half) / (1 + z * z / total)


def _measured(rows: Sequence[Row]) -> dict[str, Row]:
    return {
        row["snapshot_id"]: row
        for row in rows
        if row["label_kind"] == "counterfactual" and row["candidate_id"] is None and not row["divergence"]
    }


def _spread(first: Sequence[Row], second: Sequence[Row]) -> float | None:
    """Of (difference of the two paired differences) / (their joint standard error), over candidates with a positive one."""
    there = {(row["snapshot_id"], row["candidate_id"]): row for row in second if row["candidate_id"] is not None}
    scaled = []
    for row in first:
        other = there.get((row["snapshot_id"], row["candidate_id"]))
        if row["candidate_id"] is None or other is None or row["paired_diff"] is None or other["paired_diff"] is None:
            continue
        error = math.hypot(row["paired_std_error"] or 0.0, other["paired_std_error"] or 0.0)
        if error > 0:
            scaled.append((row["paired_diff"] - other["paired_diff"]) / error)
    return float(np.std(scaled)) if len(scaled) > 1 else None


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m data.label_noise`."""
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path, help="labels of one seed set")
    parser.add_argument("second", type=Path, help="labels of the same snapshots with another seed_set")
    arguments = parser.parse_args(argv)
    noise = label_noise(list(read_labels(arguments.first)), list(read_labels(arguments.second)))
    for (one, two), count in sorted(noise.table.items()):
        print(f"  {one:10s} -> {two:10s} {count}")
    low, high = wilson(noise.flipped, noise.total)
    spread = "not measured" if noise.spread is None else f"{noise.spread:.2f}"
    print(
        f"label noise: {noise.flipped} of {noise.total} verdicts flip = {noise.flipped / noise.total:.1%} [{low:.1%}, {high:.1%}]; "
        f"{noise.differing} differ with unknown counted; values differ by {spread} standard errors (1 is what they promise)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
