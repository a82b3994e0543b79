"""Rollouts -> ATIF v1.8 trajectories, one JSON line each; importing them gives the same events back.

    python -m data.export_atif rollouts=[runs/rollouts.jsonl] out=runs/atif.jsonl

What ATIF has no field for (error flags, probes, compactions, our own reminders) stands under `extra.pmem`, which ATIF allows.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.progress import track
from pmem.atomic import replacing
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import Event, Rollout, read_rollouts

DEFAULT = Path("configs/export_atif.yaml")
SCHEMA = "ATIF-v1.8"
NOTED = ("batch_id", "is_error", "error_kind", "changes_workspace", "is_probe", "own_reminder", "t_ms")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig:
    """Settings of the export."""

    rollouts: tuple[Path, ...] = ()
    """Rollout files."""
    out: Path = Path("runs/atif.jsonl")
    """The file to write: one trajectory a line."""


def to_atif(rollout: Rollout) -> dict[str, Any]:
    """One rollout as an ATIF trajectory."""
    steps = [_step(number, group) for number, group in enumerate(_groups(rollout.events), start=1)]
    return {
        "schema_version": SCHEMA,
        "session_id": rollout.rollout_id or None,
        "agent": {"name": rollout.agent.name, "version": "unknown", "extra": {"params": rollout.agent.params}},
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
        "extra": {
            "pmem": {
                "format": rollout.format,
                "task_id": rollout.task_id,
                "family": rollout.family,
                "split_key": rollout.split_key,
                "seed": rollout.seed,
                "source": rollout.source.model_dump(mode="json"),
                "outcome": rollout.outcome.model_dump(mode="json"),
            }
        },
    }


def _groups(events: list[Event]) -> Iterator[list[Event]]:
    """Events of one step: a thought, the calls that follow it, their results; anything else stands alone."""
    group: list[Event] = []
    for event in events:
        if group and not _continues(group, event):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _continues(group: list[Event], event: Event) -> bool:
    last = group[-1].kind
    if event.kind == "tool_call":
        return last in {"thought", "tool_call"}
    if event.kind == "tool_result":
        ids = {call.call_id for call in group if call.kind == "tool_call"}
        return last in {"tool_call", "tool_result"} and event.call_id in ids
    return False


def _step(number: int, group: list[Event]) -> dict[str, Any]:
    first = group[0]
    source = {"user": "user", "compaction": "system", "turn_end": "system", "loop_signal": "system"}.get(first.kind, "agent")
    step: dict[str, Any] = {"step_id": number, "source": source, "message": ""}
    noted: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for event in group:
        note: dict[str, Any] = {"kind": event.kind, **{key: value for key in NOTED if (value := getattr(event, key)) is not None}}
        if event.kind == "tool_call":
            note["call"] = len(calls)
            calls.append(_call(event, note))
        elif event.kind == "tool_result":
            note["result"] = len(results)
            results.append(_result(event, note, calls))
        elif event.kind in {"user", "thought", "assistant"}:
            step["message"] = event.text or ""
            note.update({} if event.text is not None else {"text": None})
        else:
            step["message"] = f"[{event.kind}]"
        noted.append(note)
    if calls:
        step["tool_calls"] = calls
    if results:
        step["observation"] = {"results": results}
    return {**step, "extra": {"pmem": {"events": noted}}}


def _call(event: Event, note: dict[str, Any]) -> dict[str, Any]:
    """ATIF wants an id, a name and arguments; what was missing is noted as missing."""
    note.update({key: None for key in ("call_id", "tool", "args") if getattr(event, key) is None})
    return {
        "tool_call_id": event.call_id or f"event-{event.i}",
        "function_name": event.tool or "unknown",
        "arguments": event.args or {},
    }


def _result(event: Event, note: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Id, tool and arguments of a result are noted as they are: many formats repeat the tool there, few the arguments."""
    note.update({key: value for key in ("call_id", "tool", "args") if (value := getattr(event, key)) is not None})
    known = any(call["tool_call_id"] == event.call_id for call in calls)
    return {**({"source_call_id": event.call_id} if known else {}), "content": event.text}


def export(config: ExportConfig) -> int:
    """Write every rollout; returns how many."""
    if not config.rollouts:
        raise UserError("no rollouts given; add rollouts=[path, …]")
    count = 0
    with replacing(config.out) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for rollout in track((one for path in config.rollouts for one in read_rollouts(path)), "exporting", unit="rollouts"):
            stream.write(json.dumps(to_atif(rollout), ensure_ascii=False, sort_keys=True) + "\n")
            count += 1
    return count


def main() -> int:
    """Entry point of `python -m data.export_atif`."""
    config = parse_stage(ExportConfig, __doc__, DEFAULT)
    print(f"exported {export(config)} trajectories ({SCHEMA}) -> {config.out}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
