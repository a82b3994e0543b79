"""Twins: a snapshot where memory is needed and one of another run of the same task, after the same act, where nothing is lost.

The two prompts differ by little more than what the plan says, so that only comparing it with the bank tells them apart.
"""

import re
from collections.abc import Iterable, Sequence

from data.envs.base import draw
from data.tables import Row

MIN_SHARED = 0.6
"""Least share of common words of two calls that count as the same act with, at most, another value."""


def twin_of(row: Row, others: Iterable[Row]) -> Row | None:
    """The snapshot of another rollout among `others` that is quiet and whose newest call is most like that of `row`."""
    said = _words(row)
    ranked = [
        (_shared(said, _words(other)), draw("twin", row["snapshot_id"], other["snapshot_id"]), other)
        for other in others
        if other["rollout_id"] != row["rollout_id"] and other["task_id"] == row["task_id"] and not other["mechanism"]
    ]
    best = max(ranked, key=lambda one: one[:2], default=None)
    return best[2] if best and best[0] >= MIN_SHARED else None


def _words(row: Row) -> frozenset[str]:
    steps: Sequence[Row] = row["window"]
    return frozenset(re.findall(r"\w+", steps[-1]["call"])) if steps else frozenset()


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))
