"""Time against length up to 1 MiB, for texts made to hurt the three places that read what nobody controls: every line is a line.

    python benchmarks/bench_growth.py              # about half a minute on a quiet core
    python benchmarks/bench_growth.py --no-plot

Budget: 1 MiB takes at most 1.6 x 16 times as long as 64 KiB. Processor time, best of three. Settings of more than 64 KiB are
refused unread, so their growth is judged from 4 to 64 KiB. Writes docs/img/time_against_length.png where matplotlib is installed.
Exit code 1 when something grows faster.
"""

import argparse
import base64
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmem.envelope import Envelope, citations, parse_envelope
from pmem.errors import UserError
from pmem.redaction import redact
from pmem.settings import parse_settings

MAX_GROWTH = 1.6
MIN_SECONDS = 1e-4
"""Below it a clock tick is more than the work."""
LONG_S = 0.1
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "time_against_length.png"
RANDOM = random.Random(7).randbytes(1 << 20)

Make = Callable[[int], str]


def repeated(unit: str) -> Make:
    """A text of about n characters made of one unit."""
    return lambda n: unit * (n // len(unit))


def parse(text: str) -> None:
    envelope = parse_envelope(text, finish_reason="stop")
    if isinstance(envelope, Envelope) and envelope.reminder:
        citations(envelope.reminder)


def settings(text: str) -> None:
    try:
        parse_settings(text)
    except UserError:
        pass


LIST = "<operations>[]</operations>"
SPEAK = f"{LIST}<context_for_action>"


@dataclass(frozen=True)
class Reader:
    """One of the three, with the texts that hurt it. `judged`: the lengths whose times are compared."""

    read: Callable[[str], None]
    texts: dict[str, Make]
    lengths: tuple[int, ...] = tuple(1 << power for power in (14, 16, 18, 20))
    judged: tuple[int, int] = (1 << 16, 1 << 20)


READERS = {
    "parser": Reader(
        parse,
        {
            "<": repeated("<"),
            "[": lambda n: "<operations>" + "[" * n,
            "<think>": repeated("<think>"),
            "opened lists": repeated("<operations>["),
            "opened strings": repeated('<operations>["'),
            "opened attributes": repeated('<operations a="'),
            "nested objects": lambda n: "<operations>" + '[{"a":' * (n // 6),
            "complete lists": repeated(LIST),
            "opened reminders": repeated(SPEAK),
            "lists in a reminder": lambda n: f"{SPEAK}{LIST * (n // len(LIST))}</context_for_action>",
            "tags in a reminder": lambda n: f"{SPEAK}{'</a' * (n // 3)}</context_for_action>",
            "thoughts in lists": repeated("<operations>[]<think><think></think></operations>"),
            "thoughts before arrays": repeated("<operations><think></think>["),
            "one long content": lambda n: (
                '<operations>[{"op":"update_status","content":"' + "ab " * (n // 3) + '"}]</operations>'
            ),
        },
    ),
    "redaction": Reader(
        lambda text: redact(text) and None,
        {
            "one long word": repeated("a"),
            "one base64 run": lambda n: base64.b64encode(RANDOM).decode()[:n],
            "base64 in lines": lambda n: base64.encodebytes(RANDOM).decode()[:n],
            "base64 of secrets": lambda n: base64.b64encode(b"password: hunter2 " * (n // 18)).decode()[:n],
            "keys without end": repeated("-----BEGIN RSA PRIVATE KEY-----\n"),
            "keys with text, no end": repeated("-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n"),
            "ends without keys": repeated("-----END PRIVATE KEY-----"),
            "password: ": repeated("password: "),
            'password="': repeated('password="'),
            "token=": repeated("token="),
            "authorization:": repeated("authorization:"),
            "http://a:b": repeated("http://a:b"),
            "eyJ": repeated("eyJ"),
            "sk-": repeated("sk-"),
        },
    ),
    "settings": Reader(
        settings,
        {
            "[": repeated("["),
            "{a: ": repeated("{a: "),
            "list": repeated("- a\n"),
            "one key again": repeated("enabled: true\n"),
            "one long word": repeated("a"),
            "anchors": repeated("- &a b\n"),
            "questions": repeated("? "),
            "quoted": lambda n: "telemetry: '" + "x " * (n // 2) + "'",
        },
        tuple(1 << power for power in (10, 12, 14, 16, 18, 20)),
        judged=(1 << 12, 1 << 16),
    ),
}


def seconds(read: Callable[[str], None], text: str) -> float:
    """Best of three, the least disturbed; a long one is taken once."""
    times: list[float] = []
    while len(times) < 3 and not (times and times[0] > LONG_S):
        start = time.process_time()
        read(text)
        times.append(time.process_time() - start)
    return min(times)


def measured(reader: Reader) -> dict[str, list[float]]:
    return {name: [seconds(reader.read, make(length)) for length in reader.lengths] for name, make in reader.texts.items()}


def plot(curves: dict[str, dict[str, list[float]]], picture: Path) -> None:
    """Time against length, both logarithmic; the dashed line is linear."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(curves), figsize=(5.2 * len(curves), 6))
    for axes, (title, lines) in zip(panels, curves.items(), strict=True):
        lengths = [length / 1024 for length in READERS[title].lengths]
        for number, (name, times) in enumerate(lines.items()):
            style = "-" if number < 10 else ":"
            axes.loglog(lengths, [1e3 * value for value in times], style, marker="o", ms=3, label=name)
        low = min(times[0] for times in lines.values()) * 500
        axes.loglog([lengths[0], lengths[-1]], [low, low * lengths[-1] / lengths[0]], "k--", linewidth=1, label="linear")
        axes.set(xlabel="length (KiB)", ylabel="processor time (ms)", title=title)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=2)
        axes.grid(alpha=0.3)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=100, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def report(title: str, lines: dict[str, list[float]]) -> bool:
    """Print one table; whether every line is a line."""
    lengths = READERS[title].lengths
    first, last = map(lengths.index, READERS[title].judged)
    print(f"\n{title:<24}" + "".join(f"{length // 1024:>7} KiB" for length in lengths) + "   growth (linear: 16)")
    held = True
    for name, times in lines.items():
        growth = times[last] / max(times[first], MIN_SECONDS)
        held &= growth <= 16 * MAX_GROWTH
        print(f"{name:<24}" + "".join(f"{1e3 * value:>8.1f} ms" for value in times) + f"   {growth:>6.1f}")
    return held


def main() -> int:
    """Print the figures; 1 when one is over budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    curves = {title: measured(reader) for title, reader in READERS.items()}
    held = [report(title, lines) for title, lines in curves.items()]
    if not options.no_plot and importlib.util.find_spec("matplotlib"):
        plot(curves, PICTURE)
        print(f"\nplot: {PICTURE.relative_to(PICTURE.parents[2])}")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
