"""Triggers accumulate, coalesce at a boundary, and stay pending when a step was refused."""

from hypothesis import given
from hypothesis import strategies as st

from pmem.triggers import MAX_TRIGGERS, Triggers


def test_interval_counts_completed_tools_since_the_last_step() -> None:
    triggers = Triggers(3)
    for _ in range(2):
        triggers.on_step(is_error=False)
    assert triggers.due() == ()
    triggers.on_step(is_error=False)
    assert triggers.due() == ("interval",)
    assert triggers.take() == ("interval",)
    assert triggers.due() == ()


def test_two_errors_in_a_row_arm_and_a_success_resets() -> None:
    triggers = Triggers(100)
    triggers.on_step(is_error=True)
    triggers.on_step(is_error=False)
    triggers.on_step(is_error=True)
    assert triggers.due() == ()
    triggers.on_step(is_error=True)
    assert triggers.due() == ("tool_error_streak",)


def test_probes_and_operator_repeats_do_not_count_for_the_streak_either_way() -> None:
    triggers = Triggers(100)
    triggers.on_step(is_error=True)
    triggers.on_step(is_error=False, counts_for_streak=False)
    triggers.on_step(is_error=True)
    assert triggers.due() == ("tool_error_streak",)


def test_rules_triggers_never_start_a_step_alone() -> None:
    triggers = Triggers(100)
    triggers.add("repeated_failure")
    triggers.add("post_compaction")
    assert triggers.due() == ()
    triggers.add("loop_signal")
    assert set(triggers.due()) == {"repeated_failure", "loop_signal", "post_compaction"}


def test_coalesces_to_three_and_keeps_the_one_that_suppresses() -> None:
    triggers = Triggers(1)
    for trigger in ("manual", "loop_signal", "repeated_failure"):
        triggers.add(trigger)  # type: ignore[arg-type]
    triggers.on_step(is_error=True)
    triggers.on_step(is_error=True)
    assert len(triggers.due()) == MAX_TRIGGERS and triggers.due()[0] == "repeated_failure"


def test_a_boundary_without_news_is_none() -> None:
    triggers = Triggers(10)
    assert not triggers.close_boundary()
    triggers.on_step(is_error=False)
    assert triggers.close_boundary() and not triggers.close_boundary()


def test_given_back_triggers_are_due_again() -> None:
    triggers = Triggers(5)
    for _ in range(5):
        triggers.on_step(is_error=True)
    taken = triggers.take()
    assert set(taken) == {"interval", "tool_error_streak"}
    triggers.give_back(taken)
    assert set(triggers.due()) == set(taken)
    triggers.take()
    triggers.give_back(["repeated_failure"])
    assert triggers.due() == ()


@given(st.lists(st.sampled_from(["ok", "error", "loop", "take", "boundary"]), max_size=60), st.integers(1, 6))
def test_due_is_always_one_to_three_known_triggers_or_none(events: list[str], cadence: int) -> None:
    triggers = Triggers(cadence)
    for event in events:
        if event in ("ok", "error"):
            triggers.on_step(is_error=event == "error")
        elif event == "loop":
            triggers.add("loop_signal")
        elif event == "take":
            triggers.take()
        else:
            triggers.close_boundary()
        due = triggers.due()
        assert len(due) <= MAX_TRIGGERS and len(set(due)) == len(due)
        assert ("interval" in due) <= (triggers.tools_since_step >= cadence)
