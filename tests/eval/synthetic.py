"""A seeded run on disk with known truth: snapshots, measured labels, and decisions of model arms of any quality. No model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from data.labels import write_labels
from data.snapshots import write_snapshots
from eval.decisions import Decision, write_decisions

MODEL_HASH = "ab" * 32
PROMPT_VERSION = "0123456789abcdef"
FAMILIES = ("git", "sql", "python")


@dataclass(frozen=True)
class World:
    """Numbers of episodes a split, turns an episode, and how the policies behave."""

    episodes: Mapping[str, int]
    turns: int = 10
    need_rate: float = 0.15
    separation: Mapping[str, float] = None  # type: ignore[assignment]
    """Distance of the logits of needed and other snapshots, an arm."""
    good_text: float = 0.9
    """Share of the needed snapshots where the arm's own text is the helpful one."""

    def __post_init__(self) -> None:
        if self.separation is None:
            object.__setattr__(self, "separation", {"prompted": 0.2, "sft": 3.0, "sft_grpo": 4.0})


SMALL = World(episodes={"dev": 20, "fit": 30, "certify": 80, "test": 40, "heldout": 20})


def make_run(folder: Path, world: World = SMALL, seed: int = 0) -> Path:
    """Write snapshots.parquet, labels.parquet and decisions/*.parquet under `folder` and return it."""
    generator = np.random.default_rng(seed)
    snapshots, labels = [], []
    decisions: dict[str, list[Decision]] = {arm: [] for arm in (*world.separation, "rules")}
    for split, number in world.episodes.items():
        for episode in range(number):
            for row in _episode(generator, world, split, episode):
                snapshots.append(row)
                need = bool(generator.random() < world.need_rate)
                labels.extend(label_rows(row["snapshot_id"], need))
                for arm in decisions:
                    decisions[arm].append(_decision(generator, world, arm, row["snapshot_id"], need))
    write_snapshots(folder / "snapshots.parquet", snapshots)
    write_labels(folder / "labels.parquet", labels)
    for arm, rows in decisions.items():
        write_decisions(folder / "decisions" / f"{arm}.parquet", rows)
    return folder


def _episode(generator: np.random.Generator, world: World, split: str, episode: int) -> Iterator[dict[str, Any]]:
    family = FAMILIES[episode % len(FAMILIES)]
    for turn in range(world.turns):
        yield snapshot_row(f"{split}-{episode:04d}-{turn:02d}", f"{split}-{episode:04d}", family, split, turn)


def snapshot_row(snapshot_id: str, episode: str, family: str, split: str, turn: int) -> dict[str, Any]:
    """A snapshot row with one bank entry and one step of window."""
    entry = {"id": "tm-k-1", "kind": "knowledge", "content": "write the report to out/summary.json <b>", "created": 0.0,
             "touched": 0.0, "injections": 0}  # fmt: skip
    step = {"step": turn + 1, "tool": "bash", "call": "ls", "fingerprint": "0" * 16, "outcome": "ok", "digest": "3 files",
            "provenance": "code", "thought": "Next: write out/summary.txt"}  # fmt: skip
    return {
        "snapshot_id": snapshot_id, "rollout_id": episode, "task_id": f"task-{episode}", "family": family, "split": split,
        "mechanism": "requirement", "boundary_index": turn, "step": turn + 1, "triggers": ["interval"],
        "task_messages": ["Write the report & check it"], "window": [step],
        "bank_before": {"status": None, "entries": [entry]}, "last_reminder": None, "prompt_version": PROMPT_VERSION,
        "restore_ref": None,
    }  # fmt: skip


def label_rows(snapshot_id: str, need: bool, verdict: str | None = None) -> list[dict[str, Any]]:
    """Silence, one helpful (or idle) candidate and one decoy."""
    verdict = verdict or ("need" if need else "not_needed")
    common = {"snapshot_id": snapshot_id, "label_kind": "counterfactual", "num_branches": 8, "std_error": 0.1, "verdict": verdict,
              "need_true": need, "seed_set": 0, "continuation": "never", "agent": "weak", "divergence": False}  # fmt: skip
    base = 0.4 if need else 0.7
    gains = {"good": 0.4 if need else 0.0, "decoy": -0.02}
    rows = [{**common, "candidate_id": None, "reminder_text": None, "cited_ids": [], "num_success": 4, "value": base,
             "paired_diff": None, "paired_std_error": None, "cost": None}]  # fmt: skip
    for name, gain in gains.items():
        rows.append({**common, "candidate_id": f"{snapshot_id}-{name}",
                     "reminder_text": f"{name} reminder out/summary.json [tm-k-1]",
                     "cited_ids": ["tm-k-1"], "num_success": 6, "value": base + gain, "paired_diff": gain,
                     "paired_std_error": 0.05, "cost": 0.013})  # fmt: skip
    return rows


def _decision(generator: np.random.Generator, world: World, arm: str, snapshot_id: str, need: bool) -> Decision:
    helpful = generator.random() < world.good_text
    if arm == "rules":
        spoke = bool(generator.random() < (0.2 if need else 0.02))
        return Decision(
            snapshot_id=snapshot_id, arm=arm, decision="injected" if spoke else "silent", spoke=spoke,
            reason="intervened" if spoke else "model_silent", reminder_text="x" if spoke else None, prompt_version=PROMPT_VERSION,
            matched_candidate_id=f"{snapshot_id}-good" if spoke and need else None,
        )  # fmt: skip
    prob = float(expit(generator.normal(-2.5 + world.separation[arm] * need, 1.0)))
    return Decision(
        snapshot_id=snapshot_id, arm=arm, decision="injected", reason="intervened", spoke=True, threshold=0.0, prob_raw=prob,
        label_mass=0.99, model_hash=MODEL_HASH, prompt_version=PROMPT_VERSION,
        reminder_text="good <script>alert(1)</script> [tm-k-1]", cited_ids=["tm-k-1"],
        matched_candidate_id=f"{snapshot_id}-{'good' if helpful else 'decoy'}",
        list_text="<operations>[]</operations>", tokens_in=250, tokens_out=20, latency_ms=40.0, route="embedded", seed=17,
    )  # fmt: skip
