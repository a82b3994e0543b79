"""Train snapshots with their names exchanged: the same situation told in other words, so that what is learned is the comparison.

A name is a word of few tasks that has no other form; each is exchanged for another name, or for a made-up word, wherever it stands in
task, bank, window, operations and reminder. What agreed before still agrees and what differed still differs, so every label holds;
a policy that knows the usual values by heart gains nothing. Drawn by hash of the snapshot: a build is the same every time.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pmem.envelope import Operation
from pmem.plan_notes import STEM_CHARS
from pmem.snapshot import Snapshot, Step
from pmem.words import FILLER

MAX_TASK_SHARE = 0.2
"""A word of more tasks than this belongs to the language of all of them and stays."""
MADE_UP_SHARE = 0.5
MADE_UP_CHARS = (4, 5, 6)
Text = TypeVar("Text", str, str | None)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}")
_HASH = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_CONSONANTS, _VOWELS = "bcdfghklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class Names:
    """The words that may be exchanged."""

    words: tuple[str, ...]

    def exchanged(
        self, snapshot: Snapshot, operations: Sequence[Operation], reminder: str | None
    ) -> tuple[Snapshot, tuple[Operation, ...], str | None]:
        """The same situation, its operations and its reminder in other names."""
        present = {word for text in (*_texts(snapshot), reminder or "") for word in _WORD.findall(text)}
        names = self._draw(present, random.Random(f"names:{snapshot.snapshot_id}"))
        if not names:
            return snapshot, tuple(operations), reminder
        told = [replace(one, content=_exchange(one.content, names)) for one in operations]
        return _renamed(snapshot, names), tuple(told), _exchange(reminder, names)

    def _draw(self, present: set[str], generator: random.Random) -> dict[str, str]:
        """Another name for each name that is present; no two words that looked different look alike afterwards."""
        known, found = set(self.words), {}
        taken = {word[:STEM_CHARS].casefold() for word in present}
        for word in sorted(present & known):
            new = generator.choice(self.words) if generator.random() >= MADE_UP_SHARE else made_up(generator)
            while new[:STEM_CHARS].casefold() in taken:
                new = made_up(generator)
            taken.add(new[:STEM_CHARS].casefold())
            found[word] = new
        return found


def names_of(snapshots: Iterable[tuple[str, Snapshot]]) -> Names:
    """The names in snapshots of some tasks, given as (task, snapshot)."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for task, snapshot in snapshots:
        tasks[task].update(word for text in _texts(snapshot) for word in _WORD.findall(text))
    counts = Counter(word for words in tasks.values() for word in words)
    forms = Counter(word[:STEM_CHARS].casefold() for word in counts)
    return Names(
        tuple(sorted(word for word, count in counts.items() if count <= MAX_TASK_SHARE * len(tasks) and _is_name(word, forms)))
    )


def made_up(generator: random.Random) -> str:
    """A word that can be spoken and means nothing."""
    length = generator.choice(MADE_UP_CHARS)
    return "".join(generator.choice(_VOWELS if place % 2 else _CONSONANTS) for place in range(length))


def _is_name(word: str, forms: Mapping[str, int]) -> bool:
    """Whether the word has no other form (`sort` has `sorted`), or is a symbol such as `desk2` or `KeyError`, and is no hash."""
    if word.casefold() in FILLER or _HASH.fullmatch(word):
        return False
    return forms[word[:STEM_CHARS].casefold()] == 1 or bool(re.search(r"[\d_]|[a-z][A-Z]", word))


def _texts(snapshot: Snapshot) -> list[str]:
    """Every text of a snapshot that a policy is shown."""
    steps = [text for step in snapshot.window for text in (step.call, step.digest, step.thought)]
    bank = [snapshot.bank.status, *(entry.content for entry in snapshot.bank.entries)]
    return [text for text in (*snapshot.task_messages, *steps, *bank, snapshot.last_reminder) if text]


def _renamed(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    entries = tuple(entry.model_copy(update={"content": _exchange(entry.content, names)}) for entry in snapshot.bank.entries)
    bank = snapshot.bank.model_copy(update={"status": _exchange(snapshot.bank.status, names), "entries": entries})
    return snapshot.model_copy(
        update={
            "task_messages": tuple(_exchange(text, names) for text in snapshot.task_messages),
            "window": tuple(_renamed_step(step, names) for step in snapshot.window),
            "bank": bank,
            "last_reminder": _exchange(snapshot.last_reminder, names),
        }
    )


def _renamed_step(step: Step, names: Mapping[str, str]) -> Step:
    return step.model_copy(update={key: _exchange(getattr(step, key), names) for key in ("call", "digest", "thought")})


def _exchange(text: Text, names: Mapping[str, str]) -> Text:
    return _WORD.sub(lambda found: names.get(found[0], found[0]), text) if text else text
