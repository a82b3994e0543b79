"""Redaction: microseconds a text, nothing suspicious and something suspicious, and the distance to a general detector.

    python benchmarks/bench_redaction.py                      # some seconds
    pip install detect-secrets && python benchmarks/bench_redaction.py   # with the comparison

Budget: median <= 1,000 us for 20 kB of code or log with nothing to hide (a tool result of that size has 1,500 us in all). Processor
time, median of 200 calls. Exit code 1 over budget.
"""

import base64
import importlib.util
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmem.redaction import redact

ROOT = Path(__file__).parents[1]
BUDGET_US = 1_000.0


def texts() -> dict[str, str]:
    """20 kB each, the same every time."""
    choice = random.Random(7)
    code = "".join(path.read_text() for path in sorted((ROOT / "pmem").glob("bank.py")) + sorted((ROOT / "pmem").glob("p*.py")))
    log = "".join(
        f"2026-01-01 12:00:{n % 60:02d} INFO worker handled request id={n} path=/api/v1/items status=200 in {n % 97}ms\n"
        for n in range(300)
    )
    tests = "".join(
        f"tests/unit/test_module_{n}.py::test_behaviour_of_a_long_name[{choice.randrange(99)}] PASSED\n" for n in range(400)
    )
    hashes = "".join(f"{choice.randbytes(20).hex()} refs/heads/branch-{n}\n" for n in range(500))
    image = "data:image/png;base64," + base64.b64encode(choice.randbytes(15_000)).decode()
    prose = "Die Prüfung ergab, daß die Ausgabe – wie verlangt – zeilenweise erfolgt. 日本語 " * 300
    secret = f"{log[:9_000]}\nexport PASSWORD=hunter2 AWS={'AKIA' + 'IOSFODNN7EXAMPLE'}\n{log[:9_000]}"
    tokens = "".join(f"token={n} max_tokens: {n} key={n} password: str\n" for n in range(600))
    named = {
        "code": code,
        "log": log,
        "test run": tests,
        "hashes": hashes,
        "image": image,
        "other scripts": prose,
        "two secrets": secret,
        "telling names, no secret": tokens,
    }
    return {name: (text * 3)[:20_000] for name, text in named.items()}


def median_us(call: Callable[[], object], calls: int = 200) -> float:
    """Median processor time of one call."""
    times = []
    for _ in range(calls):
        start = time.process_time_ns()
        call()
        times.append((time.process_time_ns() - start) / 1e3)
    return statistics.median(times)


def detect_secrets_us(text: str) -> float:
    """The same text through detect-secrets with its default plugins, line by line as it works."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with default_settings():
        return median_us(lambda: [list(scan_line(line)) for line in text.splitlines()], calls=3)


def main() -> int:
    """Print the figures; 1 when one is over budget."""
    failed = False
    compare = importlib.util.find_spec("detect_secrets") is not None
    for name, text in texts().items():
        took = median_us(lambda text=text: redact(text))  # type: ignore[misc]
        count = redact(text)[1]
        over = count == 0 and name in ("code", "log", "test run") and took > BUDGET_US
        failed |= over
        other = f"   detect-secrets {detect_secrets_us(text) / 1e3:>8.1f} ms" if compare else ""
        print(f"{name:<26} 20 kB  {took:>7.0f} us   {count} redacted{other}{'   OVER BUDGET' if over else ''}")
    short = texts()["code"][:2_000]
    print(f"{'code':<26}  2 kB  {median_us(lambda: redact(short)):>7.0f} us")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
