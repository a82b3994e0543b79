"""Which measured candidate does a spoken reminder say? By its claim, then by what it cites; evaluation and rewards share it.

A reminder says a candidate when it holds every telling word of the candidate's text (values, names, paths) and little else: one
exchanged value is another claim, so a share of words would pay for wrong sentences. A reminder that says none gives None.
"""

from collections.abc import Sequence
from typing import Protocol

from pmem.words import telling_words

NEGATIONS = frozenset(("not", "no", "never", "without", "cannot", "don't", "won't", "isn't", "avoid", "instead", "except"))
MAX_EXTRA_WORDS = 3
"""Telling words beyond the candidate's own; more of them may claim something else as well."""


class Sayable(Protocol):
    """A measured candidate."""

    @property
    def candidate_id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def cited_ids(self) -> Sequence[str]: ...


def match_candidate(text: str | None, cited_ids: Sequence[str], candidates: Sequence[Sayable]) -> str | None:
    """The id of the candidate that `text` says, or None. Among equal claims the one with the same citations, then the closest."""
    if not text:
        return None
    said, cited = telling_words(text), set(cited_ids)
    found = []
    for candidate in candidates:
        wanted = telling_words(candidate.text)
        extra = said - wanted
        if wanted and wanted <= said and len(extra) <= MAX_EXTRA_WORDS and not extra & NEGATIONS:
            found.append((cited != set(candidate.cited_ids), len(extra), candidate.candidate_id))
    return min(found)[2] if found else None
