"""Work spread over processes, results in order of the items, so that one core and two give the same file."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Item], Result], items: Sequence[Item], num_workers: int = 0) -> Iterator[Result]:
    """Yield `function(item)` for every item, in order. `num_workers` 0 = every core this process may use; 1 = in this process."""
    count = min(num_workers or len(os.sched_getaffinity(0)), max(1, len(items)))
    if count == 1:
        yield from map(function, items)
        return
    with multiprocessing.get_context("forkserver").Pool(count) as pool:
        yield from pool.imap(function, items, chunksize=1)
