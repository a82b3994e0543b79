"""Work spread over processes here, or over a Ray cluster; results in order of the items, so that every spread gives the same file.

ordered_map(function, items)                                  # all cores of this machine
ordered_map(function, items, ray_address="ray://head:10001")  # a cluster; "auto" for the one this machine is part of
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pmem.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
ROOT = Path(__file__).parents[1]
LEFT_OUT = [".git", ".venv", ".cache", "runs", "build", "tests", "docs"]
"""What workers of a cluster do not need of the checkout."""
LOCAL = "local"
"""`ray_address` of a cluster of this machine alone, started and stopped here."""


def ordered_map(
    function: Callable[[Item], Result], items: Sequence[Item], num_workers: int = 0, ray_address: str = ""
) -> Iterator[Result]:
    """Yield `function(item)` for every item, in order. `num_workers` 0 = every core this process may use; 1 = in this process.

    With `ray_address` the items go to that cluster: function, items and results must pickle, a unit whose worker dies is run again.
    """
    if ray_address:
        yield from _over_ray(function, items, ray_address)
        return
    count = min(num_workers or len(os.sched_getaffinity(0)), max(1, len(items)))
    if count == 1:
        yield from map(function, items)
        return
    with multiprocessing.get_context("forkserver").Pool(count) as pool:
        yield from pool.imap(function, items, chunksize=1)


def _over_ray(function: Callable[[Item], Result], items: Sequence[Item], address: str) -> Iterator[Result]:
    """Ray's own scheduler; a few items a core are under way at once, so that memory does not grow with their number."""
    ray = _connected(address)
    try:
        run = ray.remote(_call)
        shared = ray.put(function)
        under_way: deque[Any] = deque()
        most = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        for item in items:
            if len(under_way) >= most:
                yield ray.get(under_way.popleft())
            under_way.append(run.remote(shared, item))
        while under_way:
            yield ray.get(under_way.popleft())
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(
            "ray_address is set but Ray is not installed; run `pip install ray`, or leave ray_address empty"
        ) from None
    place = {"working_dir": str(ROOT), "excludes": LEFT_OUT}
    try:
        ray.init(address=address, runtime_env=place, log_to_driver=False, include_dashboard=False if address == LOCAL else None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"ray_address {address!r}: no cluster could be reached ({reason}); use local, auto or ray://host:port"
        ) from None
    return ray


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)
