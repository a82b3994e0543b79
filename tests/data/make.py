"""Rows of snapshots and labels for tests, changed key by key."""

from typing import Any

from data.snapshots import snapshot_columns, with_snapshot_id
from pmem.prompt import PROMPT_VERSION
from pmem.rollout import Agent, Event, Outcome, Rollout, Source
from pmem.snapshot import BankState, Entry, Snapshot, Step

SNAPSHOT = Snapshot(
    task_messages=("Write the report.", "Use semicolons."),
    window=(Step(step=1, tool="bash", call="ls", fingerprint="ab" * 8, outcome="ok", digest="a.txt", thought="Next: read."),),
    bank=BankState(
        status="reading",
        entries=(Entry(id="tm-k-4", kind="knowledge", content="semicolons", created=1, touched=2),),
        next_number=5,
    ),
)


def snapshot_row(**changes: Any) -> dict[str, Any]:
    row = {
        "rollout_id": "r1",
        "task_id": "t1",
        "family": "demo",
        "split": "train",
        "mechanism": None,
        "boundary_index": 0,
        "step": 1,
        "prompt_version": PROMPT_VERSION,
        "restore_ref": None,
        **snapshot_columns(SNAPSHOT),
        **changes,
    }
    return with_snapshot_id(row)


def label_row(**changes: Any) -> dict[str, Any]:
    row = {
        "snapshot_id": "s1",
        "label_kind": "counterfactual",
        "candidate_id": None,
        "cited_ids": [],
        "num_branches": 8,
        "num_success": 4,
        "value": 0.5,
        "std_error": 0.17,
        "verdict": "need",
        "seed_set": 0,
        "divergence": False,
    }
    return {**row, **changes}


def rollout(*events: dict[str, Any], success: bool | None = None, task_id: str = "t1") -> Rollout:
    """A rollout of the given events."""
    return Rollout(
        task_id=task_id,
        family="demo",
        split_key=task_id,
        agent=Agent(name="a"),
        source=Source(name="demo"),
        outcome=Outcome(success=success),
        events=[Event(i=index, **fields) for index, fields in enumerate(events)],
    ).with_id()


def tool(command: str, text: str, *, is_error: bool = False, thought: str | None = None, number: int = 0) -> list[dict[str, Any]]:
    """The events of one call of bash."""
    call_id = f"c-{command}-{number}"
    said = [{"kind": "thought", "text": thought}] if thought else []
    return [
        *said,
        {"kind": "tool_call", "call_id": call_id, "tool": "bash", "args": {"command": command}},
        {"kind": "tool_result", "call_id": call_id, "tool": "bash", "text": text, "is_error": is_error},
    ]
