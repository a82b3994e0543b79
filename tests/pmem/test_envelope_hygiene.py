"""A reminder cannot leave the block it rides in, and honest text survives the cleaning."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmem.envelope_text import clean_content, clean_reminder

CLOSER = re.compile(r"</\s*\w|<\s*/\s*[\w:.-]+\s*>")

SURVIVES = [
    "keep a < b and x -> y, n <= 3 [tm-k-1]",
    "a < b and c > d",
    "x<y and z>w",
    "use list<int>, Dict<str, int> and Map<String, List<Foo>>",
    "Vec<u8>, Option<&str>, std::vector<std::string>, Promise<void>, foo<T extends Bar>",
    "#include <stdio.h>",
    "2 << 3 >> 1, i <- 0, a => b, <=> and <>",
    "mail <me@example.org> or see <https://example.org/a>",
    "if (a<b && b>c) return a[0];",
    "price < 5 EUR; größer > 7; 日本語 👩‍💻 ok",
    "run `make -j2 > out.log 2>&1 < /dev/null`",
    "is it \"quoted\" or 'not'?\nsecond line",
    "fn(Box<dyn Fn() -> i32>)",
]


@pytest.mark.parametrize("text", SURVIVES)
def test_honest_text_survives(text: str) -> None:
    assert clean_reminder(text) == text


STRIPPED = [
    ("a </system-reminder> b", "a b"),
    ("a </system-reminder", "a"),
    ("a < / System-Reminder > b", "a b"),
    ("a <\u200b/system-reminder> b", "a b"),
    ("a <system-reminder> b", "a b"),
    ("list</system-reminder>", "list"),
    ("a</b>", "a"),
    ('<b>bold</b> <br/> <a href="x">y</a>', "bold y"),
    ("<context_for_action>a", "a"),
    ("x<think>a", "x a"),
    ("a <!-- hidden --> b <?xml version='1'?> c <![CDATA[d]]>", "a b c"),
    ("a <|im_end|> b <|eot_id|> c </s> d <end_of_turn> e [/INST] f <<SYS>> g <｜User｜> h", "a b c d e f g h"),
    ("\x1b[31mred\x1b[0m \x1b]0;title\x07text \x9b1mbold", "red text bold"),
    ("\x1bc\x1b(Bplain", "plain"),
    ("nul\x00 bell\x07 del\x7f c1\x85x\x90", "nul bell del c1\nx"),
    ("right\u202eto\u2066left\u2069 \u200bzero\ufeff", "righttoleft zero"),
    ("hidden\U000e0041\U000e0042 tag", "hidden tag"),
    ("half \ud83d pair", "half \ufffd pair"),
    ("  many   spaces\t\tand\r\n\r\n\r\nlines\u2028here ", "many spaces and\nlines\nhere"),
    ("```\nUse tabs [tm-k-1]\n```", "Use tabs [tm-k-1]"),
    ("", ""),
    (" \u200b\n\u2060 ", ""),
    ("</a></b></c>", ""),
]


@pytest.mark.parametrize("text, expected", STRIPPED)
def test_what_could_do_harm_is_stripped(text: str, expected: str) -> None:
    assert clean_reminder(text) == expected


PIECES = [
    "\n```\n",
    "<",
    ">",
    "/",
    "</",
    "a",
    "system-reminder",
    "b>",
    " ",
    "\n",
    "\x1b",
    "[",
    "\u200b",
    "!",
    "=",
    "x",
    "|",
    "s",
    "\x9d",
]


@settings(deadline=None)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.text(max_size=60)))
def test_nothing_closes_the_block_whatever_the_text(text: str) -> None:
    clean = clean_reminder(text)
    assert not CLOSER.search(clean)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\ufeff\ud800-\udfff]", clean)
    assert clean == "\n".join(" ".join(line.split()) for line in clean.split("\n"))


def test_a_fence_does_not_part_a_tag() -> None:
    assert not CLOSER.search(clean_reminder("a <\n```\n/system-reminder> b"))


def test_tags_within_tags_do_not_build_a_new_one() -> None:
    nested = "</sys<x>" * 50 + "tem-reminder>" * 50
    assert not CLOSER.search(clean_reminder(nested))
    assert "</system-reminder>" not in clean_reminder("</sys</x>tem-reminder>")


@settings(deadline=None)
@given(st.text(max_size=80))
def test_content_is_clean_once_and_for_all(text: str) -> None:
    clean = clean_content(text)
    assert clean_content(clean) == clean
    assert clean == " ".join(clean.split())
    clean.encode()
