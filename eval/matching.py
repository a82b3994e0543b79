"""Which measured candidate does a spoken reminder match? By what it cites and by what it claims, never by the number alone.

`claim` = share of the candidate's telling words (paths, values, names) that stand in the spoken text. Same citations and a claim of at
least one half match; other or no citations need nearly all of one candidate's words, and more than of any other.
"""

import re
from collections.abc import Sequence

from eval.truth import Candidate

WORD = re.compile(r"[\w./~+:@#%=-]*\w")
CITATION = re.compile(r"\[\s*tm-[^\]]*\]")
FILLER = frozenset(
    "a an and are as at be before but by do does for from has have in into is it its must not of on or remember reminder should "
    "that the then this to use was were when will with you your memory note".split()
)
CLAIM_SAME_CITATION = 0.5
CLAIM_ALONE = 0.85


def match_candidate(text: str | None, cited_ids: Sequence[str], candidates: Sequence[Candidate]) -> str | None:
    """The id of the candidate that `text` says, or None."""
    if not text:
        return None
    said = telling_words(text)
    scored = sorted(((_claim(said, candidate), candidate) for candidate in candidates), key=lambda pair: -pair[0])
    cited = set(cited_ids)
    for claim, candidate in scored:
        if cited and cited == set(candidate.cited_ids) and claim >= CLAIM_SAME_CITATION:
            return candidate.candidate_id
    if scored and scored[0][0] >= CLAIM_ALONE and (len(scored) == 1 or scored[1][0] < scored[0][0]):
        return scored[0][1].candidate_id
    return None


def telling_words(text: str) -> frozenset[str]:
    """Case-folded words of `text` without its citations and filler."""
    words = (word.casefold().strip(".:") for word in WORD.findall(CITATION.sub(" ", text)))
    return frozenset(word for word in words if word and word not in FILLER)


def _claim(said: frozenset[str], candidate: Candidate) -> float:
    wanted = telling_words(candidate.text)
    return len(said & wanted) / len(wanted) if wanted else 0.0
