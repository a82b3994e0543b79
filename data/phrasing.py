"""The words of the simulated world: rules as people state them, plans as the agent announces them, in two sets of templates.

Tasks of split `train` use the `train` templates; every other split uses the `other` ones, which training never sees. Right and
wrong values come from one pool, so the words of a plan never tell whether it is right: only comparing it with bank or task does.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data.splits import SplitConfig, assign_split

WordingSet = Literal["train", "other"]

_RULES: dict[WordingSet, tuple[str, ...]] = {
    "train": (
        "{verb} the {subject} {prep} {value}.",
        "The {subject} must be {done} {prep} {value}.",
        "The {subject} is to be {done} {prep} {value}.",
        "Be sure to {verb} the {subject} {prep} {value}.",
        "{noun} of the {subject}: {value}.",
        "Only {value} will do as {noun} of the {subject}.",
    ),
    "other": (
        "The {subject} has to be {done} {prep} {value}.",
        "See that the {subject} is {done} {prep} {value}.",
        "For the {subject} the {noun} is {value}.",
        "We need the {subject} {done} {prep} {value}.",
    ),
}
_PLANS: dict[WordingSet, tuple[str, ...]] = {
    "train": (
        "{verb} the {subject} {prep} {value}",
        "get the {subject} {done} {prep} {value}",
        "{verb} the {subject}, {noun} {value}",
        "do the {subject}: {verb} it {prep} {value}",
        "{verb} the {subject}, choosing {value} as {noun}",
    ),
    "other": (
        "have the {subject} {done} {prep} {value}",
        "take the {subject} and {verb} it {prep} {value}",
        "finish the {subject} with {value} as {noun}",
    ),
}
_THOUGHTS: dict[WordingSet, tuple[str, ...]] = {
    "train": (
        "Now {now}. Next: {then}.",
        "I {now}; next I {then}.",
        "Step at hand: {now}. After it: {then}.",
        "{now}, then {then}.",
    ),
    "other": (
        "First {now}; afterwards {then}.",
        "Doing: {now}. Coming up: {then}.",
        "Time to {now}. Plan: {then}.",
    ),
}
_CHANGES: dict[WordingSet, tuple[str, ...]] = {
    "train": ("Change of plan: {rule}", "One correction. {rule}", "Sorry, I was wrong before. {rule}"),
    "other": ("I have to change something: {rule}", "Please note what is new: {rule}"),
}
_ADDITIONS: dict[WordingSet, tuple[str, ...]] = {
    "train": ("One more thing: {rule}", "I forgot to say: {rule}", "Also: {rule}"),
    "other": ("Something to add: {rule}", "Please keep in mind: {rule}"),
}
_FREE: dict[WordingSet, tuple[str, ...]] = {
    "train": ("Everything else is your choice.", "What I do not mention you may decide.", "The rest is up to you."),
    "other": ("Decide all other details yourself.", "I have no wishes beyond these."),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of slot: how it is spoken of, and the pool of its values as (word in texts, code in commands)."""

    name: str
    verb: str
    done: str
    prep: str
    noun: str
    pool: tuple[tuple[str, str], ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word, _ in self.pool)

    def code(self, word: str) -> str:
        """What stands in a command for `word`."""
        return dict(self.pool)[word]


def words(text: str) -> tuple[str, ...]:
    """A pool written as one string."""
    return tuple(text.split())


def kind(name: str, spoken: str, pool: Sequence[str] | dict[str, str]) -> Kind:
    """A kind from its four words `verb done prep noun` (`spoken`) and a pool (a list when word and code are the same)."""
    verb, done, prep, noun = spoken.split()
    pairs = tuple(pool.items()) if isinstance(pool, dict) else tuple((word, word) for word in pool)
    return Kind(name, verb, done, prep, noun, pairs)


def wording_of(split_key: str, family: str) -> WordingSet:
    """Which template set a task uses: by its split under the default split weights."""
    return "train" if assign_split(split_key, family, SplitConfig()) == "train" else "other"


def rule(of: Kind, subject: str, value: str, wording: WordingSet, *key: object) -> str:
    """A sentence that states the fact."""
    return _sentence(_fill(_pick(_RULES[wording], "rule", *key), of, subject, value))


def plan(of: Kind, subject: str, value: str, wording: WordingSet, *key: object) -> str:
    """A phrase that announces an act with its value; begins with a verb, no full stop."""
    return _fill(_pick(_PLANS[wording], "plan", *key), of, subject, value)


def thought(now: str, then: str, wording: WordingSet, *key: object) -> str:
    """What the agent says before an act: what it does and what it plans next."""
    return _sentence(_pick(_THOUGHTS[wording], "thought", *key).format(now=now, then=then))


def change(text: str, wording: WordingSet, *key: object) -> str:
    """A user turn that supersedes a rule."""
    return _pick(_CHANGES[wording], "change", *key).format(rule=text)


def addition(text: str, wording: WordingSet, *key: object) -> str:
    """A user turn that adds a rule."""
    return _pick(_ADDITIONS[wording], "addition", *key).format(rule=text)


def freedom(wording: WordingSet, *key: object) -> str:
    """The sentence that leaves the rest to the agent."""
    return _pick(_FREE[wording], "freedom", *key)


def _fill(template: str, of: Kind, subject: str, value: str) -> str:
    return template.format(verb=of.verb, done=of.done, prep=of.prep, noun=of.noun, subject=subject, value=value)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _pick(options: tuple[str, ...], *key: object) -> str:
    raw = "\x1f".join(map(str, key)).encode("utf-8", "surrogateescape")
    return options[int.from_bytes(hashlib.blake2b(raw, digest_size=4).digest(), "big") % len(options)]
