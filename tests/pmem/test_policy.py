"""The two-phase step: phases, writes that stay, outcomes that are told apart, batches, samples."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.backend import Completion, DecisionRead, RouteError
from pmem.envelope import SPEAK
from pmem.errors import UserError
from pmem.gates import GateProfile
from pmem.outcomes import REASONS
from pmem.policy import ModelPolicy, RulesPolicy, StepResult
from pmem.prompt import render_messages
from pmem.scripted import ScriptedBackend
from pmem.snapshot import BankState, Entry, Snapshot, Step, Trigger
from pmem.threshold import Calibrator, Threshold

EMPTY = "<operations>[]</operations>"
SAVE = '<operations>[{"op":"save_knowledge","content":"Write UTF-8."}]</operations>'
GOOD = "Output must be JSON [tm-k-1]</context_for_action>"
TEXT = "Output must be JSON [tm-k-1]"


def entry(id: str, content: str) -> Entry:
    kind = "knowledge" if id.startswith("tm-k") else "procedural"
    return Entry.model_validate({"id": id, "kind": kind, "content": content, "created": 1, "touched": 1})


BANK = BankState(entries=(entry("tm-k-1", "Output must be JSON."),), next_number=2)


def snapshot(*triggers: Trigger, bank: BankState = BANK, name: str | None = None) -> Snapshot:
    return Snapshot(snapshot_id=name, task_messages=("Write JSON.",), window=(), bank=bank, triggers=triggers or ("interval",))


def scored(lists: list, probs: list, reminders: list, **options: object) -> tuple[ModelPolicy, ScriptedBackend]:  # type: ignore[type-arg]
    backend = ScriptedBackend(lists=lists, probs=probs, reminders=reminders)
    return ModelPolicy(backend, **options), backend  # type: ignore[arg-type]


def outcome(result: StepResult) -> tuple[str, str]:
    return result.decision, result.reason


def test_a_speaking_step_runs_three_phases_on_one_step_id() -> None:
    policy, backend = scored([SAVE], [0.9], [GOOD])
    result = policy.step(snapshot())
    assert outcome(result) == ("injected", "intervened") and result.speaks
    assert (result.reminder, result.cited, result.list_text) == (TEXT, ("tm-k-1",), SAVE)
    assert [op.op for op in result.operations] == ["save_knowledge"] and result.delta["knowledge"]["added"] == 1
    assert [entry.id for entry in result.bank_after.entries] == ["tm-k-1", "tm-k-2"]
    assert [request.prefix for request in backend.requests] == ["", SAVE + "\n", f"{SAVE}\n{SPEAK}"]
    assert len({request.step_id for request in backend.requests}) == 1 and backend.requests[0].step_id
    assert all(request.messages == render_messages(snapshot()) for request in backend.requests)
    assert all(request.temperature == 0 for request in backend.requests)
    assert (result.prob_raw, result.label_mass, result.prob_calibrated, result.threshold) == (0.9, 1.0, None, None)
    assert result.tokens_in > 0 < result.tokens_out and (result.route, result.model) == ("scripted", "scripted")


def test_a_silent_step_asks_for_no_reminder() -> None:
    policy, backend = scored([EMPTY], [0.2], [])
    result = policy.step(snapshot())
    assert outcome(result) == ("silent", "model_silent") and result.reminder is None
    assert len(backend.requests) == 2


def test_the_threshold_decides_on_the_calibrated_probability() -> None:
    threshold = Threshold.plain(0.6).model_copy(update={"calibrator": Calibrator(kind="temperature", params=(2.0,))})
    policy, _ = scored([EMPTY] * 3, [0.9, 0.6, 0.2], [GOOD], threshold=threshold)
    spoken, refused, quiet = (policy.step(snapshot()) for _ in range(3))
    assert outcome(spoken) == ("injected", "intervened") and spoken.prob_calibrated == pytest.approx(0.75)
    assert outcome(refused) == ("gated", "below_threshold") and refused.reminder is None and refused.threshold == 0.6
    assert outcome(quiet) == ("silent", "model_silent")


def test_a_low_floor_writes_where_the_model_would_be_quiet() -> None:
    policy, _ = scored([EMPTY], [0.1], [GOOD], threshold=Threshold.plain(0.05))
    assert outcome(policy.step(snapshot())) == ("injected", "intervened")


@pytest.mark.parametrize(
    ("list_text", "finish", "reason"),
    [
        ("", "stop", "unparseable"),
        ("<operations>", "stop", "unparseable"),
        ('<operations>[{"op":"save_knowledge","content":"ab', "length", "truncated"),
        ('<operations>[{"op":"read","path":"x"}]</operations>', "stop", "all_operations_invalid"),
        ("<think>hm <operations>[]</operations>", "length", "truncated"),
    ],
)
def test_a_malformed_list_ends_the_step_with_nothing_written(list_text: str, finish: str, reason: str) -> None:
    policy, backend = scored([Completion(text=list_text, finish_reason=finish, tokens_in=7, tokens_out=3)], [], [])
    result = policy.step(snapshot())
    assert outcome(result) == ("malformed", reason) and result.bank_after == BANK and not result.operations
    assert (result.tokens_in, result.tokens_out, len(backend.requests)) == (7, 3, 1)


def test_little_mass_on_the_labels_is_malformed_and_the_writes_stay() -> None:
    policy, backend = scored([SAVE], [DecisionRead(prob_speak=0.99, label_mass=0.94, tokens_in=5)], [])
    result = policy.step(snapshot())
    assert outcome(result) == ("malformed", "low_label_mass") and result.reminder is None
    assert len(result.operations) == 1 and len(result.bank_after.entries) == 2
    assert (result.prob_raw, result.label_mass) == (0.99, 0.94) and len(backend.requests) == 2


def test_writes_stay_when_a_gate_refuses_the_reminder() -> None:
    policy, _ = scored([SAVE], [0.9], ["No citation here</context_for_action>"])
    result = policy.step(snapshot())
    assert outcome(result) == ("gated", "uncited") and result.reminder == "No citation here"
    assert len(result.bank_after.entries) == 2 and result.delta["knowledge"]["added"] == 1


def test_a_reminder_that_was_cut_off_is_silence() -> None:
    cut = Completion(text="Output must be JSON [tm-k-1] and", finish_reason="length", tokens_in=1, tokens_out=9)
    policy, _ = scored([EMPTY], [0.9], [cut])
    assert outcome(policy.step(snapshot())) == ("silent", "reminder_cut_off")


def test_an_interval_step_without_anything_to_cite_writes_no_reminder() -> None:
    policy, backend = scored([SAVE], [0.9], [])
    result = policy.step(snapshot(bank=BankState()))
    assert outcome(result) == ("gated", "uncited") and len(backend.requests) == 2 and len(result.bank_after.entries) == 1
    lifted, _ = scored([EMPTY], [0.9], ["Mind the format</context_for_action>"], profile=GateProfile(citation=False))
    assert outcome(lifted.step(snapshot(bank=BankState()))) == ("injected", "intervened")


def test_a_boundary_the_rules_took_keeps_its_writes_and_says_nothing_more() -> None:
    policy, backend = scored([SAVE], [0.9], [])
    result = policy.step(snapshot("interval", "repeated_failure"))
    assert outcome(result) == ("silent", "suppressed") and len(result.operations) == 1 and len(backend.requests) == 2


def test_secrets_go_before_bank_and_reminder() -> None:
    key = "ghp_" + "a1B2" * 9
    save = '<operations>[{"op":"save_knowledge","content":"token %s works"}]</operations>' % key  # noqa: UP031
    policy, _ = scored([save], [0.9], [f"Use {key} [tm-k-1]</context_for_action>"])
    result = policy.step(snapshot())
    assert (
        key not in result.bank_after.model_dump_json()
        and key not in (result.reminder or "")
        and "[tm-k-1]" in (result.reminder or "")
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), ("timeout", "timed_out")),
        (RouteError("refused"), ("error", "client_error")),
        (RouteError("full", overloaded=True), ("error", "overloaded")),
    ],
)
@pytest.mark.parametrize("phase", ["list", "decision", "reminder"])
def test_a_failing_route_is_its_own_outcome_and_writes_nothing(error: Exception, expected: tuple[str, str], phase: str) -> None:
    scripts: dict[str, tuple[list, list, list]] = {  # type: ignore[type-arg]
        "list": ([error], [], []),
        "decision": ([SAVE], [error], []),
        "reminder": ([SAVE], [0.9], [error]),
    }
    policy, _ = scored(*scripts[phase])
    result = policy.step(snapshot())
    assert outcome(result) == expected and result.bank_after == BANK and not result.operations and result.reminder is None
    assert (result.tokens_in > 0) == (phase != "list")


class SlowBackend(ScriptedBackend):
    """Takes its time and ignores the deadline, as a model in the process may."""

    def complete(self, requests, *, deadline=None):  # type: ignore[no-untyped-def]
        time.sleep(0.03)
        return super().complete(requests, deadline=deadline)


def test_an_answer_past_the_deadline_counts_for_nothing() -> None:
    policy = ModelPolicy(SlowBackend(lists=[SAVE], probs=[0.9], reminders=[GOOD]), timeout_ms=10)
    result = policy.step(snapshot())
    assert outcome(result) == ("timeout", "deadline") and not result.operations and result.latency_ms >= 30
    assert len(policy.backend.requests) == 1  # type: ignore[attr-defined]


def test_the_deadline_reaches_the_backend() -> None:
    seen: list[float | None] = []

    class Watching(ScriptedBackend):
        def decide(self, requests, *, deadline=None):  # type: ignore[no-untyped-def]
            seen.append(deadline)
            return super().decide(requests, deadline=deadline)

    before = time.monotonic()
    ModelPolicy(Watching(lists=[EMPTY], probs=[0.1]), timeout_ms=5_000).step(snapshot())
    assert seen[0] is not None and before + 4.9 <= seen[0] <= time.monotonic() + 5
    ModelPolicy(Watching(lists=[EMPTY], probs=[0.1]), timeout_ms=None).step(snapshot())
    assert seen[1] is None


def test_a_batch_gives_what_single_steps_give() -> None:
    lists = [EMPTY, SAVE, "rubbish", EMPTY]
    probs: list = [0.9, 0.1, DecisionRead(prob_speak=0.9, label_mass=0.2, tokens_in=3)]  # type: ignore[type-arg]
    together, backend = scored(lists, probs, [GOOD])
    results = together.step_many([snapshot() for _ in range(4)])
    assert [result.reason for result in results] == ["intervened", "model_silent", "unparseable", "low_label_mass"]
    assert len(backend.requests) == 4 + 3 + 1
    single, _ = scored(lists, probs, [GOOD])
    for result in results:
        alone = single.step(snapshot())
        assert (alone.reason, alone.bank_after, alone.reminder) == (result.reason, result.bank_after, result.reminder)
    assert together.step_many([]) == []


def test_completion_mode_takes_the_whole_answer_and_reads_no_probability() -> None:
    policy, backend = scored([f"{SAVE}\n{SPEAK}{GOOD}", f"{EMPTY}\n<no_intervention/>", "hm"], [], [], mode="completion")
    spoken, quiet, malformed = (policy.step(snapshot()) for _ in range(3))
    assert outcome(spoken) == ("injected", "intervened") and spoken.prob_raw is None and spoken.cited == ("tm-k-1",)
    assert outcome(quiet) == ("silent", "model_silent") and outcome(malformed) == ("malformed", "unparseable")
    assert [request.max_tokens for request in backend.requests] == [2000] * 3


def test_a_completion_cut_before_its_decision_is_not_chosen_silence() -> None:
    cut = Completion(text=SAVE, finish_reason="length", tokens_in=1, tokens_out=9)
    policy, _ = scored([cut], [], [], mode="completion")
    result = policy.step(snapshot())
    assert outcome(result) == ("silent", "cut_before_decision") and len(result.operations) == 1


def test_prose_around_the_list_never_becomes_the_prefix_of_the_decision() -> None:
    policy, backend = scored([f"Here is my step: {EMPTY}"], [0.1], [])
    policy.step(snapshot())
    assert backend.requests[1].prefix == EMPTY + "\n"


def test_grammars_follow_the_bank_and_the_right_to_cite() -> None:
    policy, backend = scored([SAVE], [0.9], [GOOD], grammar=True)
    policy.step(snapshot())
    first, decision, reminder = backend.requests
    assert first.grammar and decision.grammar is None and reminder.grammar
    assert "tm-k-1" in reminder.grammar and "tm-k-2" not in reminder.grammar
    policy, backend = scored([SAVE], [0.9], [GOOD], grammar=True)
    policy.step(snapshot("manual"))
    assert "tm-k-2" in (backend.requests[2].grammar or "")
    policy, backend = scored([EMPTY + "\n<no_intervention/>"], [], [], grammar=True, mode="completion")
    policy.step(snapshot())
    assert "no_intervention" in (backend.requests[0].grammar or "")


def test_samples_draw_the_decision_and_keep_the_list() -> None:
    def sampled(seed: int, names: list[str]) -> tuple[list[list[StepResult]], ScriptedBackend]:
        policy, backend = scored([SAVE] * len(names), [0.5] * len(names), [GOOD] * 64)
        return policy.sample_many([snapshot(name=name) for name in names], num_samples=16, temperature=0.7, seed=seed), backend

    (samples, other), backend = sampled(3, ["a", "b"])
    assert len(samples) == len(other) == 16
    spoke = [result.speaks for result in samples]
    assert 2 < sum(spoke) < 14 and spoke != [result.speaks for result in other]
    assert all(result.list_text == SAVE and result.prob_raw == 0.5 for result in samples)
    assert {result.reason for result in samples} == {"intervened", "model_silent"}
    assert len([request for request in backend.requests if not request.prefix]) == 2
    spoken = [request.step_id for request in backend.requests if SPEAK in request.prefix]
    assert len(spoken) == len(set(spoken)), "each sample is a step of its own on the wire"
    assert {request.temperature for request in backend.requests if SPEAK in request.prefix} == {0.7}
    assert [result.speaks for result in sampled(3, ["a"])[0][0]] == spoke, "a draw does not depend on the rest of the batch"
    assert [result.speaks for result in sampled(4, ["a"])[0][0]] != spoke


def test_samples_of_a_malformed_read_stay_malformed() -> None:
    policy, _ = scored([EMPTY], [DecisionRead(prob_speak=0.5, label_mass=0.1, tokens_in=1)], [])
    assert {result.reason for result in policy.sample_many([snapshot()], num_samples=3)[0]} == {"low_label_mass"}


def test_a_threshold_of_another_mode_or_model_is_refused() -> None:
    with pytest.raises(UserError, match="scored decisions"):
        scored([], [], [], mode="completion", threshold=Threshold.plain(0.5))
    with pytest.raises(UserError, match="was made for model"):
        ModelPolicy(ScriptedBackend(model_hash="b" * 64), threshold=Threshold.plain(0.5, model_hash="a" * 64))
    with pytest.raises(UserError, match="cannot read probabilities"):
        backend = ScriptedBackend()
        backend.can_score = False  # type: ignore[attr-defined]
        ModelPolicy(backend)


def failing_window() -> tuple[Step, ...]:
    values = {"tool": "bash", "call": "bash make", "fingerprint": "f" * 16, "outcome": "error", "digest": "no libfoo"}
    return tuple(Step.model_validate(values | {"step": number}) for number in (4, 5))


def test_the_rules_arm_speaks_where_the_repeat_was_seen() -> None:
    bank = BankState(entries=(entry("tm-p-1", "bash make failed 2 times (first at step 4): no libfoo"),), next_number=2)
    seen: Callable[..., Snapshot] = lambda *triggers: Snapshot(  # noqa: E731
        task_messages=("t",), window=failing_window(), bank=bank, triggers=triggers
    )
    spoken, quiet = RulesPolicy().step_many([seen("interval", "repeated_failure"), seen("interval")])
    assert outcome(spoken) == ("injected", "intervened") and spoken.cited == ("tm-p-1",)
    assert (spoken.reminder or "").endswith("no libfoo [tm-p-1]") and spoken.tokens_in == 0
    assert outcome(quiet) == ("silent", "model_silent")


PIECES = st.sampled_from(
    [
        EMPTY,
        SAVE,
        SPEAK,
        "</context_for_action>",
        "<no_intervention/>",
        "<think>",
        "</think>",
        "[tm-k-1]",
        "text",
        "\n",
        "```",
        "[",
        "{",
        '"',
    ]
)
ANSWERS = st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=8).map("".join))


@given(ANSWERS, ANSWERS, st.floats(0, 1), st.floats(0, 1), st.sampled_from(["stop", "length", None]), st.booleans())
def test_no_answer_of_any_model_breaks_a_step(
    first: str, second: str, prob: float, mass: float, finish: str | None, whole: bool
) -> None:
    lists = [Completion(text=first, finish_reason=finish, tokens_in=1, tokens_out=1)]
    reminders = [Completion(text=second, finish_reason=finish, tokens_in=1, tokens_out=1)]
    read = DecisionRead(prob_speak=prob, label_mass=mass, tokens_in=1)
    policy, _ = scored(lists, [read], reminders, mode="completion" if whole else "scored")
    result = policy.step(snapshot())
    assert result.reason in REASONS[result.decision]
    if result.speaks:
        assert result.reminder and "tm-k-1" in result.cited
    if result.decision == "malformed" and result.reason != "low_label_mass":
        assert result.bank_after == BANK
