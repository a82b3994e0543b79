"""Progress with time left on standard error: a bar on a terminal, a line every ten seconds anywhere else."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")
LINE_EVERY_S = 10.0


def track(items: Iterable[Item], what: str, *, total: int | None = None, unit: str = "") -> Iterator[Item]:
    """Yield `items` and show how many are done of `total` (their length when they have one)."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if sys.stderr.isatty():
        yield from _bar(items, what, total)
    else:
        yield from _lines(items, what, total, unit)


def _bar(items: Iterable[Item], what: str, total: int | None) -> Iterator[Item]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=what)


def _lines(items: Iterable[Item], what: str, total: int | None, unit: str) -> Iterator[Item]:
    start = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - last >= LINE_EVERY_S:
            last = now
            left = f", {(now - start) / done * (total - done):.0f} s left" if total and done else ""
            print(f"{what}: {done}{f'/{total}' if total else ''} {unit}{left}".rstrip(), file=sys.stderr, flush=True)
        yield item
