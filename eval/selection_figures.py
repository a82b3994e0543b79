"""Expected ids against the ids somebody named: exact sets, precision and recall, with intervals clustered by task."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eval.decisions import Decision
from eval.statistics import NOT_MEASURED, bootstrap, mean, ratio


@dataclass(frozen=True, slots=True)
class Case:
    """What should be named at a snapshot or a request; empty: nothing."""

    snapshot_id: str
    task: str
    family: str
    expected: frozenset[str]


@dataclass(frozen=True, slots=True)
class Kept:
    """What was cited or kept at a case, and what that cost."""

    ids: frozenset[str]
    latency_ms: float
    tokens: int

    @classmethod
    def of(cls, row: Decision) -> "Kept":
        """What a decision cites; silence cites nothing."""
        return cls(frozenset(row.cited_ids) if row.spoke else frozenset(), row.latency_ms, row.tokens_in + row.tokens_out)


def family_table(judged: Sequence[tuple[Case, Kept]], seed: int) -> dict[str, Any]:
    """Figures over all cases and for each family."""
    table = {"all": figures(judged, seed)}
    for family in sorted({case.family for case, _ in judged}):
        table[family] = figures([(case, kept) for case, kept in judged if case.family == family], seed)
    return table


def figures(judged: Sequence[tuple[Case, Kept]], seed: int) -> dict[str, Any]:
    """Exact-set correctness, precision and recall of ids, milliseconds and tokens a step."""
    said = [kept.ids for _, kept in judged]
    expected = [case.expected for case, _ in judged]
    tasks = [case.task for case, _ in judged]
    both = np.array([float(len(left & right)) for left, right in zip(said, expected)])
    num_said, num_expected = np.array([float(len(ids)) for ids in said]), np.array([float(len(ids)) for ids in expected])
    exact = np.array([float(left == right) for left, right in zip(said, expected)])
    made = {
        "exact": bootstrap(mean(exact), tasks, seed=seed, proportion=True),
        "precision": bootstrap(ratio(both, num_said), tasks, seed=seed, proportion=True) if num_said.any() else NOT_MEASURED,
        "recall": bootstrap(ratio(both, num_expected), tasks, seed=seed, proportion=True) if num_expected.any() else NOT_MEASURED,
        "latency_ms": bootstrap(mean(np.array([kept.latency_ms for _, kept in judged])), tasks, seed=seed),
        "tokens": bootstrap(mean(np.array([float(kept.tokens) for _, kept in judged])), tasks, seed=seed),
    }
    return {name: asdict(figure) for name, figure in made.items()}
