"""Run a session over recorded rollouts and show, step by step, what memory would have said, where, why, and why it was silent.

pmem replay rollouts.jsonl                      rules only unless the settings name a route
pmem replay rollouts.jsonl --cadence 1 --said   a step after every tool; only the places where something was said
pmem replay rollouts.jsonl --rules --json       one JSON line a finding, no model asked
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmem.cli_output import command_parser, console, print_json_line, settings_of
from pmem.errors import UserError
from pmem.settings import Settings

if TYPE_CHECKING:
    from pmem.policy import MemoryPolicy
    from pmem.rehearsal import Finding
    from pmem.rollout import Rollout

SAID_WIDTH = 88


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from pmem.rehearsal import Rehearsal

    settings = settings_of(options)
    if options.cadence is not None:
        settings = settings.model_copy(update={"cadence_tool_calls": options.cadence})
    if not settings.enabled:
        raise UserError("memory is disabled (enabled: false), so it would say nothing anywhere; set enabled: true to replay")
    policy = None if options.rules or settings.route is None else _policy(settings)
    counts: Counter[str] = Counter()
    for number, rollout in enumerate(_chosen(options)):
        findings = Rehearsal(settings, policy).run(rollout.events)
        if options.json:
            _print_json(rollout, findings, counts, said_only=options.said)
        else:
            _print_rollout(rollout, findings, counts, said_only=options.said, first=number == 0)
    if not counts and not any(True for _ in _chosen(options)):
        raise UserError(f"{options.rollout} holds no rollout{' ' + options.id if options.id else ''}; name a pmem.rollout/1 file")
    if not options.json:
        _print_counts(counts)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("replay", __doc__)
    parser.add_argument("rollout", type=Path, help="pmem.rollout/1 file (.jsonl or .jsonl.gz)")
    parser.add_argument("--id", default=None, help="only the rollout of this id")
    parser.add_argument("--limit", type=_positive, default=None, help="at most so many rollouts")
    parser.add_argument(
        "--cadence", type=_positive, default=None, help="completed tools between interval steps (default: settings)"
    )
    parser.add_argument("--rules", action="store_true", help="rules tier only, whatever the settings say")
    parser.add_argument("--said", action="store_true", help="show only the places where something was said")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _chosen(options: argparse.Namespace) -> "Iterator[Rollout]":
    from pmem.rollout import read_rollouts

    taken = 0
    for rollout in read_rollouts(options.rollout):
        if options.id in (None, rollout.rollout_id):
            yield rollout
            taken += 1
            if taken == options.limit:
                return


def _policy(settings: Settings) -> "MemoryPolicy":
    from pmem.router import build_policy

    policy = build_policy(settings, notice=lambda sentence: print(sentence, file=sys.stderr))
    assert policy is not None, "a route is set and memory is enabled"
    return policy


def _count(finding: "Finding", counts: Counter[str]) -> None:
    if finding.kind != "delivery":
        counts["annotation" if finding.channel else f"{finding.decision}: {finding.why.partition(':')[0]}"] += 1
    else:
        counts["reminder delivered"] += 1


def _print_json(rollout: "Rollout", findings: "Iterator[Finding]", counts: Counter[str], *, said_only: bool) -> None:
    for finding in findings:
        _count(finding, counts)
        if finding.said or not said_only:
            print_json_line({"rollout_id": rollout.rollout_id, "task_id": rollout.task_id, **finding.as_json()})


def _print_rollout(
    rollout: "Rollout", findings: "Iterator[Finding]", counts: Counter[str], *, said_only: bool, first: bool
) -> None:
    out = console()
    success = {True: "succeeded", False: "failed", None: "outcome unknown"}[rollout.outcome.success]
    out.rule(f"{rollout.task_id} ({rollout.family}, {success})", style="dim", align="left")
    if first:
        out.print("[dim]step outcome  call → what memory did[/dim]")
    for finding in findings:
        _count(finding, counts)
        if finding.said or not said_only:
            _print_finding(out, finding)


def _print_finding(out: Any, finding: "Finding") -> None:
    from rich.text import Text

    place = f"{finding.step or '':>4} {finding.outcome or finding.kind:<8}"
    style = {"error": "red", "delivery": "cyan"}.get(finding.outcome or finding.kind, "")
    line = Text(place, style=style) + Text(f" {(finding.call or '')[:SAID_WIDTH]}")
    if not finding.said:
        line.append(f"  → {finding.decision}: {finding.why}" + _odds(finding), style="dim")
    out.print(line)
    if finding.said:
        out.print(Text(f"     → {finding.channel}, {finding.why}{_odds(finding)}", style="bold yellow"))
        for said in finding.said.splitlines():
            out.print(Text(f"       {said}", style="yellow"))


def _odds(finding: "Finding") -> str:
    return "" if finding.prob_speak is None else f" (p = {finding.prob_speak:.2f})"


def _print_counts(counts: Counter[str]) -> None:
    out = console()
    out.rule("in all", style="dim", align="left")
    for name, count in counts.most_common():
        out.print(f"{count:>6}  {name}", markup=False)
