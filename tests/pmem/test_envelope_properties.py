"""Laws of the parser: it never raises, reads back what it writes, never speaks from a cut text, and its time grows with the length."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmem.envelope import (
    Envelope,
    Malformed,
    Operation,
    citations,
    parse_envelope,
    render_envelope,
    render_operations,
    resolve,
)
from pmem.envelope_text import clean_content, clean_reminder
from tests.pmem.envelope_world import BANK, EMPTY, LIST, QUIET, REMINDER, SAVE, SILENCE, SPOKEN

PIECES = [
    LIST,
    EMPTY,
    SILENCE,
    REMINDER,
    SAVE,
    "<operations>",
    "</operations>",
    "<context_for_action>",
    "</context_for_action>",
    "<think>",
    "</think>",
    "<analysis>",
    "</thinking>",
    "<no_intervention>",
    "[",
    "]",
    "{",
    "}",
    '"',
    "\\",
    ",",
    ":",
    "\n",
    " ",
    "```",
    "~~~xml\n",
    "\ufeff",
    "\u200b",
    "\ud800",
    "\x00",
    "\x1b[31m",
    "<|im_end|>",
    "<|im_start|>user",
    "[INST]",
    "<",
    ">",
    "</",
    "/>",
    "[tm-k-1]",
    "a",
    '"op"',
    "delete",
    "NaN",
    "9" * 50,
    "<OPERATIONS >",
    "< / operations>",
    "◁think▷",
    "<|channel|>analysis",
    "é",
    "😀",
]
SCRAPS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
ANY_TEXT = st.one_of(st.text(), st.text(st.characters(codec=None, categories=None)), SCRAPS)
FINISH = st.sampled_from(["stop", "length", None, "max_tokens", "error"])
CONTENT = st.text(min_size=1, max_size=80).filter(clean_content)
ID = st.sampled_from(["tm-k-1", "tm-k-2", "tm-p-3", "tm-k-9", "format"])
OPERATION = st.one_of(
    st.builds(Operation, st.just("update_status"), CONTENT),
    st.builds(Operation, st.sampled_from(["save_knowledge", "save_procedural"]), CONTENT, st.none() | ID),
    st.builds(Operation, st.just("delete"), st.none(), ID),
)
OPERATIONS = st.lists(OPERATION, max_size=8)
WORDS = st.text(st.characters(exclude_characters="<", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60)
PROSE = WORDS.filter(lambda text: clean_reminder(text) == text != "")


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, FINISH)
def test_never_raises_and_never_leaks(text: str, finish_reason: str | None) -> None:
    envelope = parse_envelope(text, finish_reason=finish_reason)
    if isinstance(envelope, Malformed):
        assert envelope.reason in ("unparseable", "truncated", "all_operations_invalid")
        return
    resolved = resolve(envelope, BANK)
    assert len(resolved.operations) + resolved.dropped <= 8
    assert all(op.content is None or op.content == clean_content(op.content) for op in resolved.operations)
    if resolved.reminder is not None:
        assert resolved.reminder.strip() and not re.search(r"</\s*\w|<\s*/\s*[\w:.-]+\s*>", resolved.reminder)
        assert resolved.reason is None
        citations(resolved.reminder).__len__()
        resolved.reminder.encode()


@settings(deadline=None)
@given(OPERATIONS, PROSE | st.none())
def test_reads_back_what_it_writes(operations: list[Operation], reminder: str | None) -> None:
    envelope = parse_envelope(render_envelope(operations, reminder), finish_reason="stop")
    assert isinstance(envelope, Envelope)
    assert [(op.op, op.id) for op in envelope.operations] == [(op.op, op.id) for op in operations]
    assert [op.content for op in envelope.operations] == [op.content and clean_content(op.content) for op in operations]
    assert envelope.reminder == reminder
    assert render_operations(envelope.operations) == render_operations(operations)


@settings(deadline=None)
@given(OPERATIONS, PROSE | st.none())
def test_the_stop_string_stands_only_at_the_end_of_the_list(operations: list[Operation], reminder: str | None) -> None:
    first = render_envelope(operations, reminder).split("\n")[0]
    assert first.index("</operations>") == len(first) - len("</operations>")


@settings(max_examples=30, deadline=None)
@given(OPERATIONS, PROSE, st.sampled_from(["length", "stop", None]))
def test_a_text_cut_anywhere_never_speaks(operations: list[Operation], reminder: str, finish_reason: str | None) -> None:
    text = render_envelope(operations, reminder)
    listed = len(render_operations(operations))
    for place in range(len(text)):
        envelope = parse_envelope(text[:place], finish_reason=finish_reason)
        if place < listed:
            assert envelope == Malformed("truncated" if finish_reason == "length" else "unparseable")
        else:
            assert isinstance(envelope, Envelope) and envelope.reminder is None
            if finish_reason == "length":
                assert envelope.reason in ("cut_before_decision", "reminder_cut_off")


@settings(max_examples=150, deadline=None)
@given(SCRAPS)
def test_a_thought_never_closed_never_speaks(scraps: str) -> None:
    inside = scraps.replace("</think", "").replace("</thinking", "").replace("channel", "")
    for opening in ("<think>", "<Analysis depth=1>", "<reasoning >"):
        assert parse_envelope(f"{opening}{inside}{SPOKEN}", finish_reason="length") == Malformed("truncated")


@settings(max_examples=150, deadline=None)
@given(SCRAPS)
def test_a_thought_before_the_answer_changes_nothing(scraps: str) -> None:
    inside = scraps.replace("think", "").replace("analysis", "").replace("<operations>[", "")
    assert parse_envelope(f"<think>{inside}</think>\n{QUIET}") == parse_envelope(QUIET)


BOMBS: dict[str, Callable[[int], str]] = {
    "<": lambda n: "<" * n,
    "[": lambda n: "[" * n,
    "<think>": lambda n: "<think>" * (n // 7),
    "<think> closed": lambda n: "<think>" * (n // 15) + "</think>" * (n // 15),
    "opened lists": lambda n: "<operations>[" * (n // 13),
    "opened strings": lambda n: '<operations>["' * (n // 14),
    "escapes": lambda n: '<operations>["\\' * (n // 15),
    "nested in one list": lambda n: "<operations>" + "[" * (n // 2) + "]" * (n // 2) + "</operations>",
    "nested objects": lambda n: "<operations>" + '[{"a":' * (n // 6),
    "complete lists": lambda n: EMPTY * (n // len(EMPTY)),
    "opened reminders": lambda n: (EMPTY + "<context_for_action>") * (n // 46),
    "lists in a reminder": lambda n: EMPTY + "<context_for_action>" + EMPTY * (n // 26) + "</context_for_action>",
    "thoughts in lists": lambda n: "<operations>[]<think><think></think></operations>" * (n // 48),
    "spoken": lambda n: (SPOKEN + "\n") * (n // len(SPOKEN)),
    "spaces in a tag": lambda n: "<" + " " * n,
    "attributes in a reminder": lambda n: f"{EMPTY}<context_for_action>" + "<a " + "=" * n + "</context_for_action>",
    "closers in a reminder": lambda n: f"{EMPTY}<context_for_action>" + "</" * (n // 2) + "</context_for_action>",
    "terminal codes in a reminder": lambda n: f"{EMPTY}<context_for_action>" + "\x9d" * n + "</context_for_action>",
    "long content": lambda n: '<operations>[{"op":"update_status","content":"' + "a " * (n // 2) + '"}]</operations>',
    "long number": lambda n: "<operations>[" + "9" * n + "]</operations>",
    "citations": lambda n: f"{EMPTY}<context_for_action>" + "[tm-k-1," * (n // 8) + "</context_for_action>",
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_time_grows_with_the_length(make: Callable[[int], str]) -> None:
    """Sixteen times the text may take at most fifty times as long (linear: 16, quadratic: 256). benchmarks/bench_parse.py goes to 1 MiB."""
    small, large = (min(_seconds(make(size)) for _ in range(2)) for size in (1 << 14, 1 << 18))
    assert large < max(50 * small, 0.2), (small, large)


def _seconds(text: str) -> float:
    start = time.process_time()
    envelope = parse_envelope(text, finish_reason="stop")
    if isinstance(envelope, Envelope) and envelope.reminder:
        citations(envelope.reminder)
    return time.process_time() - start
