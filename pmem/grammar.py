"""The envelope as a grammar for constrained decoding, made for one bank: ids are limited to those that exist.

Written in the subset of EBNF that xgrammar, llguidance (vLLM's `guidance`) and llama.cpp's GBNF share; root rule `root`. Every
string it produces is read by `pmem.envelope`, and every canonical envelope (`render_envelope`) within these limits is produced:

* at most 4 operations, contents of at most 240 characters, ids of existing entries of the right class;
* a reminder of one line and at most 500 characters, without `<`, with `[` only around citations: either a text with one citation
  group at most 40 characters before its end, or up to three groups with at most 100 characters before each and after the last.
"""

import json

from pmem.envelope import OPERATIONS_CLOSE, OPERATIONS_OPEN, SILENT, SPEAK, SPEAK_CLOSE
from pmem.envelope_text import UNSEEN
from pmem.snapshot import BankState

MAX_OPERATIONS = 4
MAX_CONTENT_CHARS = 240
MAX_REMINDER_CHARS = 500
MAX_IDS_PER_CITATION = 2
_CHUNK_CHARS = 100
_TAIL_CHARS = 40
_ID_CHARS = 9
"""Room for `tm-k-9999`: the same numbers for every bank, so that a server's compiled rules serve the next bank too."""

_CONTROL = ((0x00, 0x1F), (0x7F, 0x9F))
_SURROGATES = (0xD800, 0xDFFF)
_LINE_BREAKS = (0x2028, 0x2029)


def _all_but(*excluded: tuple[int, int]) -> str:
    """A character class of everything else, as positive ranges: xgrammar knows no negated class with characters above ASCII."""
    ranges, begin = [], 0
    for low, high in (*sorted((*excluded, _SURROGATES)), (0x110000, 0x110000)):
        if low > begin:
            ranges += _pieces(begin, low - 1)
        begin = max(begin, high + 1)
    return f"[{''.join(f'{_char(low)}-{_char(high)}' for low, high in ranges)}]"


def _pieces(low: int, high: int) -> list[tuple[int, int]]:
    """A range cut where its UTF-8 grows and at whole blocks of 4,096: xgrammar 0.2 loses characters of a range across them."""
    cuts = {0x80, 0x800, 0x10000, -(-low // 0x1000) * 0x1000, (high + 1) // 0x1000 * 0x1000}
    begins = [low, *sorted(cut for cut in cuts if low < cut <= high)]
    return [(begin, following - 1) for begin, following in zip(begins, [*begins[1:], high + 1])]


def _char(code: int) -> str:
    """One end of a range. Characters above ASCII stand for themselves: llguidance's reader of GBNF trips over `\\u`."""
    return ("\\" if chr(code) in "\\[]" else "") + chr(code)


def _codes(characters: str) -> tuple[tuple[int, int], ...]:
    return tuple((ord(char), ord(char)) for char in characters)


_TAILS = "\n".join(f'tail{number} ::= "" | char tail{number - 1}' for number in range(1, MAX_CONTENT_CHARS))
"""`char{0,239}` written out: xgrammar compiles it once (seconds), not again for the next bank, and masks in microseconds; the
short form, whose body is not a bare character class, costs it up to seconds a token."""
_CONTENT = rf"""
content ::= first tail{MAX_CONTENT_CHARS - 1}
first ::= {_all_but(*UNSEEN, *_codes('"' + chr(92)))} | "\\" ["\\/]
char ::= {_all_but(*_CONTROL, *_codes('"' + chr(92)))} | "\\" ["\\/]
tail0 ::= ""
{_TAILS}
"""
_WORDS = rf"""
lead ::= {_all_but(*UNSEEN, *_codes("<["))}
word ::= {_all_but(*_CONTROL, _LINE_BREAKS, *_codes("<["))}
"""


def list_grammar(bank: BankState) -> str:
    """The first line alone: `<operations>[…]</operations>`."""
    return f"root ::= list\n{_list_rules(bank)}"


def reminder_grammar(bank: BankState) -> str:
    """What follows `<context_for_action>`: a text that cites at least one entry, when there is one, and the closing tag."""
    return f"root ::= reminder\n{_reminder_rules(bank)}"


def envelope_grammar(bank: BankState) -> str:
    """The whole answer: list, newline, then silence or a reminder."""
    decision = f"decision ::= {_literal(SILENT)} | {_literal(SPEAK)} reminder\n"
    return f'root ::= list "\\n" decision\n{decision}{_list_rules(bank)}{_reminder_rules(bank)}'


def _list_rules(bank: BankState) -> str:
    knowledge, procedural = _ids(bank, "knowledge"), _ids(bank, "procedural")
    kinds = ["status", "knowledge", "procedural", *(["delete"] if knowledge or procedural else [])]
    rules = [
        f"list ::= {_literal(OPERATIONS_OPEN + '[')} operations? {_literal(']' + OPERATIONS_CLOSE)}",
        f'operations ::= operation ("," operation){{0,{MAX_OPERATIONS - 1}}}',
        f"operation ::= {_literal('{' + _quote('op') + ':')} ({' | '.join(kinds)}) {_literal('}')}",
        f"status ::= {_save('update_status')}",
        f"knowledge ::= {_save('save_knowledge')}{_optional_id(knowledge)}",
        f"procedural ::= {_save('save_procedural')}{_optional_id(procedural)}",
    ]
    if knowledge or procedural:
        ids = _choice([_quote(name) for name in knowledge + procedural])
        rules.append(f"delete ::= {_literal(_quote('delete') + ',' + _quote('id') + ':')} {ids}")
    return "\n".join(rules) + _CONTENT


def _save(verb: str) -> str:
    before = _quote(verb) + "," + _quote("content") + ':"'
    return f"{_literal(before)} content {_literal(chr(34))}"


def _optional_id(ids: list[str]) -> str:
    if not ids:
        return ""
    return f" ({_literal(',' + _quote('id') + ':')} {_choice([_quote(name) for name in ids])})?"


def _reminder_rules(bank: BankState) -> str:
    ids = _ids(bank, "knowledge") + _ids(bank, "procedural")
    close = _literal(SPEAK_CLOSE)
    if not ids:
        return f"reminder ::= lead {_words(MAX_REMINDER_CHARS - 1)} {close}{_WORDS}"
    longest = (max(_ID_CHARS, *map(len, ids)) + 2) * MAX_IDS_PER_CITATION
    head = MAX_REMINDER_CHARS - longest - _TAIL_CHARS
    chunk = min(_CHUNK_CHARS, (MAX_REMINDER_CHARS - _CHUNK_CHARS) // 3 - longest)
    rules = [
        f"reminder ::= (single | several) {close}",
        f"single ::= lead {_words(head - 1)} citation word{{0,{_TAIL_CHARS}}}",
        f"several ::= (word{{0,{chunk}}} citation){{1,3}} word{{0,{_CHUNK_CHARS}}}",
        f'citation ::= "[" name (", " name){{0,{MAX_IDS_PER_CITATION - 1}}} "]"',
        f"name ::= {_choice(ids)}",
    ]
    return "\n".join(rules) + _WORDS


def _words(limit: int) -> str:
    """Up to `limit` words in stretches of at most 100, all but the last of them full: above 128 repetitions xgrammar 0.2 masks too
    little and then refuses, and stretches that may each end early leave it hundreds of readings (seconds a token)."""
    if limit <= _CHUNK_CHARS:
        return f"word{{0,{limit}}}"
    return f"(word{{0,{_CHUNK_CHARS - 1}}} | word{{{_CHUNK_CHARS}}} {_words(limit - _CHUNK_CHARS)})"


def _ids(bank: BankState, kind: str) -> list[str]:
    return [entry.id for entry in bank.entries if entry.kind == kind]


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _choice(texts: list[str]) -> str:
    return "(" + " | ".join(map(_literal, texts)) + ")"


def _literal(text: str) -> str:
    """`text` as a terminal of EBNF."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
