"""The decisions file, `pmem.decision/1`: one row a snapshot and arm (and sample), what the policy would do there
(docs/design/files.md).

A row is made at a low threshold (`threshold`, the writing floor of `eval.score`), so that a later, higher threshold can be
applied to the saved row without asking the model again: `eval.operating`. `data.pivots` reads the same file by column names.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from data.tables import gather, read_rows, with_format, write_table
from pmem.errors import UserError

FORMAT = "pmem.decision/1"
LABEL_MASS_FLOOR = 0.95
ARMS = (
    "never",
    "always",
    "random",
    "rules",
    "prompted",
    "sft",
    "sft_grpo",
    "full_bank",
    "injection_only",
    "retrieval",
    "advisor",
    "oracle",
)
OPERATION_TYPE = pa.struct([("op", pa.string()), ("content", pa.string()), ("id", pa.string())])
DECISION_SCHEMA = with_format(FORMAT, [
    pa.field("snapshot_id", pa.string(), nullable=False),
    pa.field("arm", pa.string(), nullable=False),
    pa.field("model_hash", pa.string()),
    pa.field("prompt_version", pa.string()),
    pa.field("seed", pa.int64()),
    pa.field("sample_index", pa.int64()),
    pa.field("list_text", pa.string()),
    pa.field("operations", pa.list_(OPERATION_TYPE), nullable=False),
    pa.field("prob_raw", pa.float64()),
    pa.field("prob_calibrated", pa.float64()),
    pa.field("label_mass", pa.float64()),
    pa.field("spoke", pa.bool_(), nullable=False),
    pa.field("threshold", pa.float64()),
    pa.field("reminder_text", pa.string()),
    pa.field("cited_ids", pa.list_(pa.string()), nullable=False),
    pa.field("matched_candidate_id", pa.string()),
    pa.field("decision", pa.string(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("tokens_in", pa.int64(), nullable=False),
    pa.field("tokens_out", pa.int64(), nullable=False),
    pa.field("latency_ms", pa.float64(), nullable=False),
    pa.field("route", pa.string()),
])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One row. `latency_ms` is 0 for arms without a model, so that their files are the same bytes every time."""

    snapshot_id: str
    arm: str
    decision: str
    reason: str
    model_hash: str | None = None
    prompt_version: str | None = None
    seed: int | None = None
    sample_index: int | None = None
    list_text: str | None = None
    operations: list[dict[str, Any]] = field(default_factory=list)
    prob_raw: float | None = None
    prob_calibrated: float | None = None
    label_mass: float | None = None
    spoke: bool = False
    threshold: float | None = None
    reminder_text: str | None = None
    cited_ids: list[str] = field(default_factory=list)
    matched_candidate_id: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    latency_ms: float = 0.0
    route: str | None = None


def write_decisions(path: Path, decisions: Iterable[Decision], *, facts: dict[str, str] | None = None) -> int:
    """Write rows sorted by snapshot, arm and sample; returns how many. `facts`: how the rows were made, into the metadata."""
    table = gather(DECISION_SCHEMA, map(asdict, decisions))
    return write_table(path, table, sort_by=["snapshot_id", "arm", "sample_index"], facts=facts)


def read_decisions(path: Path) -> list[Decision]:
    """Read a decisions file. Raises UserError on a probability outside [0, 1], NaN, an unknown arm, or a snapshot that
    stands twice.
    """
    decisions: list[Decision] = []
    seen: set[tuple[str, str, int | None]] = set()
    for row in read_rows(path, DECISION_SCHEMA):
        row.pop("format")
        decision = Decision(**row)
        check_decision(decision, path)
        key = (decision.snapshot_id, decision.arm, decision.sample_index)
        if key in seen:
            raise UserError(f"{path}: snapshot {decision.snapshot_id} stands twice for arm {decision.arm}; score it again")
        seen.add(key)
        decisions.append(decision)
    if not decisions:
        raise UserError(f"{path} holds no decisions; run `python -m eval.score` over a split that has snapshots")
    return decisions


def check_decision(decision: Decision, path: Path) -> None:
    """Raise UserError naming the row whose numbers cannot be probabilities, or that speaks on a read that must count as
    malformed.
    """
    if decision.arm not in ARMS:
        raise UserError(f"{path}: unknown arm {decision.arm!r}; known are {', '.join(ARMS)}")
    for name in ("prob_raw", "prob_calibrated", "label_mass"):
        value = getattr(decision, name)
        if value is None:
            continue
        if math.isnan(value):
            raise UserError(f"{path}: {name} of snapshot {decision.snapshot_id} is NaN; score the arm again")
        if not -1e-9 <= value <= 1 + 1e-9:
            raise UserError(f"{path}: {name} of snapshot {decision.snapshot_id} is {value}, outside [0, 1]; score the arm again")
    if decision.spoke and decision.label_mass is not None and decision.label_mass < LABEL_MASS_FLOOR:
        raise UserError(
            f"{path}: snapshot {decision.snapshot_id} speaks with label mass {decision.label_mass:.3f} below {LABEL_MASS_FLOOR}; "
            "such a step is malformed, score the arm again with this version"
        )
