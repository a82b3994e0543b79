"""Do hindsight labels sit where people saw the failure? Against AgentRx's labelled steps and MINT's paired runs.

    python -m data.check_hindsight agentrx_runs=… agentrx_truth=… mint_without=… mint_with=…

AgentRx: of the failed runs with a human-labelled first failing step, how many have a hindsight label at or before it (and how
many of the runs that passed have one at all). MINT: pairs of runs without and with expert feedback: how often the rules fire in
runs that feedback turned into a success, beside those it did not.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data.bank_writer import WriterConfig, writer_for
from data.hindsight import Finding, findings
from data.import_rollouts import Import, ImportConfig
from data.replay import replay_rollout
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import Rollout

DEFAULT = Path("configs/check_hindsight.yaml")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckConfig:
    """Where the collections are; a pair that is not given is not checked."""

    agentrx_runs: Path | None = None
    """tau_dataset_full.json of AgentRx."""
    agentrx_truth: Path | None = None
    """tau_ground_truth.json of AgentRx."""
    mint_without: Path | None = None
    """MINT results without feedback."""
    mint_with: Path | None = None
    """MINT results of the same tasks with feedback."""


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `total`."""

    what: str
    hits: int
    total: int


def check_agentrx(runs: Path, truth: Path) -> list[Share]:
    """Hindsight findings beside the first human-labelled failing step of each failed run."""
    first_failing = {str(row["trajectory_id"]): min(int(failure["step_number"]) for failure in row["failures"])
                     for row in json.loads(truth.read_text(encoding="utf-8"))}  # fmt: skip
    steps = dict(_tool_counts(runs))
    labelled = at_or_before = anywhere = passed = passed_with = 0
    for rollout in Import(ImportConfig(sources=(runs,))):
        found = run_findings(rollout)
        number = rollout.task_id.rsplit("-", 1)[1]
        if rollout.outcome.success:
            passed, passed_with = passed + 1, passed_with + bool(found)
        elif number in first_failing:
            labelled += 1
            anywhere += bool(found)
            limit = _steps_until(steps[rollout.source.record or ""], first_failing[number])
            at_or_before += any(finding.step <= limit for finding in found)
    return [
        Share(
            "AgentRx: failed runs with a hindsight label at or before the first human-labelled failing step",
            at_or_before,
            labelled,
        ),
        Share("AgentRx: failed runs with a hindsight label anywhere", anywhere, labelled),
        Share("AgentRx: passed runs with a hindsight label anywhere", passed_with, passed),
    ]


def check_mint(without: Path, with_feedback: Path) -> list[Share]:
    """Hindsight findings in runs without feedback, by what feedback did to the same task."""
    alone = {rollout.task_id: rollout for rollout in Import(ImportConfig(sources=(without,)))}
    helped: list[bool] = []
    stuck: list[bool] = []
    passed: list[bool] = []
    for other in Import(ImportConfig(sources=(with_feedback,))):
        rollout = alone.get(other.task_id)
        if rollout is None:
            continue
        fired = bool(run_findings(rollout))
        if rollout.outcome.success:
            passed.append(fired)
        else:
            (helped if other.outcome.success else stuck).append(fired)
    return [
        Share("MINT: runs with a hindsight label, failed alone and passed with feedback", sum(helped), len(helped)),
        Share("MINT: runs with a hindsight label, failed alone and with feedback", sum(stuck), len(stuck)),
        Share("MINT: runs with a hindsight label, passed alone", sum(passed), len(passed)),
    ]


def run_findings(rollout: Rollout) -> list[Finding]:
    """Findings of one rollout, through the same replay as everything else."""
    writer = writer_for(WriterConfig(miss_rate=0.0, error_rate=0.0), rollout)
    rows = list(replay_rollout(rollout, writer.operations, split="train"))
    return findings(rows, failed=rollout.outcome.success is False) if rows else []


def _tool_counts(runs: Path) -> Iterator[tuple[str, list[int]]]:
    """By record: how many tool results stand among the first n messages, for every n."""
    for run in json.loads(runs.read_text(encoding="utf-8")):
        counts, total = [0], 0
        for message in run["traj"]:
            total += message["role"] == "tool"
            counts.append(total)
        yield f"tau-retail-{run['task_id']}#{run.get('trial', 0)}", counts


def _steps_until(counts: list[int], message: int) -> int:
    """Completed tools when message number `message` (from 1) was written, its own call included."""
    return counts[min(message + 1, len(counts) - 1)]


def print_shares(shares: list[Share]) -> None:
    """One line a share."""
    table = Table("check", "hits", "of", "share")
    for share in shares:
        table.add_row(share.what, str(share.hits), str(share.total), f"{share.hits / share.total:.2f}" if share.total else "-")
    Console(soft_wrap=False).print(table)


def _given(*paths: Path | None) -> bool:
    missing: list[Any] = [path for path in paths if path is not None and not path.exists()]
    if missing:
        raise UserError(f"{missing[0]} does not exist; give the collection's own file")
    return all(path is not None for path in paths)


def main() -> int:
    """Entry point of `python -m data.check_hindsight`."""
    config = parse_stage(CheckConfig, __doc__, DEFAULT)
    shares: list[Share] = []
    if _given(config.agentrx_runs, config.agentrx_truth):
        assert config.agentrx_runs is not None and config.agentrx_truth is not None
        shares += check_agentrx(config.agentrx_runs, config.agentrx_truth)
    if _given(config.mint_without, config.mint_with):
        assert config.mint_without is not None and config.mint_with is not None
        shares += check_mint(config.mint_without, config.mint_with)
    if not shares:
        raise UserError("nothing to check; give agentrx_runs= and agentrx_truth=, or mint_without= and mint_with=")
    print_shares(shares)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
