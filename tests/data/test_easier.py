"""Easier views: the facts that bear on the plan stay, others fill up to the size, nothing else of the snapshot is shown."""

import pytest

from data.easier import easier
from pmem.prompt import golden_snapshot, render_messages
from pmem.snapshot import BankState, Entry

FACTS = tuple(
    Entry(id=f"tm-k-{number}", kind="knowledge", content=f"Fact {number}.", created=0, touched=0) for number in range(6)
)
SNAPSHOT = golden_snapshot().model_copy(update={"bank": BankState(entries=FACTS, next_number=9)})


@pytest.mark.parametrize(("size", "shown"), [(1, 2), (2, 2), (3, 3), (9, 6)])
def test_the_bank_is_cut_around_what_bears_on_the_plan(size: int, shown: int) -> None:
    view = easier(SNAPSHOT, ("tm-k-2", "tm-k-4"), size)
    assert view is not None
    names = [entry.id for entry in view.bank.entries]
    assert len(names) == shown and {"tm-k-2", "tm-k-4"} <= set(names) and names == sorted(names)
    assert view == easier(SNAPSHOT, ("tm-k-2", "tm-k-4"), size), "the same entries every time"
    assert view.window == SNAPSHOT.window[-1:] and view.task_messages == ()
    assert render_messages(view)[1]["content"].startswith("# Task\n(none)\n# Bank\n- [tm-k-")


def test_without_an_entry_that_bears_there_is_no_view() -> None:
    assert easier(SNAPSHOT, ("tm-k-77",), 3) is None and easier(SNAPSHOT, (), 3) is None
