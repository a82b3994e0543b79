"""Envelope parser: typical envelopes a second on one core, and time against length up to 1 MiB for texts made to hurt.

    python benchmarks/bench_parse.py              # about 20 s on a quiet core
    python benchmarks/bench_parse.py --no-plot

Budget: >= 20,000 typical envelopes a second; for each hostile text, 1 MiB takes at most 1.6 x 16 times as long as 64 KiB (a line).
Processor time, median of rounds. Writes docs/img/parse_time.png where matplotlib is installed. Exit code 1 over budget.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmem.envelope import Envelope, Operation, citations, parse_envelope, render_envelope

BUDGET_PER_SECOND = 20_000
MAX_GROWTH = 1.6
LENGTHS = [1 << power for power in (14, 16, 18, 20)]
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "parse_time.png"

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
_LIST = "<operations>[]</operations>"
_SPEAK = f"{_LIST}<context_for_action>"
HOSTILE: dict[str, Callable[[int], str]] = {
    "<": lambda n: "<" * n,
    "[": lambda n: "<operations>" + "[" * n,
    "<think>": lambda n: "<think>" * (n // 7),
    "opened lists": lambda n: "<operations>[" * (n // 13),
    "opened strings": lambda n: '<operations>["' * (n // 14),
    "nested objects": lambda n: "<operations>" + '[{"a":' * (n // 6),
    "complete lists": lambda n: _LIST * (n // len(_LIST)),
    "opened reminders": lambda n: _SPEAK * (n // len(_SPEAK)),
    "lists in a reminder": lambda n: f"{_SPEAK}{_LIST * (n // len(_LIST))}</context_for_action>",
    "tags in a reminder": lambda n: f"{_SPEAK}{'</a' * (n // 3)}</context_for_action>",
    "thoughts in lists": lambda n: "<operations>[]<think><think></think></operations>" * (n // 48),
    "one long content": lambda n: '<operations>[{"op":"update_status","content":"' + "ab " * (n // 3) + '"}]</operations>',
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


def seconds(text: str) -> float:
    """Best of three: the least disturbed."""
    return min(_once(text) for _ in range(3))


def _once(text: str) -> float:
    start = time.process_time()
    envelope = parse_envelope(text, finish_reason="stop")
    if isinstance(envelope, Envelope) and envelope.reminder:
        citations(envelope.reminder)
    return time.process_time() - start


def plot(curves: dict[str, list[float]], picture: Path) -> None:
    """Time against length, both logarithmic; a line of slope one is linear."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for number, (name, times) in enumerate(curves.items()):
        style = "-" if number < 10 else ":"
        axes.loglog([length / 1024 for length in LENGTHS], [1e3 * value for value in times], style, marker="o", ms=3, label=name)
    axes.loglog([LENGTHS[0] / 1024, 1024], [0.5, 0.5 * 1024 * 1024 / LENGTHS[0]], "k--", linewidth=1, label="linear")
    axes.set(xlabel="length (KiB)", ylabel="processor time (ms)", title="parse_envelope on hostile texts")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(alpha=0.3)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def main() -> int:
    """Print the figures; 1 when one is over budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    failed = False
    for name, text in TYPICAL.items():
        rate = envelopes_per_second(text)
        failed |= rate < BUDGET_PER_SECOND
        print(f"{name:<26} {len(text):>5} chars  {rate:>10,.0f} envelopes/s  (budget {BUDGET_PER_SECOND:,})")
    curves = {name: [seconds(make(length)) for length in LENGTHS] for name, make in HOSTILE.items()}
    print(
        f"\n{'hostile text':<22} " + " ".join(f"{length // 1024:>6} KiB" for length in LENGTHS) + "   1 MiB / 64 KiB (linear: 16)"
    )
    for name, times in curves.items():
        growth = times[-1] / max(times[1], 1e-4)
        failed |= growth > 16 * MAX_GROWTH
        print(f"{name:<22} " + " ".join(f"{1e3 * value:>7.1f} ms" for value in times) + f"   {growth:>6.1f}")
    if not options.no_plot and importlib.util.find_spec("matplotlib"):
        plot(curves, PICTURE)
        print(f"\nplot: {PICTURE.relative_to(PICTURE.parents[2])}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
