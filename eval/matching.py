"""Which measured candidate does a spoken reminder match? By what it cites and by what it claims, never by the number alone.

Compared are *telling words*: paths, values and names, without citations and filler. A match holds every telling word of the
candidate, or, with the same citations, at least half of them and nothing that the candidate does not say: a right number
under a wrong value matches nothing. Negations must agree. What matches nothing is counted (`unmatched share`) and is a miss.
"""

import re
from collections.abc import Sequence

from eval.truth import Candidate

WORD = re.compile(r"[\w./~+:@#%=-]*\w")
CITATION = re.compile(r"\[\s*tm-[^\]]*\]")
NEGATIONS = frozenset({"not", "never", "no", "without", "isn't", "don't", "instead"})
FILLER_TEXT = """
a an and are as at be been before but by can do does done for from has have in into is it its make memory must need needs
note of on only or please put reminder remember see set should still sure that the then this to use used using was we were
when will with you your
"""
FILLER = frozenset(FILLER_TEXT.split())
CLAIM_FLOOR = 0.5


def match_candidate(text: str | None, cited_ids: Sequence[str], candidates: Sequence[Candidate]) -> str | None:
    """The id of the candidate that `text` says, or None."""
    if not text:
        return None
    said, cited = telling_words(text), set(cited_ids)
    fitting = [candidate for candidate in candidates if _says(said, cited, candidate)]
    fitting.sort(key=lambda candidate: (cited != set(candidate.cited_ids), -len(telling_words(candidate.text))))
    return fitting[0].candidate_id if fitting else None


def telling_words(text: str) -> frozenset[str]:
    """Case-folded words of `text` without its citations and filler."""
    words = (word.casefold().strip(".:") for word in WORD.findall(CITATION.sub(" ", text)))
    return frozenset(word for word in words if word and word not in FILLER)


def _says(said: frozenset[str], cited: set[str], candidate: Candidate) -> bool:
    wanted = telling_words(candidate.text)
    if not wanted or (said & NEGATIONS) != (wanted & NEGATIONS):
        return False
    if wanted <= said:
        return True
    same = bool(cited) and cited == set(candidate.cited_ids)
    return same and said <= wanted and len(said) >= CLAIM_FLOOR * len(wanted)
