"""The private status that SFT teaches: what the agent does and announces, each with the bank entry that bears on it.

The list comes before the decision, so a small model first writes down which two sentences are to be compared and then compares
them where they stand side by side; alone, the decision token would have to find and to compare in one pass. Words decide what bears
on what; whether the two agree is left to the decision.
"""

import re
from collections import Counter
from collections.abc import Sequence

from data.matching import telling_words
from pmem.envelope import Operation
from pmem.snapshot import Entry, Snapshot

MAX_PART_CHARS = 115
"""Of a clause with its entry: two of them stay under the 240 characters of the grammar."""
MAX_CLAUSE_CHARS = 70
MAX_CLAUSES = 2
NOTHING = "nothing"
STEM_CHARS = 4
"""Words are compared by their beginning, so that `sort` and `sorted` are one."""
_CLAUSES = re.compile(r"\s*[.;]\s+|,\s+then\s+", re.I)
_OPENING = re.compile(
    r"^(?:(?:now|next|first|then|afterwards|doing|coming up|plan|time to|step at hand|after it|after that)\b[:,]?\s*)?(?:i\s+)?",
    re.I,
)


def status_note(snapshot: Snapshot) -> Operation | None:
    """`update_status` of the newest thought; None when the agent stated none."""
    thought = snapshot.window[-1].thought if snapshot.window else None
    clauses = [_OPENING.sub("", clause).strip(" .;:,") for clause in _CLAUSES.split(thought or "")]
    clauses = [clause for clause in clauses if clause][-MAX_CLAUSES:]
    if not clauses:
        return None
    parts = [_part(clause, _bears_on(clause, snapshot.bank.entries)) for clause in clauses]
    return Operation("update_status", content="; ".join(parts))


def _part(clause: str, entry: Entry | None) -> str:
    return f"{clause[:MAX_CLAUSE_CHARS]} ~ {entry.content.strip().rstrip('.') if entry else NOTHING}"[:MAX_PART_CHARS]


def _bears_on(clause: str, entries: Sequence[Entry]) -> Entry | None:
    """The entry that speaks of the same thing (what stands behind `the`) and shares most stems; stems of many entries count less.

    A fact about the thing goes before a failure; a failure, or a fact where the clause names no thing, need only share enough.
    """
    order, named = _stems(clause), _named(clause)
    words = {entry.id: set(_stems(entry.content)) for entry in entries}
    common = Counter(stem for stems in words.values() for stem in stems)

    def rank(entry: Entry) -> tuple[bool, bool, float, int]:
        shared = [place for place, stem in enumerate(order) if stem in words[entry.id]]
        own = [place for place in shared if common[order[place]] == 1]
        weight, fact = sum(1 / common[order[place]] for place in shared), entry.kind == "knowledge"
        same = bool(named & words[entry.id])
        bears = same or (weight >= 1 and not (fact and named))
        return bears, fact and same, round(weight, 6), -(own or [len(order)])[0]

    best = max(entries, key=rank, default=None)
    return best if best is not None and rank(best)[0] else None


def _named(text: str) -> set[str]:
    """Stems of the thing that is spoken of: the telling ones of two words behind an article, participles aside."""
    pairs = re.findall(r"\bthe (\w+)(?: (\w+))?", text.casefold())
    words = [word for first, second in pairs for word in (first, "" if second.endswith("ed") else second)]
    return {word[:STEM_CHARS] for word in words if word in telling_words(text)}


def _stems(text: str) -> list[str]:
    """Stems of the telling words in their order, each once."""
    telling = telling_words(text)
    words = (word.casefold().strip(".:,") for word in re.findall(r"[\w./-]+", text))
    return list(dict.fromkeys(word[:STEM_CHARS] for word in words if word in telling))
