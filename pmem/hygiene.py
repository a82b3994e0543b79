"""Is a reminder fit to be shown at all? The slips of small models that reached users elsewhere, named one by one.

First-person sentences are not among them: "we need …" is often an honest fact, and a rule against it would be blunt.
"""

import re
import unicodedata
from typing import Literal

Slip = Literal["stop_token", "too_many_lines", "json_shaped", "foreign_script", "repeated_sentence"]

MAX_LINES = 3
MIN_SENTENCE_CHARS = 24

_STOP_TOKEN = re.compile(
    r"<[|｜][^<>\n]{1,40}[|｜]>"
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_of_image|end_of_image|eot|end_of_text|im_start|im_end)>"
    r"|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_CITATION = re.compile(r"\[\s*tm-[a-z]-\d+(?:\s*,\s*tm-[a-z]-\d+)*\s*\]")
_JSON_START = re.compile(r"""\s*(?:\{\s*["'}\[{]|\[\s*["'{\[\]]|"[^"\n]{0,80}"\s*:)""")
_JSON_END = re.compile(r'(?:["\]}]\s*[}\]]|"\s*[}\]])\s*$')
_OPERATION = re.compile(r'"op"\s*:')
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD = re.compile(r"\w+")
_BEYOND_LATIN = re.compile(r"[^\x00-\u024f]")

_ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "BOPOMOFO": "CJK", "KANGXI": "CJK", "HALFWIDTH": "CJK"}
_NO_SCRIPT = frozenset({
    "LATIN", "MODIFIER", "MATHEMATICAL", "SCRIPT", "BLACK-LETTER", "DOUBLE-STRUCK", "FULLWIDTH", "MICRO", "OHM", "KELVIN",
    "ANGSTROM", "FEMININE", "MASCULINE", "SUPERSCRIPT", "SUBSCRIPT", "INFORMATION", "COMBINING", "PLANCK", "ROMAN", "TURNED",
})  # fmt: skip
"""First words of the Unicode names of letters that belong to no foreign writing system: symbols, variants of Latin."""


def slip_of(reminder: str, prompt: str) -> Slip | None:
    """The first thing wrong with a reminder, or None. `prompt`: what the model was shown, for the scripts it may use."""
    if _STOP_TOKEN.search(reminder):
        return "stop_token"
    if sum(1 for line in reminder.splitlines() if line.strip()) > MAX_LINES:
        return "too_many_lines"
    if is_json_shaped(reminder):
        return "json_shaped"
    if scripts_of(reminder) - scripts_of(prompt):
        return "foreign_script"
    return "repeated_sentence" if repeats_itself(reminder) else None


def is_json_shaped(text: str) -> bool:
    """Whether the text is JSON, or an operation, rather than a sentence. A sentence that quotes a short JSON value is none."""
    bare = _CITATION.sub("", text).strip().removeprefix("Memory:").strip()
    if _OPERATION.search(bare) or _JSON_START.match(bare):
        return True
    start = min((place for mark in ('{"', "[{", '["', "{'") if (place := bare.find(mark)) >= 0), default=-1)
    return start >= 0 and bool(_JSON_END.search(bare)) and 2 * (len(bare) - start) > len(bare)


def scripts_of(text: str) -> frozenset[str]:
    """Writing systems of the letters in `text` besides Latin, named as Unicode names them (`CYRILLIC`, `CJK`, `ARABIC`)."""
    found: set[str] = set()
    for char in set(_BEYOND_LATIN.findall(text)):
        if char.isalpha():
            first = unicodedata.name(char, "UNNAMED").split()[0]
            found.add(_ONE_SCRIPT.get(first, first))
    return frozenset(found - _NO_SCRIPT)


def repeats_itself(text: str) -> bool:
    """Whether one sentence of at least 24 normalised characters stands twice."""
    seen: set[str] = set()
    for sentence in _SENTENCE_END.split(_CITATION.sub(" ", text)):
        normal = " ".join(_WORD.findall(sentence.casefold()))
        if len(normal) >= MIN_SENTENCE_CHARS and normal in seen:
            return True
        seen.add(normal)
    return False
