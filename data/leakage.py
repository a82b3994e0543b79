"""Does the phrasing give the answer away? Bag-of-words probes of the prompt, trained on `train`, read on held-out families.

without bank: nothing to compare the plan with · last step only · full: and whether the newest thought's words stand in the bank.
The first two must stay at or below 0.75 AUROC and 10 points below the full one (docs/design/calibration.md: only comparing may tell).
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from data.snapshots import to_policy_snapshot
from data.tables import Row
from pmem.prompt import render_messages
from pmem.snapshot import BankState, Snapshot

MAX_AUROC = 0.75
MIN_GAP = 0.10
MIN_OF_EACH = 10
"""Fewer snapshots of either verdict than this in train or in the tested split give no figure."""
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Probe:
    """AUROC of one view of the prompt on one split; None where there are too few snapshots."""

    view: str
    split: str
    auroc: float | None
    num_need: int
    num_not_needed: int


def probe_all(rows: Sequence[Row], verdicts: dict[str, str], *, splits: Sequence[str] = ("heldout", "test")) -> list[Probe]:
    """Every view on every split. Raises ImportError without scikit-learn."""
    known = [row for row in rows if verdicts.get(row["snapshot_id"]) in {"need", "not_needed"}]
    train = [row for row in known if row["split"] == "train"]
    return [
        _probe(name, view, train, [row for row in known if row["split"] == split], split, verdicts)
        for name, view in VIEWS.items()
        for split in splits
    ]


def breaches(probes: Sequence[Probe]) -> list[str]:
    """One sentence a probe that tells too much."""
    full = {probe.split: probe.auroc for probe in probes if probe.view == "full"}
    found = []
    for probe in probes:
        if probe.view == "full" or probe.auroc is None:
            continue
        if probe.auroc > MAX_AUROC:
            found.append(f"{probe.view} on {probe.split}: AUROC {probe.auroc:.3f} is above {MAX_AUROC}")
        best = full.get(probe.split)
        if best is not None and probe.auroc > best - MIN_GAP:
            found.append(f"{probe.view} on {probe.split}: AUROC {probe.auroc:.3f} is not 10 points below the full {best:.3f}")
    return found


def _without_bank(snapshot: Snapshot) -> list[str]:
    bare = snapshot.model_copy(update={"bank": BankState()})
    return _TOKEN.findall(render_messages(bare)[1]["content"].lower())


def _last_step(snapshot: Snapshot) -> list[str]:
    shown: dict[str, Any] = snapshot.window[-1].model_dump(include={"tool", "call", "outcome", "digest", "thought"})
    return _TOKEN.findall(json.dumps(shown, ensure_ascii=False).lower())


def _full(snapshot: Snapshot) -> list[str]:
    words = _TOKEN.findall(render_messages(snapshot)[1]["content"].lower())
    bank = {word for entry in snapshot.bank.entries for word in _TOKEN.findall(entry.content.lower())}
    thought = set(_TOKEN.findall((snapshot.window[-1].thought or "").lower())) if snapshot.window else set()
    agreeing, strange = len(thought & bank), len(thought - bank)
    return [
        *words,
        *(f"in bank {min(agreeing, 8)}",),
        f"not in bank {min(strange, 16)}",
        *(f"plan only: {word}" for word in thought - bank),
        *(f"plan and bank: {word}" for word in thought & bank),
    ]


VIEWS: dict[str, Callable[[Snapshot], list[str]]] = {"without bank": _without_bank, "last step only": _last_step, "full": _full}


def _probe(
    name: str,
    view: Callable[[Snapshot], list[str]],
    train: Sequence[Row],
    test: Sequence[Row],
    split: str,
    verdicts: dict[str, str],
) -> Probe:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    labels = [[verdicts[row["snapshot_id"]] == "need" for row in rows] for rows in (train, test)]
    counts = sum(labels[1]), len(labels[1]) - sum(labels[1])
    if any(min(sum(part), len(part) - sum(part)) < MIN_OF_EACH for part in labels):
        return Probe(name, split, None, *counts)
    words = CountVectorizer(analyzer=lambda row: view(to_policy_snapshot(row)), binary=True, min_df=2)
    model = LogisticRegression(C=0.1, max_iter=2_000, class_weight="balanced")
    model.fit(words.fit_transform(train), labels[0])
    scores = model.decision_function(words.transform(test))
    return Probe(name, split, float(roc_auc_score(labels[1], scores)), *counts)
