"""Does the phrasing give the answer away? Bag-of-words probes of the prompt, trained on the snapshots that became train rows (what a
policy learns from), read on held-out families.

without bank: nothing to compare the plan with · last step only · full: and what each clause of the plan shares with the bank.
The first two must stay at or below 0.75 AUROC and 10 points below the full one (docs/design/calibration.md: only comparing may tell).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from data.snapshots import to_policy_snapshot
from data.tables import Row
from pmem.prompt import render_messages
from pmem.snapshot import BankState, Snapshot

MAX_AUROC = 0.75
MIN_GAP = 0.10
MIN_OF_EACH = 10
"""Fewer snapshots of either verdict than this in train or in the tested split give no figure."""
FRAME_SHARE = 0.02
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CLAUSES = re.compile(r"[.;:]|, | then ")


@dataclass(frozen=True, slots=True)
class Probe:
    """AUROC of one view of the prompt on one split; None where there are too few snapshots."""

    view: str
    split: str
    auroc: float | None
    num_need: int
    num_not_needed: int


def probe_all(
    rows: Sequence[Row],
    verdicts: dict[str, str],
    *,
    taught: Collection[str] | None = None,
    splits: Sequence[str] = ("heldout", "test"),
) -> list[Probe]:
    """Every view on every split. `taught`: ids of the train snapshots to learn from (None: all). Raises ImportError without
    scikit-learn."""
    known = [row for row in rows if verdicts.get(row["snapshot_id"]) in {"need", "not_needed"}]
    train = [row for row in known if row["split"] == "train" and (taught is None or row["snapshot_id"] in taught)]
    frame = _frame_words(train)
    return [
        _probe(name, partial(view, frame), train, [row for row in known if row["split"] == split], split, verdicts)
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


def _frame_words(train: Sequence[Row]) -> frozenset[str]:
    """Words of so many bank entries that they frame a fact rather than say it."""
    entries = [set(_words(entry["content"])) for row in train for entry in row["bank_before"]["entries"]]
    counts = Counter(word for entry in entries for word in entry)
    return frozenset(word for word, count in counts.items() if count > FRAME_SHARE * len(entries) and count > 1)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _without_bank(frame: frozenset[str], snapshot: Snapshot) -> list[str]:
    bare = snapshot.model_copy(update={"bank": BankState()})
    return _words(render_messages(bare)[1]["content"])


def _last_step(frame: frozenset[str], snapshot: Snapshot) -> list[str]:
    shown: dict[str, Any] = snapshot.window[-1].model_dump(include={"tool", "call", "outcome", "digest", "thought"})
    return _words(json.dumps(shown, ensure_ascii=False))


def _full(frame: frozenset[str], snapshot: Snapshot) -> list[str]:
    words = _words(render_messages(snapshot)[1]["content"])
    entries = [set(_words(entry.content)) for entry in snapshot.bank.entries]
    bank: set[str] = set().union(*entries)
    plan = (snapshot.window[-1].thought or "") if snapshot.window else ""
    thought = set(_words(plan))
    agreeing, strange = len(thought & bank), len(thought - bank)
    return [
        *words,
        *(f"in bank {min(agreeing, 8)}",),
        f"not in bank {min(strange, 16)}",
        *(f"plan only: {word}" for word in thought - bank),
        *(f"plan and bank: {word}" for word in thought & bank),
        *(word for clause in _CLAUSES.split(plan) for word in _compared(set(_words(clause)) - frame, entries, frame)),
    ]


def _compared(clause: set[str], entries: Sequence[set[str]], frame: frozenset[str]) -> list[str]:
    """A clause of the plan against the entry that it shares most with: how many words agree, are missing, are others."""
    facts = [entry - frame for entry in entries]
    best = max(facts, key=lambda fact: (len(clause & fact), -len(fact - clause)), default=set())
    agreeing, missing, other = (min(len(part), 3) for part in (clause & best, best - clause, clause - best))
    return [f"missing {missing}", f"agrees {agreeing} missing {missing}", f"other {other} missing {missing}"] if agreeing else []


VIEWS: dict[str, Callable[[frozenset[str], Snapshot], list[str]]] = {
    "without bank": _without_bank,
    "last step only": _last_step,
    "full": _full,
}


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
