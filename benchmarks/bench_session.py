"""Hot path of the session: microseconds of `on_tool_result` with a full bank and window, and memory over many steps.

    python benchmarks/bench_session.py                 # latencies, about 20 s
    python benchmarks/bench_session.py --steps 1000000 # and flat memory over a million steps, some minutes

Budget: median <= 300 us for a 2 kB result and <= 1.5 ms for 20 kB, p99 <= 3 x median, no I/O on the host's thread.
Exit code 1 when a figure is over budget. Times are processor time of the calling thread; calls that the scheduler interrupted
are counted apart.
"""

import argparse
import gc
import json
import random
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pmem.envelope import Operation
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.telemetry import FileTelemetry

BUDGET_US = {2_000: 300.0, 20_000: 1_500.0}
RESULTS = {
    "log": "2026-01-01 12:00:{n:02d} INFO worker handled request id={n} path=/api/v1/items status=200 in 12ms\n",
    "code": "    def test_{n}(self):\n        result = total(items, 0.{n})\n        assert result == {n}, f'bad {{result}}'\n",
    "json": '{{"id": {n}, "name": "item-{n}", "sha": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "tags": ["a", "b"]}}\n',
}


def result_text(kind: str, size: int, *, error: bool) -> str:
    """A tool result of about `size` characters; an error names its problem in the last line."""
    parts, length = [], 0
    while length < size - 60:
        parts.append(RESULTS[kind].format(n=len(parts) % 97))
        length += len(parts[-1])
    return "".join(parts)[: size - 60] + ("\nValueError: unit must be EUR\n" if error else "\n12 passed\n")


def full_session(telemetry: FileTelemetry | None = None) -> MemorySession:
    """A session with 20 knowledge and 30 procedural entries and a full window."""
    session = MemorySession(Settings(), telemetry=telemetry)
    session.on_user_message("Write the report as JSON.")
    session.on_turn_start()
    for number in range(20):
        session.apply_operations([Operation("save_knowledge", f"Requirement {number}: " + "words of a fact " * 8)])
    for number in range(30):
        session.apply_operations([Operation("save_procedural", f"Attempt {number}: " + "what was tried " * 8)])
    for number in range(20):
        session.on_tool_result(tool="bash", args={"command": f"echo {number}"}, text="warm")
    return session


def latencies_us(kind: str, size: int, *, error: bool, num: int = 1500) -> tuple[list[float], int]:
    """Sorted microseconds of thread time a call, thoughts and changing arguments included; and how many calls were disturbed.

    A call during which the scheduler took the processor away, and the one after it, run on cold caches: they are counted apart.
    """
    session = full_session()
    text = result_text(kind, size, error=error)
    found: list[float] = []
    num_disturbed, cold = 0, False
    for number in range(num):
        session.on_agent_text(f"Now step {number}. Next: look at the report and write out/summary.json.")
        switches, started = num_switches(), time.thread_time_ns()
        session.on_tool_result(
            tool="bash", args={"command": f"pytest -q tests/part_{number % 50}"}, text=text, is_error=error, call_id=str(number)
        )
        took = (time.thread_time_ns() - started) / 1000
        disturbed = num_switches() != switches
        if disturbed or cold:
            num_disturbed += 1
        else:
            found.append(took)
        cold = disturbed
        session.on_batch_end()
        session.evaluate()
        cold = cold or num_switches() != switches
    assert session.num_faults == 0
    return sorted(found), num_disturbed


def num_switches() -> int:
    """How often the scheduler took the processor from this thread."""
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_nivcsw


def io_events_on_host_thread(num: int = 300) -> list[str]:
    """Audit events of files and sockets that the host's thread caused while it was observed."""
    host, events, watching = threading.get_ident(), [], False

    def hook(event: str, args: object) -> None:
        if watching and threading.get_ident() == host and event.startswith(("open", "os.", "socket", "subprocess", "shutil")):
            events.append(event)

    sys.addaudithook(hook)
    with tempfile.TemporaryDirectory() as folder:
        telemetry = FileTelemetry(Settings(state_dir=Path(folder)))
        session = full_session(telemetry)
        watching = True
        for number in range(num):
            session.on_tool_result(tool="bash", args={"command": "make"}, text="error: no", is_error=True)
            session.on_batch_end()
            session.evaluate()
            if number % 20 == 0:
                session.on_turn_start()
        watching = False
        telemetry.close()
    return events


def memory_growth(num_steps: int, num_samples: int = 10) -> list[tuple[int, int]]:
    """(step, resident kB) at even places of a run of varied steps, the first after a tenth."""
    session, draw = full_session(), random.Random(17)
    texts = [result_text(kind, 400, error=error) for kind in RESULTS for error in (False, True)]
    samples = []
    for number in range(1, num_steps + 1):
        error = draw.random() < 0.3
        session.on_agent_text(f"plan {number}")
        session.on_tool_call(tool="bash", args={"command": f"run {number % 5000}"}, call_id=str(number))
        session.on_tool_result(
            tool="bash", args={"command": f"run {number % 5000}"}, text=draw.choice(texts), is_error=error, call_id=str(number)
        )
        if number % 7 == 0:
            session.on_batch_end()
            session.evaluate()
        if number % 500 == 0:
            session.on_compaction()
            session.on_turn_end(aborted=number % 1000 == 0)
            session.on_user_message(f"go on {number}")
            session.on_turn_start()
            reminder = session.peek()
            if reminder is not None:
                session.commit(reminder)
        if number % (num_steps // num_samples) == 0:
            gc.collect()
            samples.append((number, resident_kb()))
    return samples


def resident_kb() -> int:
    """Resident memory now, or the highest so far where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(size: int, kind: str, *, error: bool) -> dict[str, object]:
    """One row of the report."""
    found, num_disturbed = latencies_us(kind, size, error=error)
    median, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    return {
        "bytes": size, "text": kind, "error": error, "median_us": round(median), "p99_us": round(p99),
        "p99_ratio": round(p99 / median, 2), "num_disturbed": num_disturbed, "budget_us": BUDGET_US[size],
        "held": median <= BUDGET_US[size] and p99 <= 3 * median,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000, help="steps of the memory run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measured(size, kind, error=error) for size in BUDGET_US for kind in RESULTS for error in (False, True)]
    report = {"latency": rows, "io_events": io_events_on_host_thread(), "memory_kb": memory_growth(options.steps)}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report, options.steps)
    return int(not all(row["held"] for row in rows) or bool(report["io_events"]))


def print_report(report: dict[str, Any], num_steps: int) -> None:
    for row in report["latency"]:
        print(
            "{bytes:>6} B {text:<4} error={error!s:<5} median {median_us:>5} us  p99 {p99_us:>5} us ({p99_ratio} x)  "
            "disturbed {num_disturbed:>4}  budget {budget_us:.0f} us: {held}".format(**row)
        )
    print(f"I/O events on the host's thread: {len(report['io_events'])}")
    print(f"resident memory over {num_steps:,} steps: " + ", ".join(f"{kb / 1024:.1f}" for _, kb in report["memory_kb"]) + " MiB")


if __name__ == "__main__":
    sys.exit(main())
