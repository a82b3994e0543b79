"""The composite reward, the credit made from it, and the stop rules."""

import math

import pytest
import torch

from pmem.envelope import SILENT, SPEAK, SPEAK_CLOSE, Operation, render_envelope
from tests.tiny import byte_tokenizer
from tests.train.contradictions import contradiction_pivots
from train.credit import Span, centred, joint_advantages, split_advantages
from train.rewards import RewardConfig, Score, pivot_of, reminder_cost, score, shown_bank, speaking_value
from train.rows import check_decision
from train.spans import span_of
from train.stop_rules import StopRules, StopWatch

CONFIG = RewardConfig()
ROW = contradiction_pivots(2, seed=4)[1]
PIVOT = pivot_of(ROW)
RIGHT = next(one for one in PIVOT.candidates if one.value > PIVOT.value_silent)


def test_the_bank_is_read_from_the_prompt() -> None:
    assert [entry.id for entry in shown_bank(ROW["prompt_messages"]).entries] == sorted(
        (item["candidate_id"] for item in ROW["candidates"]), reverse=True
    )


@pytest.mark.parametrize(
    ("text", "truncated", "kind", "decision"),
    [
        ("hello", False, "malformed", -1.0),
        (render_envelope((), None), False, "silent", 0.2),
        (render_envelope((), None), True, "malformed", -1.0),
        ("<operations>[]</operations>\n", False, "malformed", -1.0),
        (render_envelope((), "Something without a source."), False, "uncited", -0.5),
        (render_envelope((), "Something with a wrong source [tm-k-99]."), False, "uncited", -0.5),
        (render_envelope((), "x" * 501 + " [tm-k-1]"), False, "uncited", -0.5),
        (render_envelope((), RIGHT.text), False, "mapped", 0.9 - reminder_cost(RIGHT.text, CONFIG)),
        (render_envelope((), f"Nobody measured this [{RIGHT.cited_ids[0]}]"), False, "unmapped", None),
    ],
)
def test_each_kind_of_answer_has_its_reward(text: str, truncated: bool, kind: str, decision: float | None) -> None:
    found = score(text, PIVOT, CONFIG, truncated=truncated)
    assert (found.kind, found.decision) == (kind, pytest.approx(decision) if decision is not None else None)
    assert (found.total is None) == (kind == "unmapped")


def test_the_right_number_under_a_wrong_claim_earns_nothing() -> None:
    other = next(one for one in PIVOT.candidates if one is not RIGHT)
    swapped = other.text.partition(" [")[0] + f" [{RIGHT.cited_ids[0]}]"
    assert score(render_envelope((), swapped), PIVOT, CONFIG).decision < PIVOT.value_silent


def test_operations_are_scored_on_their_own() -> None:
    good = render_envelope((Operation("save_knowledge", "a new fact"),), None)
    bad = render_envelope((Operation("delete", id="tm-k-99"), Operation("save_knowledge", "a new fact")), None)
    again = render_envelope((Operation("save_knowledge", PIVOT.bank.entries[0].content),), None)
    assert score(good, PIVOT, CONFIG).operations == pytest.approx(0.1)
    assert score(bad, PIVOT, CONFIG).operations == pytest.approx(-0.1)
    assert score(again, PIVOT, CONFIG).operations == pytest.approx(-0.1)


def test_unmeasured_silence_is_none_not_zero() -> None:
    unmeasured = pivot_of({**ROW, "value_silent": None})
    assert score(render_envelope((), None), unmeasured, CONFIG).total is None


def test_speaking_is_worth_what_the_group_measured_else_the_best_candidate() -> None:
    scores = [Score("mapped", 0.1, 0.5), Score("mapped", 0.1, 0.7), Score("silent", 0.1, 0.2), Score("unmapped", 0.1, None)]
    assert speaking_value(scores, PIVOT, CONFIG) == pytest.approx(0.6)
    assert speaking_value([], PIVOT, CONFIG) == pytest.approx(0.9 - reminder_cost(RIGHT.text, CONFIG))


def test_credit_goes_to_the_part_that_earned_it() -> None:
    scores = [Score("silent", 0.1, 0.2), Score("mapped", -0.1, 0.8), Score("malformed", 0.0, -1.0), Score("unmapped", 0.1, None)]
    spans = [Span(2, 3), Span(2, 3), Span(6, None), Span(2, 3)]
    sampled = split_advantages(scores, spans, 6, exact=False)
    mean_lists, mean_decisions = 0.1 / 3, 0.0
    torch.testing.assert_close(sampled[0], torch.tensor([0.1 - mean_lists] * 2 + [0.2 - mean_decisions] * 4))
    torch.testing.assert_close(sampled[1], torch.tensor([-0.1 - mean_lists] * 2 + [0.8 - mean_decisions] * 4))
    assert sampled[3, 2:].abs().sum() == 0
    exact = split_advantages(scores, spans, 6, exact=True)
    assert exact[0, 2:].abs().sum() == 0 and exact[1, 2:4].abs().sum() == 0
    totals = centred([one.total for one in scores])
    torch.testing.assert_close(joint_advantages(scores, 6)[2], torch.full((6,), totals[2]))
    torch.testing.assert_close(sampled[2], torch.full((6,), totals[2]))


@pytest.mark.parametrize("reminder", [None, "Use pytest for tests. [tm-k-1]"])
def test_spans_find_list_end_and_decision_in_tokens(reminder: str | None) -> None:
    tokenizer = byte_tokenizer()
    text = render_envelope((Operation("save_knowledge", "é fact"),), reminder)
    ids = tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"]
    span = span_of(tokenizer, ids, check_decision(tokenizer, "x"))
    assert tokenizer.decode(ids[: span.list_end]).endswith("</operations>")
    assert tokenizer.decode(ids[span.decision]) == ("c" if reminder else "n")


@pytest.mark.parametrize("text", ["no envelope", "<operations>[]</operations>", "<operations>[]</operations>\nhello"])
def test_an_answer_without_a_decision_has_no_decision_token(text: str) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert span_of(tokenizer, ids, check_decision(tokenizer, "x")).decision is None


def logs(**changes: float) -> dict[str, float]:
    return {"rate_speak": 0.4, "entropy": 0.2, "frac_reward_zero_std": 0.3, "share_malformed": 0.02} | changes


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (logs(rate_speak=0.01), "rate of speaking"),
        (logs(rate_speak=1.0), None),
        (logs(entropy=0.0001), "entropy"),
        (logs(frac_reward_zero_std=1.0), "no differing rewards"),
        (logs(share_malformed=0.5), "malformed"),
        (logs(entropy=math.nan), None),
    ],
)
def test_stop_rules_name_what_broke(late: dict[str, float], words: str | None) -> None:
    watch = StopWatch(StopRules(window=3))
    assert all(watch.broken_by_log(logs()) is None for _ in range(3))
    reasons = [watch.broken_by_log(late) for _ in range(3)]
    assert (reasons[-1] is None) if words is None else (words in str(reasons[-1]))


def test_dev_false_interventions_may_not_rise() -> None:
    watch = StopWatch(StopRules())
    assert watch.broken_by_dev(0.1) is None and watch.broken_by_dev(0.15) is None
    assert "10% to 40%" in str(watch.broken_by_dev(0.4))


def test_an_answer_behind_a_written_list_is_scored_with_it_and_has_its_decision_first() -> None:
    begun = '<operations>[{"op":"update_status","content":"a ~ b"}]</operations>\n'
    pivot = pivot_of({**ROW, "prompt_messages": [*ROW["prompt_messages"], {"role": "assistant", "content": begun}]})
    assert pivot.begun == begun and pivot.bank == PIVOT.bank
    assert score(SILENT, pivot, CONFIG).kind == "silent" and score(SILENT, PIVOT, CONFIG).kind == "malformed"
    assert score(f"{SPEAK}{RIGHT.text}{SPEAK_CLOSE}", pivot, CONFIG).kind == "mapped"
    tokenizer = byte_tokenizer()
    point = check_decision(tokenizer, "bytes")
    for line, ids in ((SILENT, point.silent_ids), (f"{SPEAK}x{SPEAK_CLOSE}", point.speak_ids)):
        answer = tokenizer(line, add_special_tokens=False)["input_ids"]
        span = span_of(tokenizer, answer, point, decides_only=True)
        assert span.list_end == 0 and span.decision is not None and answer[span.decision] in ids
        assert span_of(tokenizer, answer, point).decision is None


def test_what_nobody_measured_is_measured_on_demand() -> None:
    asked = []

    def measure(snapshot_id: str, reminder: str) -> float | None:
        asked.append((snapshot_id, reminder))
        return 0.7 if "demand" in reminder else None

    cited = RIGHT.cited_ids[0]
    found = score(render_envelope((), f"On demand [{cited}]"), PIVOT, CONFIG, measure=measure)
    assert (found.kind, found.decision) == ("mapped", pytest.approx(0.7 - reminder_cost(f"On demand [{cited}]", CONFIG)))
    assert score(render_envelope((), f"In vain [{cited}]"), PIVOT, CONFIG, measure=measure).kind == "unmapped"
    assert score(render_envelope((), RIGHT.text), PIVOT, CONFIG, measure=measure).kind == "mapped"
    assert asked == [(PIVOT.snapshot_id, f"On demand [{cited}]"), (PIVOT.snapshot_id, f"In vain [{cited}]")]
