"""The envelope parser on named cases: the shared file, the kinds behind it, ids, rendering, `pmem parse`."""

import io
import json
from pathlib import Path

import pytest

from pmem.envelope import Envelope, Operation, citations, parse_envelope, render_envelope, render_operations, resolve
from pmem.errors import UserError
from pmem.parse_command import answer_lines
from pmem.snapshot import BankState
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

SHARED = Path(__file__).parents[3] / "shared" / "cases" / "envelope.jsonl"


def shared_cases() -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in SHARED.read_text().splitlines()] if SHARED.exists() else []


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not beside this checkout")
def test_shared_cases_through_the_command() -> None:
    out = io.StringIO()
    answer_lines(SHARED.open(), out)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    cases = shared_cases()
    assert [answer["name"] for answer in answers] == [case["name"] for case in cases]
    for answer, case in zip(answers, cases):
        expect = case["expect"]
        wrong = {key: answer[key] for key in expect if not key.startswith("reminder") and answer[key] != expect[key]}
        assert not wrong, case["name"]
        assert all(part in answer["reminder"] for part in expect.get("reminder_contains", [])), case["name"]
        assert not any(part in answer["reminder"] for part in expect.get("reminder_excludes", [])), case["name"]
        assert set(answer) == {"name", "status", "reason", "ops", "dropped", "decision", "reminder"}


FENCES = {
    "info string": f"```xml\n{QUIET}\n```",
    "tildes": f"~~~\n{QUIET}\n~~~",
    "own line of the envelope": f"```{QUIET}```",
    "info string on the envelope's line": f"```xml {QUIET} ```",
    "longer fence": f"````markdown\n{QUIET}\n````",
    "indented": f"  ```\n  {LIST}\n  {SILENCE}\n  ```",
    "never closed": f"```xml\n{QUIET}",
    "around the array": f"<operations>\n```json\n[{SAVE}]\n```\n</operations>\n{SILENCE}",
    "array on the fence's line": f"<operations>```json[{SAVE}]```</operations>{SILENCE}",
    "between the two lines": f"```\n{LIST}\n```\n```\n{SILENCE}\n```",
}


@pytest.mark.parametrize("text", FENCES.values(), ids=FENCES.keys())
def test_fences_are_ignored(text: str) -> None:
    assert read(text) == SAVED


AROUND = {
    "bom": f"\ufeff{SPOKEN}",
    "zero width": f"\u200b{EMPTY}\u200d\n\u2060{REMINDER}\u200b",
    "zero width inside the tags": f"<operations>\u200b[]\ufeff</operations><\u200bcontext_for_action>{REMINDER[20:]}",
    "crlf": SPOKEN.replace("\n", "\r\n"),
    "no newline": SPOKEN.replace("\n", ""),
    "prose before": f"Here is my step:\n{SPOKEN}",
    "prose after": f"{SPOKEN}\nHope this helps! Let me know about <b>anything</b>.",
    "prose between": f"{EMPTY}\nNow the decision, which is important:\n{REMINDER}",
    "inner spaces": EMPTY.replace("<operations>", "< operations >").replace("</", "< / ") + REMINDER,
    "attributes": f'<operations version="1" n=2>[]</operations>\n<context_for_action priority="high">{REMINDER[20:]}',
    "capitals": f"<OPERATIONS>[]</Operations>\n<Context_For_Action>{REMINDER[20:-21]}</CONTEXT_FOR_ACTION>",
    "a line break in the tag": f"<operations\n>[]</operations\n>\n{REMINDER}",
    "mention of the tag": f"I must start with <operations> and end with a decision.\n{SPOKEN}",
    "mention of both tags": f"I start with <operations>, then </operations>, then <no_intervention/>.\n{SPOKEN}",
    "mention of the reminder tag": f"I may use <context_for_action> for that.\n{SPOKEN}",
}


@pytest.mark.parametrize("text", AROUND.values(), ids=AROUND.keys())
def test_packaging_around_the_envelope_is_ignored(text: str) -> None:
    assert read(text) == SAID


STOP_TOKENS = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|END_OF_TURN_TOKEN|>",
    "[/INST]",
    "<eos>",
    "<|end_of_text|>",
    "<turn|>",
]


@pytest.mark.parametrize("token", STOP_TOKENS)
def test_stop_tokens_around_the_envelope_are_ignored(token: str) -> None:
    for text in (f"{SPOKEN}{token}", f"{token}{SPOKEN}", f"{EMPTY}{token}\n{REMINDER}\n{token}{token}"):
        assert read(text) == SAID
    assert read(f"<|im_start|>assistant\n{SPOKEN}{token}") == SAID


@pytest.mark.parametrize(
    "turn",
    [
        "<|im_end|>\n<|im_start|>user\n",
        "<|eot_id|><|start_header_id|>user<|end_header_id|>",
        "</s>[INST]",
        "<end_of_turn>\n<start_of_turn>user\n",
        "<｜User｜>",
        "<|user|>\n",
    ],
)
def test_a_turn_the_model_plays_for_the_other_side_is_not_its_answer(turn: str) -> None:
    assert read(f"{QUIET}{turn}and now?\n{SPOKEN}") == SAVED
    assert read(f"{LIST}{turn}{REMINDER}") == SAVED


THOUGHTS = {
    "fake envelope inside": f"<think>maybe {SPOKEN}</think>\n{QUIET}",
    "capitals and attributes": f'<THINK lang="en">{SPOKEN}</THINK>{QUIET}',
    "mismatched close": f"<think>{SPOKEN}</thinking>{QUIET}",
    "analysis": f"<analysis>{SPOKEN}</analysis>{QUIET}",
    "scratchpad closed as reasoning": f"<scratchpad>{SPOKEN}</reasoning>{QUIET}",
    "orphan close": f"I might say {REMINDER}</think>\n{QUIET}",
    "orphan close after a draft": f"{SPOKEN} hmm, no.</think>\n{QUIET}",
    "two orphan closes": f"a</think>b {REMINDER}</thinking>\n{QUIET}",
    "nested": f"<think>a<think>b</think>{SPOKEN}</think>{QUIET}",
    "mention inside": f"<think>They forbid <think> tags.</think>{QUIET}",
    "two blocks": f"<think>{SPOKEN}</think><reasoning>{SPOKEN}</reasoning>{QUIET}",
    "between list and decision": f"{LIST}<think>{REMINDER}</think>{SILENCE}",
    "between list and nothing": f"{LIST}<think>{REMINDER}</think>",
    "after": f"{QUIET}<think>or should I? {SPOKEN}</think>",
    "after, never closed": f"{QUIET}<think>or should I? {SPOKEN}",
    "empty": f"<think></think>\n\n{QUIET}",
    "self closing": f"<think/>{QUIET}",
    "a list in the thought quotes the close": f'<think><operations>[{{"op":"x","content":"</think>"}}]</operations>{REMINDER}</think>{QUIET}',
    "harmony": f"<|channel|>analysis<|message|>{SPOKEN}<|end|><|start|>assistant<|channel|>final<|message|>{QUIET}<|return|>",
    "mistral": f"[THINK]{SPOKEN}[/THINK]{QUIET}",
    "cohere": f"<|START_THINKING|>{SPOKEN}<|END_THINKING|>{QUIET}",
    "kimi": f"◁think▷{SPOKEN}◁/think▷{QUIET}",
    "namespaced": f"<seed:think>{SPOKEN}</seed:think>{QUIET}",
    "answer closed as a thought": f"{QUIET}\n</think>\nGlad to help.",
}


@pytest.mark.parametrize("text", THOUGHTS.values(), ids=THOUGHTS.keys())
def test_thoughts_are_skipped(text: str) -> None:
    assert read(text) == SAVED


UNFINISHED_THOUGHTS = {
    "draft inside": f"<think>I could answer {SPOKEN} but wait",
    "capitals": f"<Reasoning>{SPOKEN}",
    "second one open": f"<think>a</think>{'<analysis>'}{SPOKEN}",
    "nested once closed, cut": f"<think>a <think>b</think> {SPOKEN}",
    "list inside the thought quotes the close": f'<think><operations>[{{"op":"x","content":"</think>"}}]</operations>{SPOKEN}',
    "harmony": f"<|channel|>analysis<|message|>{SPOKEN} but",
    "kimi": f"◁think▷{SPOKEN}",
    "answer that ends as a thought": f"{SPOKEN} Is that right? Yes.</think>\n",
}


@pytest.mark.parametrize("text", UNFINISHED_THOUGHTS.values(), ids=UNFINISHED_THOUGHTS.keys())
def test_an_unfinished_thought_is_truncated(text: str) -> None:
    assert read(text, "length") == malformed("truncated")


def test_an_unfinished_thought_is_truncated_however_the_model_stopped() -> None:
    for finish_reason in ("stop", None):
        assert read(f"<think>let me see\n{SPOKEN}", finish_reason) == malformed("truncated")


def test_a_complete_envelope_before_an_unfinished_thought_stands() -> None:
    assert read(f"{SPOKEN}\n<think>or not? {QUIET}", "length") == SAID
    assert read(f"{LIST}<think>or not? {SPOKEN}", "length") == ok("save_knowledge", reason="cut_before_decision")


QUOTED = {
    "think in content": '<operations>[{"op":"save_knowledge","content":"prints <think> unclosed"}]</operations>\n' + SILENCE,
    "orphan close in content": '<operations>[{"op":"save_knowledge","content":"cut at </think>"}]</operations>' + SILENCE,
    "whole envelope in content": f'<operations>[{{"op":"save_knowledge","content":"say {SPOKEN.replace(chr(10), " ")}"}}]</operations>'
    + SILENCE,
    "closing tag in content": '<operations>[{"op":"save_knowledge","content":"]</operations>"}]</operations>' + SILENCE,
    "escaped quotes and brackets": '<operations>[{"op":"save_knowledge","content":"a\\"]</operations>\\\\"}]</operations>'
    + SILENCE,
    "silence tag in content": '<operations>[{"op":"save_knowledge","content":"x <context_for_action>"}]</operations>' + SILENCE,
}


@pytest.mark.parametrize("text", QUOTED.values(), ids=QUOTED.keys())
def test_tags_quoted_in_json_strings_are_text(text: str) -> None:
    assert read(text) == SAVED


@pytest.mark.parametrize(
    "tag",
    [
        "<think>",
        "</think>",
        "<analysis>",
        "</operations>",
        "<operations>",
        "<no_intervention/>",
        SILENCE,
        EMPTY,
        "<operations>[",
        "<operations>[]",
    ],
)
def test_tags_quoted_in_a_finished_reminder_are_text(tag: str) -> None:
    found = read(f"{EMPTY}\n<context_for_action>do not print {tag} here [tm-k-1]</context_for_action>")
    assert found.reminder is not None
    assert found.reminder.startswith("do not print") and found.reminder.endswith("here [tm-k-1]")
    assert "<" not in found.reminder


SEVERAL = {
    "draft speaks, final is silent": (f"{SPOKEN}\n\nOn reflection:\n{QUIET}", SAVED),
    "draft is silent, final speaks": (f"{QUIET}\nNo, better:\n{SPOKEN}", SAID),
    "three": (f"{QUIET}\n{QUIET}\n{SPOKEN}", SAID),
    "final has no decision": (f"{SPOKEN}\n{LIST}", SAVED),
    "draft has no decision": (f"{LIST}\n{SPOKEN}", SAID),
    "invalid last one": (f"{SPOKEN}\n<operations>[{SAVE},]</operations>\n{SILENCE}", SAID),
    "last one with nine operations": (f"{QUIET}\n<operations>[{','.join([SAVE] * 9)}]</operations>\n{REMINDER}", SAVED),
    "last one all unknown verbs": (f'{QUIET}\n<operations>[{{"op":"read"}}]</operations>\n{REMINDER}', SAVED),
    "list without decision, then a broken list that speaks": (f"{LIST}\n<operations>oops</operations>\n{REMINDER}", SAVED),
    "list without decision, then an object that speaks": (f"{LIST}\n<operations>{{}}</operations>\n{REMINDER}", SAVED),
    "invalid first one": (f"<operations>[{SAVE},]</operations>\n{REMINDER}\n{QUIET}", SAVED),
    "reminder never closed before the final one": (f"{EMPTY}\n<context_for_action>Draft\n{QUIET}", SAVED),
    "reminder never closed before a spoken one": (f"{QUIET}\n{EMPTY}\n<context_for_action>Draft\n{SPOKEN}", SAID),
    "same twice": (f"{SPOKEN}\n{SPOKEN}", SAID),
    "quoted in code before": (f"The format is `{SPOKEN}`.\n{QUIET}", SAVED),
    "cut off last one": (f"{QUIET}\n<operations>[{SAVE}", SAVED),
}


@pytest.mark.parametrize("text, expected", SEVERAL.values(), ids=SEVERAL.keys())
def test_the_last_complete_and_valid_envelope_wins(text: str, expected: Read) -> None:
    assert read(text) == expected
    assert read(text, "length").reminder == expected.reminder


DECISIONS = {
    "silence without slash": (f"{LIST}<no_intervention>", SAVED),
    "silence as a pair": (f"{LIST}<no_intervention>nothing to say</no_intervention>", SAVED),
    "silence closing only": (f"{LIST}</no_intervention>{REMINDER}", SAVED),
    "silence with a hyphen": (f"{LIST}<No-Intervention />{REMINDER}", SAVED),
    "silence without bracket": (f"{LIST}\n<no_intervention\n{REMINDER}", SAVED),
    "silence first": (f"{LIST}{SILENCE}{REMINDER}", SAVED),
    "reminder first": (f"{SPOKEN}{SILENCE}", SAID),
    "nothing": (LIST, SAVED),
    "prose only": (f"{LIST}\nI stay quiet.", SAVED),
    "empty reminder": (f"{LIST}<context_for_action></context_for_action>", SAVED),
    "blank reminder": (f"{LIST}<context_for_action> \n\u200b </context_for_action>", SAVED),
    "reminder of tags": (f"{LIST}<context_for_action><b></b></context_for_action>", SAVED),
    "self closing reminder": (f"{LIST}<context_for_action/>{REMINDER}", SAVED),
    "closing tag of a reminder alone": (f"{LIST}\nOutput [tm-k-1]</context_for_action>", SAVED),
    "reminder before the list": (f"{REMINDER}\n{LIST}", SAVED),
    "list inside the reminder": (f"<context_for_action>a {LIST} b</context_for_action>", SAVED),
    "decision inside the list": (f"<operations>[{SAVE}]{SILENCE}</operations>{REMINDER}", SAVED),
    "reminder inside the list": (f"<operations>[{SAVE}]{REMINDER}</operations>", SAVED),
    "never closed": (f"{LIST}<context_for_action>Output", ok("save_knowledge", reason="reminder_cut_off")),
    "closing tag half written": (f"{LIST}{REMINDER[:-3]}", ok("save_knowledge", reason="reminder_cut_off")),
    "wrong closing tag": (f"{LIST}<context_for_action>Output</context>", ok("save_knowledge", reason="reminder_cut_off")),
    "opening tag half written": (f"{LIST}\n<context_for_act", SAVED),
}


@pytest.mark.parametrize("text, expected", DECISIONS.values(), ids=DECISIONS.keys())
def test_the_first_decision_after_the_list_counts(text: str, expected: Read) -> None:
    assert read(text) == expected


def test_a_cut_answer_is_not_chosen_silence() -> None:
    assert read(LIST, "length") == ok("save_knowledge", reason="cut_before_decision")
    assert read(LIST, "max_tokens") == ok("save_knowledge", reason="cut_before_decision")
    assert read(f"{LIST}\n<context_for_act", "length") == ok("save_knowledge", reason="cut_before_decision")
    assert read(QUIET, "length") == SAVED


LISTS = {
    "number as content": '[{"op":"save_knowledge","content":3}]',
    "null content": '[{"op":"save_knowledge","content":null}]',
    "list as content": '[{"op":"save_knowledge","content":["x"]}]',
    "missing content": '[{"op":"save_knowledge"}]',
    "zero-width content": '[{"op":"save_knowledge","content":"\u200b\u2060"}]',
    "control characters as content": '[{"op":"save_knowledge","content":"\\u0000\\u001b[31m"}]',
    "NaN": '[{"op":"read","n":NaN},' + SAVE + "]",
    "minus infinity": '[{"op":"read","n":-Infinity},' + SAVE + "]",
    "invalid escape": '[{"op":"save_knowledge","content":"a\\q"}]',
    "half a unicode escape": '[{"op":"save_knowledge","content":"\\u12"}]',
    "raw newline": '[{"op":"save_knowledge","content":"a\nb"}]',
    "raw tab": '[{"op":"save_knowledge","content":"a\tb"}]',
    "python literals": '[{"op":"save_knowledge","content":"x","id":None}]',
    "single quotes": "[{'op':'save_knowledge','content':'x'}]",
    "comment": "[" + SAVE + " // note\n]",
    "trailing comma in the object": '[{"op":"save_knowledge","content":"x",}]',
    "missing comma": f"[{SAVE} {SAVE}]",
    "wrong bracket": "[" + SAVE + "}",
    "one bracket too many": f"[{SAVE}]]",
    "two arrays": f"[{SAVE}][{SAVE}]",
    "nested array": f"[[{SAVE}]]",
    "string in the array": f'[{SAVE},"x"]',
    "null in the array": f"[{SAVE},null]",
    "op missing": '[{"content":"x"}]',
    "op is a number": '[{"op":1,"content":"x"}]',
    "delete without id": '[{"op":"delete"}]',
    "delete with content": '[{"op":"delete","id":"tm-k-1","content":"x"}]',
    "empty id": '[{"op":"save_knowledge","content":"x","id":""}]',
    "null id": '[{"op":"delete","id":null}]',
    "id on the status": '[{"op":"update_status","content":"x","id":"tm-s-1"}]',
    "eight good ones and an unknown": "[" + ",".join([SAVE] * 8) + ',{"op":"read"}]',
    "object with the list inside": '{"operations":[]}',
    "json in a string": '"[]"',
    "lines of objects": f"{SAVE}\n{SAVE}",
    "null": "null",
    "nothing": "",
    "words": "ops: []",
    "elided": "[...]",
    "unknown verb beside a broken one": '[{"op":"read"},{"op":"save_knowledge"}]',
    "nested a hundred deep": "[" * 100 + "]" * 100,
}


@pytest.mark.parametrize("array", LISTS.values(), ids=LISTS.keys())
def test_a_list_is_all_or_nothing(array: str) -> None:
    assert read(f"<operations>{array}</operations>\n{REMINDER}") == malformed()


ACCEPTED = {
    "duplicate key, the last counts": ('[{"op":"read","op":"save_knowledge","content":"a","content":"b"}]', SAVED),
    "unicode escapes": ('[{"op":"save_knowledge","content":"\\ud83d\\ude00 \\u003c/operations\\u003e"}]', SAVED),
    "lone surrogate": ('[{"op":"save_knowledge","content":"\\ud800"}]', SAVED),
    "1,200 characters after collapsing": ('[{"op":"save_knowledge","content":"' + "ab      " * 400 + '"}]', SAVED),
    "huge integer beside": ('[{"op":"read","n":' + "9" * 6000 + "}," + SAVE + "]", ok("save_knowledge", dropped=1)),
    "deep arguments of an unknown verb": (
        '[{"op":"read","a":' + "[" * 50 + "]" * 50 + "}," + SAVE + "]",
        ok("save_knowledge", dropped=1),
    ),
    "words after the array": (f'[{SAVE}] that is all, "done"', SAVED),
    "verb in the wrong case beside": ('[{"op":"Save_Knowledge","content":"x"},' + SAVE + "]", ok("save_knowledge", dropped=1)),
    "all verbs unknown": ('[{"op":"read"},{"op":"Save_Knowledge","content":"x"}]', malformed("all_operations_invalid")),
    "the other class's id": ('[{"op":"save_procedural","content":"x","id":"tm-k-1"}]', ok("save_procedural")),
    "delete": ('[{"op":"delete","id":"tm-k-1"}]', ok("delete")),
    "delete of nothing": ('[{"op":"delete","id":"tm-k-9"}]', ok(dropped=1)),
    "delete twice": ('[{"op":"delete","id":"tm-k-1"},{"op":"delete","id":"tm-k-1"}]', ok("delete", dropped=1)),
}


@pytest.mark.parametrize("array, expected", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_a_list_may_hold(array: str, expected: Read) -> None:
    assert read(f"<operations>{array}</operations>\n{SILENCE}") == expected


def test_a_cut_list_is_truncated_and_a_bad_one_is_not() -> None:
    assert read(f"<operations>[{SAVE}", "length") == malformed("truncated")
    assert read(f"<operations>[{SAVE}", "stop") == malformed()
    assert read("", "length") == malformed("truncated")
    assert read(f"<operations>[{','.join([SAVE] * 9)}]</operations>", "length") == malformed()


def test_ids_are_settled_against_the_bank() -> None:
    text = (
        '<operations>[{"op":"save_knowledge","content":"a","id":"tm-k-1"},{"op":"save_knowledge","content":"b","id":"format"},'
        '{"op":"delete","id":"tm-k-2"},{"op":"save_knowledge","content":"c","id":"tm-k-2"}]</operations>'
    )
    envelope = parse_envelope(text)
    assert isinstance(envelope, Envelope)
    assert resolve(envelope, BANK).operations == (
        Operation("save_knowledge", "a", "tm-k-1"),
        Operation("save_knowledge", "b"),
        Operation("delete", None, "tm-k-2"),
        Operation("save_knowledge", "c"),
    )
    assert [op.id for op in resolve(envelope, BankState()).operations] == [None, None, None]


def test_content_is_kept_as_the_bank_keeps_it() -> None:
    envelope = parse_envelope(
        '<operations>[{"op":"update_status","content":"  a \\n\\t b\\u0000 \\u001b[31mred\\u001b[0m 👩‍💻 "}]</operations>'
    )
    assert isinstance(envelope, Envelope)
    assert envelope.operations == (Operation("update_status", "a b red 👩‍💻"),)


@pytest.mark.parametrize(
    "text, ids",
    [
        ("use [tm-k-1]", ("tm-k-1",)),
        ("use [tm-k-1, tm-p-2] and [tm-k-1]", ("tm-k-1", "tm-p-2")),
        ("[tm-k-1][tm-p-2]", ("tm-k-1", "tm-p-2")),
        ("[ tm-k-1 ,tm-p-12 ]", ("tm-k-1", "tm-p-12")),
        ("tm-k-1 (tm-k-2) [TM-K-3] [tm-s-1] [tm-k-] [tm-k-4", ()),
        ("list[int] a[0] [see tm-k-1]", ()),
        ("[tm-k-1, tm-s-2]", ()),
    ],
)
def test_citations(text: str, ids: tuple[str, ...]) -> None:
    assert citations(text) == ids


def test_rendering_is_canonical() -> None:
    operations = [
        Operation("save_knowledge", 'say "</operations>"', "tm-k-1"),
        Operation("delete", None, "tm-p-3"),
        Operation("update_status", "ü"),
    ]
    text = render_operations(operations)
    assert text == (
        '<operations>[{"op":"save_knowledge","content":"say \\"<\\/operations>\\"","id":"tm-k-1"},'
        '{"op":"delete","id":"tm-p-3"},{"op":"update_status","content":"ü"}]</operations>'
    )
    assert render_envelope(operations, None) == f"{text}\n<no_intervention/>"
    assert render_envelope([], "a [tm-k-1]") == f"{EMPTY}\n<context_for_action>a [tm-k-1]</context_for_action>"


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("{", "line 1: not JSON"),
        ("[" * 100_000, "line 1: not JSON"),
        ('{"name":"x"}', "'text'"),
        ('{"text":3}', "'text'"),
        ('{"text":"","bank":[1]}', "'bank'"),
        ('{"text":"","bank":{"knowledge":[1]}}', "'bank'"),
    ],
)
def test_a_case_that_cannot_be_read_is_named(line: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        answer_lines([line], io.StringIO())


def test_an_answer_without_text_is_unparseable() -> None:
    out = io.StringIO()
    answer_lines(['{"name":"none","text":null}\n', "\n"], out)
    assert json.loads(out.getvalue())["reason"] == "unparseable"
