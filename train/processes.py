"""Several processes of one run (`accelerate launch`): who writes, who waits."""

from collections.abc import Iterator
from contextlib import contextmanager


def num_processes() -> int:
    """How many processes train together."""
    from accelerate import PartialState

    return int(PartialState().num_processes)


def is_main() -> bool:
    """True in the one process that writes files and speaks."""
    from accelerate import PartialState

    return bool(PartialState().is_main_process)


@contextmanager
def main_first() -> Iterator[None]:
    """The main process runs the block alone, then the others do."""
    from accelerate import PartialState

    with PartialState().main_process_first():
        yield
