"""Outcomes that stand beside a trajectory rather than in it: graders write their own files, this module finds and reads them.

Looked for in the trajectory's folder, its two parents and their `results/`: `<stem>.grade.json`, `<stem>.result.json`,
`grade.json`, `result.json`, `report.json`, `results.json`, `results_summary.json`, `*swebench_eval.md`.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from data.importers.documents import Document
from pmem.rollout import Outcome

_MD_SECTION = re.compile(r"^## (\w+) Instances\s*$", re.MULTILINE)
_MD_INSTANCE = re.compile(r"^- \[?([\w.\-]+__[\w.\-]+?)\]?(?:\(|\s|$)", re.MULTILINE)
_MAX_BYTES = 64 << 20
ALL_OTHERS = "*"
"""A file that lists the resolved instances says of every other one that it is not resolved."""


def beside(document: Document, task_id: str) -> Outcome:
    """What a grader's file says of `task_id`, or an outcome without a verdict."""
    if document.member is not None:
        return Outcome()
    own = _own_file(document.path, document.stem)
    if own is not None:
        return own
    for folder in _folders(document.path):
        verdicts = _verdicts(folder)
        verdict = verdicts.get(task_id, verdicts.get(ALL_OTHERS))
        if verdict is not None:
            return Outcome(success=verdict, score=float(verdict), kind="graded beside the run")
    return Outcome()


def _folders(path: Path) -> list[Path]:
    parents = list(path.resolve().parents)[:3]
    return [folder for parent in parents for folder in (parent, parent / "results") if folder.is_dir()]


def _own_file(path: Path, stem: str) -> Outcome | None:
    for name in (f"{stem}.grade.json", f"{stem}.result.json", "grade.json", "result.json"):
        value = _json(path.parent / name)
        if isinstance(value, dict) and (found := _graded(value)) is not None:
            return found
    return None


def _graded(value: dict[str, Any]) -> Outcome | None:
    """`{task_success}`, `{verification_passed}`, or a trial's `{verifier_result: {rewards: {reward}}}`."""
    for key in ("task_success", "verification_passed", "success", "resolved"):
        if isinstance(value.get(key), bool):
            return Outcome(success=value[key], score=float(value[key]), kind=key)
    verifier = value.get("verifier_result")
    rewards = verifier.get("rewards") if isinstance(verifier, dict) else None
    reward = rewards.get("reward") if isinstance(rewards, dict) else None
    if isinstance(reward, int | float):
        return Outcome(success=reward >= 1, score=float(reward), kind="verifier_reward")
    return None


@lru_cache(maxsize=256)
def _verdicts(folder: Path) -> dict[str, bool]:
    """Every instance that some file of the folder grades."""
    found: dict[str, bool] = {}
    for name in ("results_summary.json", "results.json", "report.json"):
        found.update(_verdicts_of(_json(folder / name)))
    for page in sorted(folder.glob("*swebench_eval.md")):
        found.update(_verdicts_of_page(page.read_text(encoding="utf-8", errors="replace")))
    return found


def _verdicts_of(value: Any) -> dict[str, bool]:
    if not isinstance(value, dict):
        return {}
    if isinstance(value.get("instances"), list):
        return {
            str(row["instance_id"]): bool(row["resolved"])
            for row in value["instances"]
            if isinstance(row, dict) and {"instance_id", "resolved"} <= set(row)
        }
    if isinstance(value.get("resolved"), list):
        return {ALL_OTHERS: False, **{str(name): True for name in value["resolved"]}}
    return {key: bool(row["resolved"]) for key, row in value.items() if isinstance(row, dict) and "resolved" in row}


def _verdicts_of_page(text: str) -> dict[str, bool]:
    parts = _MD_SECTION.split(text)
    verdicts: dict[str, bool] = {}
    for heading, body in zip(parts[1::2], parts[2::2]):
        if heading in {"Resolved", "Unresolved", "Error", "Empty"}:
            verdicts.update((name, heading == "Resolved") for name in _MD_INSTANCE.findall(body))
    return verdicts


def _json(path: Path) -> Any:
    try:
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return None
