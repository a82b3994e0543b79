"""Gates: the order, each refusal, authority by citation, and the hygiene rows of the reference's table."""

from dataclasses import fields

import pytest

from pmem.gates import RUNTIME, GateProfile, apply_gates, authorities, valid_citations
from pmem.hygiene import scripts_of, slip_of
from pmem.outcomes import REASONS, Reason
from pmem.snapshot import BankState, Entry, Snapshot, Step, Trigger


def entry(id: str, content: str, touched: float = 1.0) -> Entry:
    kind = {"k": "knowledge", "p": "procedural", "s": "status"}[id[3]]
    return Entry.model_validate({"id": id, "kind": kind, "content": content, "created": 1, "touched": touched})


def step(number: int, call: str, outcome: str) -> Step:
    values = {"step": number, "tool": "bash", "call": call, "fingerprint": "f" * 16, "outcome": outcome, "digest": "d"}
    return Step.model_validate(values)


BANK = BankState(
    status="private",
    entries=(
        entry("tm-k-1", "Output must be JSON lines."),
        entry("tm-k-2", "Tests may not be edited."),
        entry("tm-p-3", "bash make failed 2 times (first at step 4): missing libfoo"),
    ),
    next_number=4,
)


def snapshot(*triggers: Trigger, window: tuple[Step, ...] = (), last: str | None = None, bank: BankState = BANK) -> Snapshot:
    return Snapshot(task_messages=("t",), window=window, bank=bank, triggers=triggers or ("interval",), last_reminder=last)


def reason_of(reminder: str | None, seen: Snapshot | None = None, *, after: BankState | None = None, **options: object) -> Reason:
    seen = seen or snapshot()
    decision, reason = apply_gates(reminder, snapshot=seen, bank_after=after or seen.bank, **options)  # type: ignore[arg-type]
    assert reason in REASONS[decision]
    return reason


GOOD = "Output must be JSON lines [tm-k-1]."


def test_a_good_cited_reminder_passes() -> None:
    assert reason_of(GOOD, speaks=True, prompt="p") == "intervened"


def test_no_reminder_keeps_the_parsers_reason() -> None:
    assert reason_of(None) == reason_of("") == "model_silent"
    assert reason_of(None, silent_reason="reminder_cut_off") == "reminder_cut_off"


def test_the_first_refusal_names_the_reason() -> None:
    """One reminder that every gate refuses; lifting them one by one walks through the fixed order."""
    fixed = BankState(entries=(entry("tm-p-3", "bash make failed"),))
    window = (step(5, "bash make", "ok"),)
    text = "</s>" + "x" * 600
    seen = snapshot("interval", "repeated_failure", window=window, last=text, bank=fixed)
    walk: list[tuple[str, Reason]] = [
        ("hygiene", "invalid_reminder"),
        ("budget", "over_budget"),
        ("suppression", "suppressed"),
        ("duplicate", "duplicate_reminder"),
        ("threshold", "below_threshold"),
    ]
    lifted: dict[str, bool] = {}
    for gate, reason in walk:
        assert reason_of(text, seen, speaks=False, profile=GateProfile(**lifted)) == reason  # type: ignore[arg-type]
        lifted[gate] = False
    interval = snapshot(window=window, bank=fixed)
    assert reason_of(text, interval, speaks=False, profile=GateProfile(**lifted)) == "uncited"  # type: ignore[arg-type]
    cited = "make fails [tm-p-3]"
    assert reason_of(cited, interval, profile=RUNTIME) == "resolved_failure"
    assert reason_of(cited, interval, profile=GateProfile(resolved_failure=False)) == "intervened"
    assert [field.name for field in fields(GateProfile)][:7] == [gate for gate, _ in walk] + ["citation", "resolved_failure"]


def test_over_budget_is_dropped_whole() -> None:
    text = "word " * 110 + "[tm-k-1]"
    assert len(text) > 500 and reason_of(text) == "over_budget"
    assert reason_of(text, profile=GateProfile(reminder_max_chars=600)) == "intervened"


@pytest.mark.parametrize("last", [GOOD, f"Memory: {GOOD}", "  Output must be\nJSON lines [tm-k-1]. "])
def test_the_same_text_again_is_silence(last: str) -> None:
    assert reason_of(GOOD, snapshot(last=last)) == "duplicate_reminder"


@pytest.mark.parametrize(
    ("citation", "holds"),
    [
        ("[tm-k-1]", True),
        ("[tm-k-1, tm-p-3]", True),
        ("[tm-k-1,tm-p-3]", True),
        ("[tm-k-1][tm-p-3]", True),
        ("[tm-k-99, tm-k-2]", True),
        ("tm-k-1", False),
        ("[tm-k-99]", False),
        ("[tm-s-0]", False),
        ("[TM-K-1]", False),
        ("(see the task)", False),
    ],
)
def test_citation_forms(citation: str, holds: bool) -> None:
    assert reason_of(f"Output must be JSON lines {citation}") == ("intervened" if holds else "uncited")


@pytest.mark.parametrize("trigger", ["tool_error_streak", "loop_signal", "manual", "post_compaction"])
def test_a_deterministic_trigger_may_speak_uncited(trigger: Trigger) -> None:
    assert reason_of("Stop and read the error.", snapshot("interval", trigger)) == "intervened"


def test_an_interval_step_buys_no_authority_by_writing() -> None:
    saved = BankState(entries=(*BANK.entries, entry("tm-k-4", "New note.")))
    overwritten = BankState(entries=(entry("tm-k-1", "Say this now."), *BANK.entries[1:]))
    touched = BankState(entries=(entry("tm-k-1", "output must be JSON lines.", touched=9), *BANK.entries[1:]))
    assert reason_of("New note [tm-k-4]", after=saved) == "uncited"
    assert reason_of("Say this now [tm-k-1]", after=overwritten) == "uncited"
    assert reason_of(GOOD, after=touched) == "intervened"
    assert reason_of("New note [tm-k-4]", snapshot("manual"), after=saved) == "intervened"
    assert authorities(snapshot(), saved) == ("tm-k-1", "tm-k-2", "tm-p-3")
    assert "tm-k-4" in authorities(snapshot("manual"), saved)


def test_a_deleted_entry_has_no_authority() -> None:
    assert reason_of(GOOD, after=BankState(entries=BANK.entries[1:])) == "uncited"


def test_a_failure_that_has_since_succeeded_is_not_brought_up() -> None:
    text = "make failed for lack of libfoo [tm-p-3]"
    failed, fixed = step(4, "bash make", "error"), step(6, "bash make", "ok")
    assert reason_of(text, snapshot(window=(failed,))) == "intervened"
    assert reason_of(text, snapshot(window=(failed, fixed))) == "resolved_failure"
    assert reason_of(text, snapshot(window=(fixed, step(7, "bash make", "error")))) == "intervened"
    assert reason_of(text, snapshot(window=(step(6, "bash ma", "ok"), step(7, "bash make install", "ok")))) == "intervened"
    assert reason_of(text, snapshot("manual", window=(failed, fixed))) == "resolved_failure"


def test_one_failure_still_open_is_enough() -> None:
    bank = BankState(entries=(*BANK.entries, entry("tm-p-4", "bash pytest failed (first at step 2): 3 failed")))
    window = (step(6, "bash make", "ok"), step(7, "bash pytest", "error"))
    assert reason_of("make and pytest failed [tm-p-3, tm-p-4]", snapshot(window=window, bank=bank)) == "intervened"


def test_valid_citations_keep_the_order_of_the_text() -> None:
    assert valid_citations("b [tm-p-3] a [tm-k-1, tm-k-77] [tm-p-3]", BANK) == ("tm-p-3", "tm-k-1")


# Rows 59 to 63 of the reference's table, with the behaviour decided in docs/design/runtime.md.


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|endoftext|>",
        "<end_of_turn>",
        "</s>",
        "<s>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<｜end▁of▁sentence｜>",
        "<eos>",
    ],
)
def test_row_59_stop_tokens_inside(token: str) -> None:
    assert slip_of(f"Output must be JSON {token} lines [tm-k-1]", "p") == "stop_token"


def test_row_59_hygiene_reads_the_text_before_cleaning() -> None:
    raw = "Output must be JSON lines [tm-k-1]</s> user: next"
    assert reason_of(GOOD, reminder_raw=raw) == "invalid_reminder"


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        ("one [tm-k-1]\ntwo\nthree\nfour", "too_many_lines"),
        ("one [tm-k-1]\n\n\ntwo\n\nthree", None),
        ('{"reminder": "use JSON"} [tm-k-1]', "json_shaped"),
        ('[{"op":"save_knowledge","content":"x"}] [tm-k-1]', "json_shaped"),
        ('["use JSON [tm-k-1]"]', "json_shaped"),
        ('"content": ["use JSON"] [tm-k-1]', "json_shaped"),
        ('Note: {"fact": "the output is JSON lines", "id": "tm-k-1"}', "json_shaped"),
        ('I save {"op": "save_knowledge"} first [tm-k-1]', "json_shaped"),
        ('The report must have the shape {"total": 3} and nothing else in it [tm-k-1]', None),
        ("[tm-k-1] Output must be JSON lines.", None),
        ("Use list[int], not [int] [tm-k-1]", None),
    ],
)
def test_row_60_lines_and_json(text: str, slip: str | None) -> None:
    assert slip_of(text, "p") == slip


@pytest.mark.parametrize(
    "text",
    [
        "We need JSON lines here [tm-k-1]",
        "Let's keep the tests untouched [tm-k-2]",
        "I will fail without libfoo, says make [tm-p-3]",
        "The task asks for valid JSON, no extra keys [tm-k-1]",
    ],
)
def test_row_61_first_person_is_no_slip(text: str) -> None:
    assert reason_of(text) == "intervened"


@pytest.mark.parametrize(
    ("text", "prompt", "slip"),
    [
        ("Ausgabe ist JSON, 输出 [tm-k-1]", "Output JSON", "foreign_script"),
        ("Вывод в JSON [tm-k-1]", "Output JSON", "foreign_script"),
        ("출력은 JSON [tm-k-1]", "Output JSON", "foreign_script"),
        ("الإخراج JSON [tm-k-1]", "Output JSON", "foreign_script"),
        ("ผลลัพธ์ JSON [tm-k-1]", "Output JSON", "foreign_script"),
        ("आउटपुट JSON [tm-k-1]", "Output JSON", "foreign_script"),
        ("输出 JSON [tm-k-1]", "任务: 输出", None),
        ("カタカナ [tm-k-1]", "漢字とひらがな", None),
        ("Größe ≤ 5 µm → naïve café ✓ 😀 [tm-k-1]", "Output JSON", None),
    ],
)
def test_row_62_scripts_must_occur_in_the_prompt(text: str, prompt: str, slip: str | None) -> None:
    assert slip_of(text, prompt) == slip


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        ("Output must be JSON lines here [tm-k-1]. Output must be JSON lines here [tm-k-2].", "repeated_sentence"),
        ("Output MUST be JSON lines here.\noutput must be json lines here [tm-k-1]", "repeated_sentence"),
        ("Use JSON. Use JSON. [tm-k-1]", None),
        ("Output must be JSON lines here. Output must be JSON lines there. [tm-k-1]", None),
    ],
)
def test_row_63_the_same_sentence_twice(text: str, slip: str | None) -> None:
    assert slip_of(text, "p") == slip


def test_scripts_are_named_as_unicode_names_them() -> None:
    assert scripts_of("abc Привет 漢字 かな") == {"CYRILLIC", "CJK"}
    assert scripts_of("naïve ﬁ ² ª") == frozenset()
