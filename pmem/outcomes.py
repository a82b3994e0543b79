"""How a memory step may end: the closed list that telemetry rows, decision files and reports count (docs/design/runtime.md section 4).

Silence is a decision and failure is not silence, so a timeout, a full route, a malformed answer, a gate and a quiet model are
five different outcomes, never folded into one another.
"""

from typing import Literal, get_args

Decision = Literal["silent", "injected", "gated", "malformed", "timeout", "dropped", "cancelled", "expired", "error"]
Reason = Literal[
    "model_silent", "duplicate_reminder", "suppressed", "reminder_cut_off", "cut_before_decision", "bank_empty", "nothing_noted", "no_client",
    "intervened",
    "invalid_reminder", "over_budget", "below_threshold", "uncited", "resolved_failure",
    "unparseable", "truncated", "all_operations_invalid", "low_label_mass",
    "deadline", "timed_out",
    "step_in_flight", "endpoint_busy",
    "scope_changed", "turn_aborted",
    "compacted", "stale",
    "client_error", "overloaded",
]  # fmt: skip

REASONS: dict[Decision, tuple[Reason, ...]] = {
    "silent": (
        "model_silent",
        "duplicate_reminder",
        "suppressed",
        "reminder_cut_off",
        "cut_before_decision",
        "bank_empty",
        "nothing_noted",
        "no_client",
    ),
    "injected": ("intervened",),
    "gated": ("invalid_reminder", "over_budget", "below_threshold", "uncited", "resolved_failure"),
    "malformed": ("unparseable", "truncated", "all_operations_invalid", "low_label_mass"),
    "timeout": ("deadline", "timed_out"),
    "dropped": ("step_in_flight", "endpoint_busy"),
    "cancelled": ("scope_changed", "turn_aborted"),
    "expired": ("compacted", "stale"),
    "error": ("client_error", "overloaded"),
}
"""Every decision and the reasons that may stand beside it. Each reason belongs to exactly one decision."""

DECISION_OF: dict[Reason, Decision] = {reason: decision for decision, reasons in REASONS.items() for reason in reasons}
"""The decision a reason belongs to."""

KEEPS_TRIGGERS: frozenset[Reason] = frozenset({"step_in_flight", "endpoint_busy", "overloaded"})
"""Reasons that leave the triggers of the boundary pending, so that the next free boundary still runs for them."""

assert set(DECISION_OF) == set(get_args(Reason)) and set(REASONS) == set(get_args(Decision))
