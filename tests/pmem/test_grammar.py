"""Grammar and parser agree: what the grammar produces is read, what the renderer writes (within the stated limits) is produced.

Compiled by xgrammar over a vocabulary of single bytes; strings are drawn by a random walk along its token mask.
"""

import random
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pmem.envelope import SPEAK, Envelope, Operation, citations, parse_envelope, render_envelope, render_operations, resolve
from pmem.envelope_text import UNSEEN, clean_content, clean_reminder
from pmem.grammar import MAX_CONTENT_CHARS, MAX_OPERATIONS, _all_but, envelope_grammar, list_grammar, reminder_grammar
from pmem.snapshot import BankState, Entry, EntryKind

xgrammar = pytest.importorskip("xgrammar")

EOS = 256
ENDS = list(b'"<[]}')
VOCABULARY = [bytes([code]) for code in range(256)] + ["<eos>"]


def bank_of(numbers: list[tuple[int, EntryKind]]) -> BankState:
    prefix = {"knowledge": "tm-k-", "procedural": "tm-p-"}
    entries = [Entry(id=f"{prefix[kind]}{n}", kind=kind, content="x", created=0, touched=0) for n, kind in numbers]
    return BankState(entries=tuple(entries), next_number=max((n for n, _ in numbers), default=0) + 1)


BANKS = st.lists(
    st.tuples(st.integers(1, 2000), st.sampled_from(["knowledge", "procedural"])), max_size=6, unique_by=lambda pair: pair[0]
).map(bank_of)
CONTENT = st.text(min_size=1, max_size=MAX_CONTENT_CHARS).map(clean_content).filter(bool)
SAYABLE = st.text(st.characters(exclude_characters="<[\u2028\u2029", exclude_categories=["Cc", "Cs"]), max_size=60)


@pytest.fixture(scope="module")
def compiler():  # type: ignore[no-untyped-def]
    info = xgrammar.TokenizerInfo(VOCABULARY, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[EOS])
    return xgrammar.GrammarCompiler(info, max_threads=1)


def accepts(grammar, text: str) -> bool:  # type: ignore[no-untyped-def]
    matcher = xgrammar.GrammarMatcher(grammar)
    return bool(matcher.accept_string(text)) and bool(matcher.accept_token(EOS))


def walk(grammar, choice: random.Random) -> str:  # type: ignore[no-untyped-def]
    """One string of the grammar. Ends of strings are preferred now and then, so that short and full ones both occur."""
    matcher = xgrammar.GrammarMatcher(grammar)
    mask = xgrammar.allocate_token_bitmask(1, len(VOCABULARY))
    bits = mask[0].numpy().view("uint8")
    hurry = choice.choice([0.01, 0.05, 0.3])
    written = bytearray()
    while True:
        matcher.fill_next_token_bitmask(mask)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: len(VOCABULARY)])
        if allowed[0] == EOS:
            return written.decode()
        ends = np.intersect1d(allowed, ENDS) if choice.random() < hurry else ()
        ascii_only = allowed[allowed < 128] if choice.random() < 0.7 else ()
        token = int(choice.choice(ends if len(ends) else ascii_only if len(ascii_only) else allowed))
        assert matcher.accept_token(token)
        written.append(token)


@settings(max_examples=20, deadline=None)
@given(bank=BANKS, seed=st.integers(0, 2**32))
def test_every_string_of_the_grammar_is_read(compiler, bank: BankState, seed: int) -> None:  # type: ignore[no-untyped-def]
    grammar = compiler.compile_grammar(envelope_grammar(bank))
    choice = random.Random(seed)
    for _ in range(3):
        text = walk(grammar, choice)
        envelope = parse_envelope(text, finish_reason="stop")
        assert isinstance(envelope, Envelope), text
        assert_within_limits(envelope, bank, text)


def assert_within_limits(envelope: Envelope, bank: BankState, text: str) -> None:
    kinds = {entry.id: entry.kind for entry in bank.entries}
    assert len(envelope.operations) <= MAX_OPERATIONS and envelope.num_unknown == 0
    for operation in envelope.operations:
        assert operation.content is None or 1 <= len(operation.content) <= MAX_CONTENT_CHARS
        if operation.id is not None:
            assert operation.op in ("delete", f"save_{kinds[operation.id]}")
    num_deletes = sum(operation.op == "delete" for operation in envelope.operations)
    assert resolve(envelope, bank).dropped <= max(0, num_deletes - 1)
    assert (envelope.reminder is None) == text.endswith("<no_intervention/>")
    if envelope.reminder is not None and envelope.reminder_raw is not None:
        assert len(envelope.reminder_raw) <= 500 and "\n" not in envelope.reminder
        cited = citations(envelope.reminder)
        assert set(cited) <= set(kinds) and bool(cited) == bool(kinds)
        assert envelope.reminder_raw.count("[") == len(re.findall(r"\[tm-[kp]-\d+(?:, tm-[kp]-\d+)?\]", envelope.reminder_raw))


@st.composite
def canonical(draw: st.DrawFn) -> tuple[BankState, list[Operation], str | None]:
    """A bank and an answer about it, within the limits the grammar states."""
    bank = draw(BANKS)
    by_kind = {kind: [e.id for e in bank.entries if e.kind == kind] for kind in ("knowledge", "procedural")}
    ids = by_kind["knowledge"] + by_kind["procedural"]
    operations = []
    for _ in range(draw(st.integers(0, MAX_OPERATIONS))):
        verb = draw(st.sampled_from(["update_status", "save_knowledge", "save_procedural", *(["delete"] if ids else [])]))
        named = {"delete": ids, "update_status": []}.get(verb) if verb in ("delete", "update_status") else by_kind[verb[5:]]
        name = draw(st.sampled_from(named)) if named and (verb == "delete" or draw(st.booleans())) else None
        operations.append(Operation(verb, None if verb == "delete" else draw(CONTENT), name))
    return bank, operations, draw(st.none() | reminders(ids))


def reminders(ids: list[str]) -> st.SearchStrategy[str]:
    if not ids:
        return SAYABLE.map(clean_reminder).filter(bool)
    cite = st.lists(st.sampled_from(ids), min_size=1, max_size=2).map(lambda names: f"[{', '.join(names)}]")
    single = st.tuples(st.lists(SAYABLE, min_size=1, max_size=7).map(" ".join), cite, SAYABLE.map(lambda text: text[:40]))
    several = st.tuples(st.lists(st.tuples(SAYABLE, cite).map("".join), min_size=1, max_size=3).map("".join), SAYABLE)
    return st.one_of(single, several).map("".join).map(clean_reminder)


@settings(max_examples=60, deadline=None)
@given(case=canonical())
def test_every_canonical_envelope_is_in_the_grammar(compiler, case) -> None:  # type: ignore[no-untyped-def]
    bank, operations, reminder = case
    assume(reminder is None or (citations(reminder) != ()) == bool(bank.entries))
    assume(reminder is None or len(reminder) <= 500)
    assert accepts(compiler.compile_grammar(envelope_grammar(bank)), render_envelope(operations, reminder))


@settings(max_examples=15, deadline=None)
@given(case=canonical())
def test_the_parts_are_the_whole(compiler, case) -> None:  # type: ignore[no-untyped-def]
    bank, operations, reminder = case
    text = render_envelope(operations, reminder)
    whole = accepts(compiler.compile_grammar(envelope_grammar(bank)), text)
    assert accepts(compiler.compile_grammar(list_grammar(bank)), render_operations(operations))
    if reminder is not None:
        assert accepts(compiler.compile_grammar(reminder_grammar(bank)), text.split(SPEAK)[1]) == whole


BANK = bank_of([(1, "knowledge"), (2, "knowledge"), (3, "procedural")])
SAVE = Operation("save_knowledge", "x")


@pytest.mark.parametrize(
    "operations, reminder",
    [
        ([SAVE] * 5, None),
        ([Operation("update_status", "x" * 241)], None),
        ([Operation("save_knowledge", "x", "tm-k-9")], None),
        ([Operation("save_knowledge", "x", "tm-p-3")], None),
        ([Operation("delete", None, "tm-k-4")], None),
        ([], "Output must be JSON lines"),
        ([], "Output must be JSON lines [tm-k-9]"),
        ([], "Output must be [tm-k-1] and [tm-k-9]"),
        ([], "Output must be [tm-k-1, tm-s-1]"),
        ([], "two\nlines [tm-k-1]"),
        ([], "x" * 600 + "[tm-k-1]"),
    ],
    ids=str,
)
def test_what_the_grammar_refuses(  # type: ignore[no-untyped-def]
    compiler, operations: list[Operation], reminder: str | None
) -> None:
    assert not accepts(compiler.compile_grammar(envelope_grammar(BANK)), render_envelope(operations, reminder))


@pytest.mark.parametrize("text", ["x" * 240, '"' * 240, "\\" * 240, "</operations>", "日本語" * 80, "😀" * 240, "a\u200db"])
def test_contents_up_to_the_limit(compiler, text: str) -> None:  # type: ignore[no-untyped-def]
    assert accepts(compiler.compile_grammar(list_grammar(BANK)), render_operations([Operation("save_knowledge", text, "tm-k-1")]))


def test_character_classes_hold_what_they_say(compiler) -> None:  # type: ignore[no-untyped-def]
    """Around every border of the table and of UTF-8; whole planes were checked once."""
    grammar = compiler.compile_grammar(f"root ::= {_all_but(*UNSEEN)}\n")
    borders = {border for pair in UNSEEN for border in pair} | {0x80, 0x800, 0x10000} | set(range(0x1000, 0x11000, 0x1000))
    for code in sorted({border + step for border in borders for step in (-1, 0, 1)}):
        if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
            seen = not any(low <= code <= high for low, high in UNSEEN)
            assert accepts(grammar, chr(code)) == seen, hex(code)


@pytest.mark.parametrize("bank", [BankState(), BANK], ids=["empty", "three entries"])
def test_llguidance_reads_it_too(bank: BankState) -> None:
    llguidance = pytest.importorskip("llguidance")
    for grammar in (list_grammar(bank), reminder_grammar(bank), envelope_grammar(bank)):
        assert not llguidance.LLMatcher.validate_grammar(llguidance.grammar_from("grammar", grammar))


@pytest.mark.parametrize("bank", [BankState(), BANK], ids=["empty", "three entries"])
def test_it_keeps_to_what_all_three_readers_know(bank: BankState) -> None:
    """Rule names of lower-case letters and digits, no `start` (llguidance renames the root to that), no `\\x` or `\\u`."""
    for grammar in (list_grammar(bank), reminder_grammar(bank), envelope_grammar(bank)):
        rules = [line.partition(" ::= ")[::2] for line in grammar.splitlines() if line]
        assert all(re.fullmatch(r"[a-z][a-z0-9]*", name) and name != "start" and body for name, body in rules)
        assert len({name for name, _ in rules}) == len(rules) and rules[0][0] == "root"
        assert set(re.findall(r"\\(.)", re.sub(r"\\\\", "", grammar))) <= set('"n[]')
        used = set(re.findall(r"[a-z][a-z0-9]*", re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', " ", grammar)))
        assert used <= {name for name, _ in rules}
