"""A real model's runs beside the decaying agent's on the same kinds of task: success, repeats, lapses; a table, no verdict.

    python -m data.simulate strengths=[llm] llm.url=http://127.0.0.1:8000/v1 llm.model=NAME num_tasks=40 out=runs/llm.jsonl
    python -m data.simulate num_tasks=40 out=runs/decaying.jsonl
    python benchmarks/agent_realism.py runs/llm.jsonl runs/decaying.jsonl

`failed again`: calls that repeat a failure alike with nothing changed; `looked again`: the same look after three steps or more;
`lapses`: probes of the check that do not hold. Means a run, with the standard error. Both counts as data.hindsight finds them.
"""

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from data.hindsight import findings
from data.replay import replay_rollout
from pmem.errors import exit_code
from pmem.rollout import Rollout, read_rollouts

COLUMNS = ("passed", "share of the check", "tool calls", "errors", "failed again", "looked again")


def figures(rollout: Rollout) -> tuple[float, ...]:
    """One number a column."""
    results = [event for event in rollout.events if event.kind == "tool_result"]
    rows = list(replay_rollout(rollout, lambda snapshot: (), split="test"))
    found = findings(rows, failed=rollout.outcome.success is False) if rows else []
    kinds = [finding.mechanism for finding in found]
    return (
        float(bool(rollout.outcome.success)), rollout.outcome.score or 0.0, len(results), sum(bool(event.is_error) for event in results),
        kinds.count("failure_loop"), kinds.count("diagnosis"),
    )  # fmt: skip


def shown(values: Iterable[float]) -> str:
    """Mean and its standard error."""
    numbers = list(values)
    error = statistics.stdev(numbers) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
    return f"{statistics.mean(numbers):.2f} ± {error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", nargs="+", type=Path)
    runs: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for path in parser.parse_args().rollouts:
        for rollout in read_rollouts(path):
            runs[rollout.agent.name].append(figures(rollout))
    print("| agent | runs | " + " | ".join(COLUMNS) + " |\n|" + " --- |" * (len(COLUMNS) + 2))
    for name, rows in sorted(runs.items()):
        print(f"| {name} | {len(rows)} | " + " | ".join(shown(column) for column in zip(*rows)) + " |")


if __name__ == "__main__":
    sys.exit(exit_code(main))
