"""The task bank: ids, limits, eviction, equal content, atomic batches, threads, rendering."""

import math
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmem.bank import MAX_CONTENT_CHARS, STATUS_ID, Bank, estimate_tokens, render_entries
from pmem.envelope import Operation
from pmem.snapshot import BankState


def ticking() -> Iterator[float]:
    now = 0.0
    while True:
        now += 1
        yield now


def make_bank(**limits: int) -> Bank:
    ticks = ticking()
    return Bank(clock=lambda: next(ticks), **limits)


def know(content: str, id: str | None = None) -> Operation:
    return Operation("save_knowledge", content, id)


def proc(content: str, id: str | None = None) -> Operation:
    return Operation("save_procedural", content, id)


def ids(bank: Bank) -> list[str]:
    return [entry.id for entry in bank.state().entries]


def test_ids_come_from_one_decimal_counter_and_are_never_reused() -> None:
    bank = make_bank()
    bank.apply([know(f"fact {number}") for number in range(6)] + [proc("tried"), Operation("update_status", "at work")])
    assert ids(bank) == ["tm-k-1", "tm-k-2", "tm-k-3", "tm-k-4", "tm-k-5", "tm-k-6", "tm-p-7"]
    bank.apply([Operation("delete", None, "tm-p-7"), *(know(f"more {number}") for number in range(5))])
    assert ids(bank)[-1] == "tm-k-12" and "tm-p-7" not in ids(bank)


def test_the_delta_counts_each_class() -> None:
    bank = make_bank()
    delta = bank.apply([know("a"), proc("b"), Operation("update_status", "s")])
    assert delta == {
        "status": {"added": 1, "updated": 0, "deleted": 0},
        "knowledge": {"added": 1, "updated": 0, "deleted": 0},
        "procedural": {"added": 1, "updated": 0, "deleted": 0},
    }
    delta = bank.apply([know("a2", "tm-k-1"), Operation("delete", None, "tm-p-2"), Operation("update_status", "t")])
    assert delta["knowledge"]["updated"] == delta["procedural"]["deleted"] == delta["status"]["updated"] == 1
    assert bank.apply([Operation("delete", None, STATUS_ID)])["status"]["deleted"] == 1
    assert bank.state().status is None


def test_content_is_collapsed_and_bounded() -> None:
    bank = make_bank()
    bank.apply([know(" a \n\t b\u00a0c "), know("x" * 2000), know("é" * MAX_CONTENT_CHARS)])
    assert [len(entry.content) for entry in bank.state().entries] == [5, MAX_CONTENT_CHARS, MAX_CONTENT_CHARS]


@pytest.mark.parametrize("bad", [know("  \n"), Operation("save_lesson", "x"), Operation("update_status", "")])
def test_a_fault_in_a_batch_leaves_the_bank_as_it_was(bad: Operation) -> None:
    bank = make_bank()
    bank.apply([know("kept")])
    before = bank.state()
    with pytest.raises(ValueError, match=r"blank|unknown"):
        bank.apply([know("not kept"), Operation("delete", None, "tm-k-1"), bad])
    assert bank.state() == before


def test_equal_content_updates_the_entry_that_has_it() -> None:
    bank = make_bank()
    bank.apply([know("Output must be JSON.")])
    delta = bank.apply([know("output  must be json."), proc("Output must be JSON.")])
    assert ids(bank) == ["tm-k-1", "tm-p-2"]
    assert delta["knowledge"] == {"added": 0, "updated": 1, "deleted": 0}


def test_rewriting_an_entry_into_its_twin_leaves_one() -> None:
    bank = make_bank()
    bank.apply([know("one"), know("two")])
    delta = bank.apply([know("ONE", "tm-k-2")])
    assert [(entry.id, entry.content) for entry in bank.state().entries] == [("tm-k-2", "ONE")]
    assert delta["knowledge"] == {"added": 0, "updated": 1, "deleted": 1}


def test_an_update_keeps_id_and_creation_and_touches() -> None:
    bank = make_bank()
    bank.apply([know("old")])
    bank.apply([know("new", "tm-k-1")])
    entry = bank.get("tm-k-1")
    assert entry is not None and (entry.content, entry.created, entry.touched) == ("new", 1.0, 2.0)


@pytest.mark.parametrize("wrong", ["tm-k-99", "tm-p-2", "output-format", "tm-k-1 "])
def test_an_id_that_names_no_entry_of_the_class_makes_a_new_one(wrong: str) -> None:
    bank = make_bank()
    bank.apply([know("a"), proc("b")])
    bank.apply([know("c", wrong)])
    assert ids(bank) == ["tm-k-1", "tm-p-2", "tm-k-3"]


def test_eviction_takes_the_least_recently_touched_then_oldest_then_smallest_id() -> None:
    bank = make_bank(max_knowledge=2)
    bank.apply([know("a")])
    bank.apply([know("b")])
    bank.record_injection(["tm-k-1"])
    bank.apply([know("c")])
    assert ids(bank) == ["tm-k-1", "tm-k-3"]
    still = Bank(clock=lambda: 5.0, max_knowledge=9, max_procedural=1)
    still.apply([know(f"n{number}") for number in range(10)])
    assert ids(still) == [f"tm-k-{number}" for number in range(2, 11)]


def test_an_update_of_an_entry_evicted_earlier_in_the_batch_becomes_a_new_entry() -> None:
    """Reference row 36: there it raised after half the batch had been written."""
    bank = make_bank(max_knowledge=1)
    bank.apply([know("a")])
    delta = bank.apply([know("b"), know("a again", "tm-k-1")])
    assert [(entry.id, entry.content) for entry in bank.state().entries] == [("tm-k-3", "a again")]
    assert delta["knowledge"] == {"added": 1, "updated": 0, "deleted": 1}


def test_classes_are_capped_apart() -> None:
    bank = make_bank()
    bank.apply([know(f"k{number}") for number in range(40)])
    bank.apply([proc(f"p{number}") for number in range(40)])
    kinds = [entry.kind for entry in bank.state().entries]
    assert (kinds.count("knowledge"), kinds.count("procedural")) == (20, 30)


def test_injections_are_counted_once_an_id_and_never_as_a_write() -> None:
    bank = make_bank()
    bank.apply([know("a"), Operation("update_status", "s")])
    bank.record_injection(["tm-k-1", "tm-k-1", "tm-k-77", STATUS_ID])
    entry = bank.get("tm-k-1")
    assert entry is not None and entry.injections == 1 and entry.touched > entry.created


def test_a_clock_that_steps_back_does_not_reorder_the_bank() -> None:
    readings = iter([10.0, 3.0, 11.0])
    bank = Bank(clock=lambda: next(readings), max_knowledge=2)
    for content in ("a", "b", "c"):
        bank.apply([know(content)])
    assert ids(bank) == ["tm-k-2", "tm-k-3"]
    assert [entry.touched for entry in bank.state().entries] == [10.0, 11.0]


def test_a_bank_goes_on_from_its_state() -> None:
    bank = make_bank()
    bank.apply([know("a"), proc("b"), Operation("update_status", "s")])
    bank.apply([Operation("delete", None, "tm-p-2")])
    again = Bank.from_state(bank.state(), clock=lambda: 0.0)
    assert again.state() == bank.state()
    again.apply([know("c")])
    assert ids(again) == ["tm-k-1", "tm-k-3"]


def test_the_counter_never_falls_behind_the_ids_of_a_state() -> None:
    bank = make_bank()
    bank.apply([know("a"), know("b")])
    behind = bank.state().model_copy(update={"next_number": 1})
    assert Bank.from_state(behind, clock=lambda: 0.0).upsert_procedural("c") == "tm-p-3"


def test_upsert_procedural_keeps_one_entry_an_id() -> None:
    bank = make_bank()
    first = bank.upsert_procedural("make failed")
    assert bank.upsert_procedural("make failed 2 times", first) == first
    assert bank.upsert_procedural("other") != first


def test_rendering_shows_newest_touched_first_and_never_status() -> None:
    bank = make_bank()
    bank.apply([Operation("update_status", "secret"), know("a"), proc("b")])
    bank.record_injection(["tm-k-1"])
    assert bank.render(100) == "- [tm-k-1] knowledge: a\n- [tm-p-2] procedural: b"


def test_rendering_skips_what_does_not_fit_and_cuts_nothing() -> None:
    bank = make_bank()
    bank.apply([know("small")])
    bank.apply([know("big " * 100)])
    assert bank.render(30) == "- [tm-k-1] knowledge: small"
    assert bank.render(1) == ""


def test_eight_threads_lose_no_write() -> None:
    bank = Bank(clock=lambda: 1.0, max_knowledge=10_000, max_procedural=10_000)

    def write(worker: int) -> None:
        for number in range(100):
            bank.apply([know(f"{worker}-{number}")])
            bank.upsert_procedural(f"{worker}-{number}")
            bank.render(50)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids(bank)) == len(set(ids(bank))) == 1600


def test_caps_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bank(clock=lambda: 0.0, max_knowledge=0)


OPERATIONS = st.one_of(
    st.builds(know, st.text(min_size=1, max_size=30).filter(str.strip), st.none() | st.sampled_from(["tm-k-1", "tm-p-2", "x"])),
    st.builds(proc, st.text(min_size=1, max_size=30).filter(str.strip), st.none() | st.sampled_from(["tm-p-1", "tm-k-2"])),
    st.builds(lambda text: Operation("update_status", text), st.text(min_size=1, max_size=9).filter(str.strip)),
    st.builds(lambda number: Operation("delete", None, f"tm-k-{number}"), st.integers(1, 9)),
)


@settings(max_examples=150)
@given(st.lists(st.lists(OPERATIONS, max_size=8), max_size=8), st.integers(1, 120))
def test_whatever_is_applied_the_bank_keeps_its_promises(batches: list[list[Operation]], budget: int) -> None:
    bank = make_bank(max_knowledge=3, max_procedural=4)
    ever: dict[str, str] = {}
    for batch in batches:
        before = bank.state()
        delta = bank.apply(batch)
        state = bank.state()
        for kind in ("knowledge", "procedural"):
            old = {entry.id for entry in before.entries if entry.kind == kind}
            new = {entry.id for entry in state.entries if entry.kind == kind}
            assert (delta[kind]["added"], delta[kind]["deleted"]) == (len(new - old), len(old - new))
            assert len(new) <= {"knowledge": 3, "procedural": 4}[kind]
            contents = [entry.content.casefold() for entry in state.entries if entry.kind == kind]
            assert len(contents) == len(set(contents))
            assert not any(entry_id in ever for entry_id in new - old)
        ever |= {entry.id: entry.kind for entry in state.entries}
        assert all(entry.content == " ".join(entry.content.split()) for entry in state.entries)
        assert BankState.model_validate_json(state.model_dump_json()) == state
    text = render_entries(bank.state(), budget)
    assert estimate_tokens(text) <= budget and math.ceil(len(text) / 4) <= budget
