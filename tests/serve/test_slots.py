"""Slots: never above the limit, one slot a step, a fair share a client, nothing leaks."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.slots import Hold, SlotLimits, Slots


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def held(answer: Hold | str) -> Hold:
    assert isinstance(answer, Hold), answer
    return answer


def test_a_step_takes_one_slot_for_its_three_requests(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=1), clock)
    for _ in range(3):
        slots.release(held(slots.take("a", "step-1")))
        clock.now += 0.01
    assert slots.in_flight == 0, "the third request is the last"
    slots.release(held(slots.take("a", "step-2")))
    assert slots.in_flight == 1, "the slot stays with its step"
    assert slots.take("b", "other") == "full"
    assert slots.take("a", "step-3") == "full"
    assert held(slots.take("a", "step-2")).num_requests == 2


def test_an_idle_step_loses_its_slot(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=1, hold_idle_s=0.25, hold_after_decision_s=0.05), clock)
    slots.release(held(slots.take("a", "s")))
    clock.now += 0.24
    assert slots.in_flight == 1
    slots.release(held(slots.take("a", "s")), after_decision=True)
    clock.now += 0.06
    assert slots.in_flight == 0


def test_done_and_last_free_at_once(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=2), clock)
    slots.release(held(slots.take("a", "s")))
    assert slots.done("a", "s") and slots.in_flight == 0
    assert not slots.done("a", "s")
    slots.release(held(slots.take("a", "t")), last=True)
    assert slots.in_flight == 0
    running = held(slots.take("a", "u"))
    assert not slots.done("a", "u"), "a running request keeps its slot"
    slots.release(running, last=True)


def test_two_requests_of_a_step_do_not_run_side_by_side(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=4), clock)
    slots.take("a", "s")
    assert slots.take("a", "s") == "step_busy"
    assert isinstance(slots.take("b", "s"), Hold), "the same id of another client is another step"


def test_a_client_alone_may_use_all_and_shares_when_others_come(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=4, client_share=0.5), clock)
    mine = [held(slots.take("a")) for _ in range(4)]
    assert slots.take("b") == "full"
    slots.release(mine.pop())
    assert slots.take("a") == "client_share", "b was here: a holds three of its two"
    assert isinstance(slots.take("b"), Hold)
    clock.now += 11
    for hold in mine:
        slots.release(hold)
    assert all(isinstance(slots.take("a"), Hold) for _ in range(3)), "b has not been seen for a while"


def test_a_heavy_request_counts_what_it_weighs(clock: Clock) -> None:
    slots = Slots(SlotLimits(limit=4), clock)
    hold = held(slots.take("a", weight=3))
    assert slots.in_flight == 3 and slots.take("a", weight=2) == "full"
    slots.release(hold)
    assert slots.in_flight == 0


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"client_share": 0.0}, {"client_share": 1.5}])
def test_wrong_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="limit"):
        SlotLimits(**wrong)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_whatever_happens_the_limit_holds_and_nothing_leaks(limit: int, share: float, seed: int) -> None:
    draw, clock = random.Random(seed), Clock()
    slots = Slots(SlotLimits(limit=limit, client_share=share), clock)
    running: list[Hold] = []
    for _ in range(200):
        clock.now += draw.choice([0.0, 0.01, 0.1, 1.0])
        if running and draw.random() < 0.5:
            hold = running.pop(draw.randrange(len(running)))
            slots.release(hold, last=draw.random() < 0.3, after_decision=draw.random() < 0.5)
        else:
            step = draw.choice([None, "s1", "s2"])
            answer = slots.take(draw.choice("abc"), step, 1 if step else draw.randint(1, 2))
            running += [answer] if isinstance(answer, Hold) else []
        assert sum(hold.weight for hold in running) <= slots.in_flight <= limit
    for hold in running:
        slots.release(hold)
    clock.now += 10
    assert slots.in_flight == 0 and slots.peak <= limit
