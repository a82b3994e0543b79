"""Envelope parser: typical envelopes a second on one core.

    python benchmarks/bench_parse.py               # some seconds; time against length: benchmarks/bench_growth.py

Budget: >= 20,000 a second. Processor time, median of rounds. Exit code 1 over budget.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmem.envelope import Operation, parse_envelope, render_envelope

BUDGET_PER_SECOND = 20_000

_OPERATIONS = [
    Operation("update_status", "Writing the report, then the tests."),
    Operation("save_knowledge", "Output must be UTF-8 JSON lines, one object a line.", "tm-k-1"),
]
TYPICAL = {
    "empty list, silence": render_envelope([], None),
    "two writes, silence": render_envelope(_OPERATIONS, None),
    "two writes, reminder": render_envelope(_OPERATIONS, "The output must be JSON lines, not one array [tm-k-1]."),
    "thought, fence, reminder": f"<think>Is the format right? No.</think>\n```xml\n{render_envelope(_OPERATIONS, 'JSON lines [tm-k-1]')}\n```",
}


def envelopes_per_second(text: str, rounds: int = 15, calls: int = 400) -> float:
    """Median over rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            parse_envelope(text, finish_reason="stop")
        times.append(calls / max(time.process_time() - start, 1e-9))
    return statistics.median(times)


def main() -> int:
    """Print the figures; 1 when one is over budget."""
    failed = False
    for name, text in TYPICAL.items():
        rate = envelopes_per_second(text)
        failed |= rate < BUDGET_PER_SECOND
        print(f"{name:<26} {len(text):>5} chars  {rate:>10,.0f} envelopes/s  (budget {BUDGET_PER_SECOND:,})")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
