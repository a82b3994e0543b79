"""The words of a sentence that tell something: values, names, paths; neither its citations nor its filler."""

import re

WORD = re.compile(r"[\w./~+:@#%='-]*\w[/+%]?|[<>]=?")
CITATION = re.compile(r"\[\s*tm-[^\]]*\]")
FILLER = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "been", "before", "but", "by", "do", "does", "for", "from", "has", "have", "in", "into",
    "is", "it", "its", "must", "of", "on", "or", "please", "remember", "reminder", "should", "that", "the", "then", "this", "to", "use",
    "was", "were", "when", "will", "with", "you", "your", "memory", "note", "still", "so",
))  # fmt: skip


def telling_words(text: str) -> frozenset[str]:
    """Case-folded words of `text` without its citations and filler."""
    words = (word.casefold().strip(".:") for word in WORD.findall(CITATION.sub(" ", text)))
    return frozenset(word for word in words if word and word not in FILLER)
