"""Reading a sentence against a fact: does it state it? Simulated agent, bank writer and labeller share this one reader.

A sentence states a fact when it holds every word of the fact's subject and the right value, not negated, and asserts no other
value of the same pool. Ids and everything else in the sentence are ignored; gibberish with the right id states nothing.
"""

import re
from functools import lru_cache

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_CITATION = re.compile(r"\[tm-[^\]]*\]")
_NOT_BEFORE = re.compile(
    r"\b(?:not|no|never|without|instead of|rather than|no longer|isn't|failed with|fails with)\s+(?:\w+\s+){0,2}$", re.I
)
_NOT_AFTER = re.compile(r"^\W*(?:\w+\s+){0,2}?(?:failed|fails|fail|is broken|is wrong|is refused|was refused|refused)\b", re.I)


def sentences(text: str) -> list[str]:
    """The sentences of a text without its citations."""
    return [part for part in _SENTENCE.split(_CITATION.sub(" ", text)) if part.strip(" .!?;")]


def states(text: str, subject: str, value: str, pool: tuple[str, ...]) -> bool:
    """Whether some sentence of `text` states that `subject` has `value`."""
    return any(asserted(part, subject, pool) == {value} for part in sentences(text))


def asserted(sentence: str, subject: str, pool: tuple[str, ...]) -> set[str]:
    """The values of `pool` that one sentence asserts of `subject`; empty when it does not speak of it."""
    if not all(_word(word).search(sentence) for word in subject.split()):
        return set()
    return {value for value in pool if any(_holds(sentence, match) for match in _word(value).finditer(sentence))}


def _holds(sentence: str, match: re.Match[str]) -> bool:
    return not _NOT_BEFORE.search(sentence[: match.start()]) and not _NOT_AFTER.search(sentence[match.end() :])


@lru_cache(maxsize=4096)
def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.I)
