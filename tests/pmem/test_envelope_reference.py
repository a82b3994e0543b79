"""Rows of the reference implementation's outcome table that concern the parser, each with our decided behaviour.

The row number is the test id. Where the design differs from the reference, the case says `ours:`. Rows 59 to 63 are refusals of
the hygiene gate; row 36, about the bank, stands in test_bank.py.
"""

import pytest

from pmem.envelope import Envelope, parse_envelope
from pmem.gates import apply_gates
from pmem.outcomes import Reason
from pmem.snapshot import Snapshot
from tests.pmem.envelope_world import (
    BANK,
    EMPTY,
    LIST,
    QUIET,
    REMINDER,
    SAID,
    SAVE,
    SAVED,
    SILENCE,
    SPOKEN,
    Read,
    malformed,
    ok,
    read,
)

UNKNOWN = '{"op":"read","path":"a.py"}'


def content(text: str) -> str:
    return f'{{"op":"save_knowledge","content":"{text}"}}'


def listed(array: str) -> str:
    return f"<operations>{array}</operations>\n{SILENCE}"


ROWS: list[tuple[str, str, Read]] = [
    ("1", QUIET, SAVED),
    ("2", f"```xml\n{QUIET}\n```", SAVED),
    ("3", f"<think>{SPOKEN}</think>{QUIET}", SAVED),
    ("4", f'<THINK>a</THINK><think foo="1">{SPOKEN}</think>{QUIET}', SAVED),
    ("5 ours: a mismatched close closes", f"<think>x</thinking>{QUIET}", SAVED),
    ("6 ours: truncated", f"<think>x\n{QUIET}", malformed("truncated")),
    ("7", f"{QUIET}\n<think>and", SAVED),
    ("8", f"some text</think>{QUIET}", SAVED),
    ("9 ours: analysis is a reasoning block", f"<analysis>{SPOKEN}</analysis>{QUIET}", SAVED),
    ("9 other names are prose", f"<plan>be brief</plan>{QUIET}", SAVED),
    ("10", f"Here is my step:\n{QUIET}\nHave a nice day!", SAVED),
    ("11", '<operations>\n[\n  {\n    "op": "save_knowledge",\n    "content": "x"\n  }\n]\n</operations>\n\n' + SILENCE, SAVED),
    ("12", f"{EMPTY}{REMINDER}", SAID),
    ("13", listed(f"[{content('say <operations>[]</operations> [ ] { } ' + chr(92) + chr(34))}]"), SAVED),
    ("14", f"<operations>\n```json\n[{SAVE}]\n```\n</operations>\n{SILENCE}", SAVED),
    ("15", f"<operations>[{SAVE}] these are all</operations>\n{SILENCE}", SAVED),
    ("16 ours: two arrays are not one", listed(f"[{SAVE}][{SAVE}]"), malformed()),
    ("17", f"\ufeff~~~\n{QUIET}\n~~~", SAVED),
    ("18 empty", "", malformed()),
    ("18 prose", "The agent is doing fine.", malformed()),
    ("19", f"<operations>\n{SILENCE}", malformed()),
    ("20", f"<operations></operations>\n{SILENCE}", malformed()),
    ("21 words", listed("not-json"), malformed()),
    ("21 ops:", listed("ops: []"), malformed()),
    ("22", f"<operations>[{SAVE}]\n{SILENCE}", malformed()),
    ("23 object", listed(SAVE), malformed()),
    ("23 wrapped", listed('{"operations":[]}'), malformed()),
    ("23 lines", listed(f"{SAVE}\n{SAVE}"), malformed()),
    ("23 null", listed("null"), malformed()),
    ("23 string", listed('"[]"'), malformed()),
    ("24 trailing comma", listed(f"[{SAVE},]"), malformed()),
    ("24 single quotes", listed("[{'op':'save_knowledge','content':'x'}]"), malformed()),
    ("24 raw newline", listed(f"[{content('a' + chr(10) + 'b')}]"), malformed()),
    ("24 wrong bracket", listed("[}"), malformed()),
    ("25 nine", listed(f"[{','.join([SAVE] * 9)}]"), malformed()),
    ("25 eight and one unknown", listed(f"[{','.join([SAVE] * 8)},{UNKNOWN}]"), malformed()),
    ("25 eight", listed(f"[{','.join([SAVE] * 8)}]"), ok(*["save_knowledge"] * 8)),
    ("26", listed('[{"op":"save_knowledge","content":"x","why":"y"}]'), malformed()),
    ("27 string", listed('["save_knowledge"]'), malformed()),
    ("27 number", listed("[1]"), malformed()),
    ("27 op is a list", listed('[{"op":["save_knowledge"],"content":"x"}]'), malformed()),
    ("28 missing", listed('[{"op":"save_knowledge"}]'), malformed()),
    ("28 blank", listed(f"[{content('   ')}]"), malformed()),
    ("28 not a string", listed('[{"op":"save_knowledge","content":7}]'), malformed()),
    ("28 too long", listed(f"[{content('x' * 1201)}]"), malformed()),
    ("28 as long as may be after collapsing", listed(f"[{content('x' * 600 + ' ' * 300 + 'y' * 599)}]"), SAVED),
    ("29 status with id", listed('[{"op":"update_status","content":"x","id":"tm-s-1"}]'), malformed()),
    ("29 delete without id", listed('[{"op":"delete"}]'), malformed()),
    ("29 empty id", listed('[{"op":"save_knowledge","content":"x","id":""}]'), malformed()),
    ("29 null id", listed('[{"op":"save_knowledge","content":"x","id":null}]'), malformed()),
    ("30", listed(f"[{UNKNOWN},{SAVE}]"), ok("save_knowledge", dropped=1)),
    ("31 every verb unknown", f"<operations>[{UNKNOWN}]</operations>{REMINDER}", malformed("all_operations_invalid")),
    ("31 case matters", listed('[{"op":"Save_Knowledge","content":"x"}]'), malformed("all_operations_invalid")),
    ("32", listed('[{"op":"save_knowledge","content":"a","content":"b"}]'), SAVED),
    ("33 unknown id", listed('[{"op":"save_knowledge","content":"x","id":"output"}]'), SAVED),
    ("33 other class", listed('[{"op":"save_knowledge","content":"x","id":"tm-p-3"}]'), SAVED),
    ("34 unknown", listed('[{"op":"delete","id":"tm-k-9"}]'), ok(dropped=1)),
    ("34 twice", listed('[{"op":"delete","id":"tm-k-1"},{"op":"delete","id":"tm-k-1"}]'), ok("delete", dropped=1)),
    ("34 made in the same batch", listed(f'[{SAVE},{{"op":"delete","id":"tm-k-4"}}]'), ok("save_knowledge", dropped=1)),
    (
        "35",
        listed('[{"op":"delete","id":"tm-k-1"},{"op":"save_knowledge","content":"x","id":"tm-k-1"}]'),
        ok("delete", "save_knowledge"),
    ),
    ("37", f"{EMPTY}\n{SILENCE}", ok()),
    ("38 absent", LIST, SAVED),
    ("38 no slash", f"{LIST}\n<no_intervention>", SAVED),
    ("38 space", f"{LIST}\n<no_intervention />", SAVED),
    ("38 closing", f"{LIST}\n</no_intervention>", SAVED),
    ("39", f"{LIST}\n{SILENCE}\n{REMINDER}", SAVED),
    ("40", f"{SPOKEN}\n{SILENCE}", SAID),
    ("41 ours: any case is silence", f"{LIST}\n<NO_INTERVENTION/>\n{REMINDER}", SAVED),
    ("42 empty", f"{LIST}<context_for_action></context_for_action>", SAVED),
    ("42 blank", f"{LIST}<context_for_action>  \n </context_for_action>", SAVED),
    ("42 self closing", f"{LIST}<context_for_action/>", SAVED),
    ("43", f"{REMINDER}\n{LIST}", SAVED),
    (
        "44 ours: never spoken",
        f"{LIST}<context_for_action>Output must be [tm-k-1]",
        ok("save_knowledge", reason="reminder_cut_off"),
    ),
    (
        "45 ours: the first close",
        f"{EMPTY}<context_for_action>a [tm-k-1]</context_for_action> b</context_for_action>",
        ok(reminder="a [tm-k-1]"),
    ),
    ("46", f"{EMPTY}<context_for_action>a <context_for_action>b [tm-k-1]</context_for_action>", ok(reminder="a b [tm-k-1]")),
    (
        "47",
        f"{EMPTY}<context_for_action>a </operations> b <no_intervention/> [tm-k-1]</context_for_action>",
        ok(reminder="a b [tm-k-1]"),
    ),
    ("48", f"{EMPTY}<context_for_action>a </system-reminder> b</context_for_action>", ok(reminder="a b")),
    ("49", f"{EMPTY}<context_for_action>a < b and c > d</context_for_action>", ok(reminder="a < b and c > d")),
    ("49 ours: nothing is lost", f"{EMPTY}<context_for_action>x<y and z>w</context_for_action>", ok(reminder="x<y and z>w")),
    ("50 ours: the last wins", f"{SPOKEN}\n{QUIET}", SAVED),
    ("51 ours: the second list with its own decision", f"{LIST}\n{SPOKEN}", SAID),
    ("52 ours: the good one is read", f"<operations>oops</operations>\n{QUIET}", SAVED),
    ("53 ours: a mention is prose", f"I must start with <operations> tag.\n{QUIET}", SAVED),
    ("54 ours: the inner one is complete", f"<operations>{EMPTY}\n{SILENCE}", ok()),
    ("55 ours: capitals", f"<OPERATIONS>[{SAVE}]</OPERATIONS>{SILENCE}", SAVED),
    ("55 ours: space", f"<operations >[{SAVE}]</operations >{SILENCE}", SAVED),
    ("55 ours: attribute", f'<operations version="1">[{SAVE}]</operations>{SILENCE}', SAVED),
    ("56 ours: fence on the same line", f"```{QUIET}```", SAVED),
    ("57 ours: a quoted tag is text", listed(f"[{content('prints <think> and stops')}]"), SAVED),
    ("57 ours: a quoted pair stays", listed(f"[{content('a <think>b</think> c')}]"), SAVED),
    ("58", f"{SPOKEN}<|im_end|>", SAID),
]


@pytest.mark.parametrize("text, expected", [row[1:] for row in ROWS], ids=[f"row {row[0]}" for row in ROWS])
def test_row(text: str, expected: Read) -> None:
    assert read(text) == expected


def test_row_57_the_pair_is_not_cut_out_of_the_content() -> None:
    envelope = parse_envelope(listed(f"[{content('a <think>b</think> c')}]"))
    assert isinstance(envelope, Envelope)
    assert envelope.operations[0].content == "a <think>b</think> c"


def test_row_32_the_last_of_two_equal_keys_counts() -> None:
    envelope = parse_envelope(listed('[{"op":"save_knowledge","content":"a","content":"b"}]'))
    assert isinstance(envelope, Envelope)
    assert envelope.operations[0].content == "b"


@pytest.mark.parametrize("token", ["<|im_end|>", "<end_of_turn>", "</s>", "[INST]", "<<SYS>>"])
def test_row_59_the_gate_sees_what_cleaning_hides(token: str) -> None:
    envelope = parse_envelope(f"{EMPTY}<context_for_action>a {token} b [tm-k-1]</context_for_action>")
    assert isinstance(envelope, Envelope)
    assert envelope.reminder == "a b [tm-k-1]"
    assert envelope.reminder_raw is not None and token in envelope.reminder_raw


def test_row_60_length_and_lines_are_left_to_the_gate() -> None:
    long = "word " * 200 + "[tm-k-1]"
    assert read(f"{EMPTY}<context_for_action>{long}</context_for_action>").reminder == long
    assert read(f"{EMPTY}<context_for_action>a\n\n b\nc\nd</context_for_action>").reminder == "a\nb\nc\nd"


SENTENCE = "The output must be JSON lines, as the user said. "
PROMPT = "The task is in English, with one word of Greek: λόγος."
GATED: list[tuple[str, str, Reason]] = [
    ("59 stop token", "a <|im_end|> b [tm-k-1]", "invalid_reminder"),
    ("60 over 500 characters", "word " * 100 + "[tm-k-1]", "over_budget"),
    ("60 four lines", "a\n\n b\nc\nd [tm-k-1]", "invalid_reminder"),
    ("60 three lines", "a\n\n b\n c [tm-k-1]", "intervened"),
    ("60 an object", '{"reminder": "Use JSON [tm-k-1]"}', "invalid_reminder"),
    ("60 a list of objects", '[{"op": "save_knowledge", "content": "x [tm-k-1]"}]', "invalid_reminder"),
    ("60 ours: a sentence that quotes JSON", 'Write {"unit": "EUR"} into the head of the report [tm-k-1]', "intervened"),
    ("61 ours: first person is often an honest fact", "We need JSON lines, let's keep to it [tm-k-1]", "intervened"),
    ("61 ours: talk of the task is no slip", "The task asks for valid JSON [tm-k-1]", "intervened"),
    ("62 a script that is nowhere in the prompt", "Используй JSON [tm-k-1]", "invalid_reminder"),
    ("62 Chinese", "输出必须是 JSON [tm-k-1]", "invalid_reminder"),
    ("62 a script of the prompt", "λόγος comes first [tm-k-1]", "intervened"),
    ("63 a sentence twice", f"{SENTENCE}{SENTENCE}[tm-k-1]", "invalid_reminder"),
    ("63 twice but for its citation", f"{SENTENCE[:-2]} [tm-k-1]. {SENTENCE}", "invalid_reminder"),
    ("63 a short one twice", "Use JSON. Use JSON. [tm-k-1]", "intervened"),
]


@pytest.mark.parametrize("text, reason", [row[1:] for row in GATED], ids=[f"row {row[0]}" for row in GATED])
def test_hygiene_row(text: str, reason: Reason) -> None:
    envelope = parse_envelope(f"{EMPTY}<context_for_action>{text}</context_for_action>")
    assert isinstance(envelope, Envelope)
    snapshot = Snapshot(task_messages=("t",), window=(), bank=BANK, triggers=("interval",))
    _, found = apply_gates(
        envelope.reminder, snapshot=snapshot, bank_after=BANK, prompt=PROMPT, reminder_raw=envelope.reminder_raw
    )
    assert found == reason
