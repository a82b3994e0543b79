"""The list of outcomes is closed and each reason stands under one decision."""

from typing import get_args

from pmem.outcomes import DECISION_OF, KEEPS_TRIGGERS, REASONS, Decision, Reason


def test_every_reason_belongs_to_exactly_one_decision() -> None:
    listed = [reason for reasons in REASONS.values() for reason in reasons]
    assert len(listed) == len(set(listed)) and set(listed) == set(get_args(Reason))
    assert set(REASONS) == set(get_args(Decision))
    assert all(reason in REASONS[DECISION_OF[reason]] for reason in listed)


def test_only_refusals_for_capacity_leave_triggers_pending() -> None:
    assert {DECISION_OF[reason] for reason in KEEPS_TRIGGERS} == {"dropped", "error"}
    assert "client_error" not in KEEPS_TRIGGERS


def test_a_failure_is_never_silence() -> None:
    assert not set(REASONS["silent"]) & {"timed_out", "deadline", "client_error", "overloaded", "unparseable", "low_label_mass"}
