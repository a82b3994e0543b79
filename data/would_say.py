"""What a silent row would have said: the one bank entry that the agent's newest plan is about, whether or not the plan keeps to it.

Deciding when to speak needs two skills: finding the entry that bears on the plan, and comparing the two. Silent rows teach the
second one bit at a time and the first not at all. With this sentence behind their decision (`train.rows`) they teach both; it
never changes what the row decides.
"""

import re
from collections.abc import Sequence

from pmem.bank import cited_sentence
from pmem.snapshot import Entry, Snapshot
from pmem.words import telling_words

_PLAN_BEGINS = re.compile(r"(?:[.;:,]\s+|\b)(?:next|then|after it|after that|afterwards|coming up|plan)\b[:,]?", re.I)
MIN_SHARED_WORDS = 2


def would_say(snapshot: Snapshot) -> str | None:
    """The cited sentence of the entry that shares most words with the newest plan, else with the whole newest thought.

    None without a thought or a clear winner.
    """
    thought = snapshot.window[-1].thought if snapshot.window else None
    if not thought:
        return None
    entry = _closest(snapshot.bank.entries, newest_plan(thought)) or _closest(snapshot.bank.entries, thought)
    return None if entry is None else cited_sentence(entry)


def newest_plan(thought: str) -> str:
    """What a stated thought announces last: the part after its last "next", "then" or the like, or all of it."""
    begins = [match.end() for match in _PLAN_BEGINS.finditer(thought)]
    return thought[begins[-1] :] if begins else thought


def _closest(entries: Sequence[Entry], text: str) -> Entry | None:
    said = telling_words(text)
    ranked = sorted(((len(telling_words(entry.content) & said), entry) for entry in entries), key=lambda one: -one[0])
    if not ranked or ranked[0][0] < MIN_SHARED_WORDS or (len(ranked) > 1 and ranked[1][0] == ranked[0][0]):
        return None
    return ranked[0][1]
