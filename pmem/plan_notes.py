"""The plan note: a private status that sets what the agent does and announces beside the bank entries that bear on it.

    {"op":"update_status","content":"convert the shops to tons ~ Only grams will do as unit of the shops"}

It ends the list, so that the decision compares what stands side by side: finding a fact in a bank and comparing it with a plan in one
token is what a small model does not learn, and writing the note itself it names the right entry for half of the clauses only
(docs/results.md). So words decide what bears on what, here; whether the two agree is left to the model. A model is asked with the
notes that it was trained with: rows, decisions and policies state `NOTES_VERSION`.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from pmem.envelope import Operation
from pmem.errors import UserError
from pmem.prompt import golden_snapshot
from pmem.snapshot import Entry, Snapshot
from pmem.words import telling_words

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


def plan_note(snapshot: Snapshot) -> Operation | None:
    """`update_status` of the newest thought; None when the agent stated none."""
    return _note(clauses_with_entries(snapshot))


def notes_apart(snapshot: Snapshot) -> list[tuple[Operation, Entry]]:
    """Every entry that the plan note names, beside the note of its clause alone; an entry of two clauses once, with the later one."""
    found = {entry.id: (_note([(clause, entry)]), entry) for clause, entry in clauses_with_entries(snapshot) if entry is not None}
    return [(note, entry) for note, entry in found.values() if note is not None]


def _note(clauses: Sequence[tuple[str, Entry | None]]) -> Operation | None:
    parts = [_part(clause, entry) for clause, entry in clauses]
    return Operation("update_status", content="; ".join(parts)) if parts else None


def clauses_with_entries(snapshot: Snapshot) -> list[tuple[str, Entry | None]]:
    """The last clauses of the newest thought, each with the entry that bears on it."""
    thought = snapshot.window[-1].thought if snapshot.window else None
    clauses = [_OPENING.sub("", clause).strip(" .;:,") for clause in _CLAUSES.split(thought or "")]
    clauses = [clause for clause in clauses if clause][-MAX_CLAUSES:]
    return [(clause, _bears_on(clause, snapshot.bank.entries)) for clause in clauses]


def _part(clause: str, entry: Entry | None) -> str:
    return f"{clause[:MAX_CLAUSE_CHARS]} ~ {entry.content.strip().rstrip('.') if entry else NOTHING}"[:MAX_PART_CHARS]


def _bears_on(clause: str, entries: Sequence[Entry]) -> Entry | None:
    """The entry that speaks of the same thing (what stands behind an article) and shares most stems; stems of many entries count less.

    A fact about the thing goes before a failure; a failure, or a fact where the clause names no thing, need only share enough.
    """
    order, things = _stems(clause), _things(clause)
    words = {entry.id: set(_stems(entry.content)) for entry in entries}
    common = Counter(stem for stems in words.values() for stem in stems)

    def rank(entry: Entry) -> tuple[bool, bool, float, int]:
        shared = [place for place, stem in enumerate(order) if stem in words[entry.id]]
        own = [place for place in shared if common[order[place]] == 1]
        weight, fact = sum(1 / common[order[place]] for place in shared), entry.kind == "knowledge"
        same = _same_thing(things, _things(entry.content), words[entry.id])
        bears = same or (weight >= 1 and not (fact and things))
        return bears, fact and same, round(weight, 6), -(own or [len(order)])[0]

    best = max(entries, key=rank, default=None)
    return best if best is not None and rank(best)[0] else None


def _same_thing(things: Sequence[frozenset[str]], others: Sequence[frozenset[str]], words: set[str]) -> bool:
    """A thing of the clause and one of the entry are one when neither says more than the other: `evans refund` is a `refund`,
    not the `adams refund`. An entry without a thing need only hold a word of one."""
    if not others:
        return any(thing & words for thing in things)
    return any(thing <= other or other <= thing for thing in things for other in others)


def _things(text: str) -> list[frozenset[str]]:
    """What stands behind each article, one or two words, as stems: the telling ones, participles aside."""
    telling = telling_words(text)
    pairs = re.findall(r"\b(?:the|an?) (\w+)(?: (\w+))?", text.casefold())
    named = ([first, "" if second.endswith("ed") else second] for first, second in pairs)
    things = (frozenset(word[:STEM_CHARS] for word in words if word in telling) for words in named)
    return [thing for thing in things if thing]


def _stems(text: str) -> list[str]:
    """Stems of the telling words in their order, each once."""
    telling = telling_words(text)
    words = (word.casefold().strip(".:,") for word in re.findall(r"[\w./-]+", text))
    return list(dict.fromkeys(word[:STEM_CHARS] for word in words if word in telling))


NOTES_VERSION = hashlib.sha256(repr(plan_note(golden_snapshot())).encode("utf-8")).hexdigest()[:16]


def with_notes(stated: object, where: str) -> bool:
    """Whether what `where` names was made with plan notes. Raises UserError when those were other notes than these."""
    if stated not in (None, NOTES_VERSION):
        raise UserError(f"{where} was made with plan notes of version {stated}, this is {NOTES_VERSION}; make it again")
    return stated is not None
