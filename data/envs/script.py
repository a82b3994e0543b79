"""From what a family offers to one seeded task: which deliverables a rule binds, what is found on the way, in which order.

Bound and free deliverables use the same kinds, subjects and pools, so neither the words nor the form of an act tell whether a
rule stands behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from data import phrasing
from data.envs.base import Act, Fact, Mechanism, Probe, Stage, Task, Tool, draw
from data.phrasing import Kind, WordingSet, wording_of, words

Item = TypeVar("Item")
ACTS_PER_RULE = 6
ACTS_PER_DISCOVERY = 8
FOUND: tuple[Mechanism, ...] = ("grounding", "failure_loop", "diagnosis", "progress")
"""Mechanisms whose facts are found on the way; requirements come from the user."""
PROB_CHANGE = 0.6
"""Chance that the user's turn in mid-dialogue supersedes a rule rather than adds one."""


@dataclass(frozen=True, slots=True)
class Deliverable:
    """An act with a slot, and how its result is checked when a fact binds it (`probe` gets the right value's code)."""

    subject: str
    kind: Kind
    command: str
    probe: Callable[[str], Probe]
    reads: tuple[str, ...] | None = None
    tool: str = "bash"


@dataclass(frozen=True, slots=True)
class Discovery:
    """A fact that acts show in their real output, and the later acts that depend on it.

    `stages[0]` is shown by `reveal` (or stands in the task when that is None), `stages[k]` by the k-th use. In a task where its
    mechanism is not bound, nothing is found and any value will do in the same acts.
    """

    mechanism: Mechanism
    subject: str
    kind: Kind
    reveal: Act | None
    stages: tuple[tuple[str, str], ...]
    """(value, the text that shows it)."""
    uses: tuple[Deliverable, ...]
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a family gives for one seed."""

    title: str
    files: Mapping[str, str]
    deliverables: Sequence[Deliverable]
    discoveries: Sequence[Discovery]
    first: Act
    look: Act
    review: Act
    finish: Act
    finish_probe: Probe
    setup: str = ""
    volatile: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    executable: tuple[str, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)


OfferOf = Callable[[int, frozenset[Mechanism], int], Offer]
"""(seed, mechanisms that are bound, at least so many deliverables) -> what a family offers."""
_WHICH = words("early late main spare upper lower")


def subjects(nouns: Sequence[str], size: int) -> list[str]:
    """Subjects for a script of `size` acts, none part of another: the nouns, or nouns with an adjective when they are too few."""
    if size <= len(nouns) + 4:
        return list(nouns)
    return [f"{which} {noun}" for which in _WHICH for noun in nouns][: max(size, 2 * len(nouns))]


def slug(subject: str) -> str:
    """A subject as part of a file or branch name."""
    return subject.replace(" ", "-")


@dataclass(slots=True)
class _Composer:
    """A task under construction. `body` holds (position in [0, 1), act); the acts are laid out by position."""

    family: str
    seed: int
    wording: WordingSet
    facts: dict[str, Fact] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    body: list[tuple[float, Act]] = field(default_factory=list)
    turn: str = ""
    turn_subject: str = ""

    def draw(self, *key: object) -> float:
        return draw(self.family, self.seed, *key)

    def shuffled(self, items: Sequence[Item], *key: object) -> list[Item]:
        return [items[index] for index in sorted(range(len(items)), key=lambda index: self.draw("shuffle", *key, index))]

    def other_value(self, kind: Kind, taken: Sequence[str], *key: object) -> str:
        """A value of the pool, other than `taken` while that leaves any."""
        free = [word for word in kind.words if word not in taken] or list(kind.words)
        return free[int(self.draw("value", *key) * len(free))]

    def rule(self, kind: Kind, subject: str, value: str, *key: object) -> str:
        return phrasing.rule(kind, subject, value, self.wording, self.family, self.seed, subject, *key)

    def add_discovery(self, number: int, found: Discovery) -> None:
        """Its fact, the act that shows it, and its uses in the later two thirds."""
        key = f"d{number}-{found.kind.name}"
        names = [f"{key}-use{index}" for index in range(len(found.uses))]
        shown_by = [found.reveal.name if found.reveal else "", *names]
        stages = tuple(
            Stage(value, text, "result" if shown_by[index] else "task", shown_by[index])
            for index, (value, text) in enumerate(found.stages)
        )
        self.facts[key] = Fact(key, found.mechanism, found.subject, found.kind, stages, found.rivals)
        if found.reveal:
            self.body.append((0.25 * self.draw("reveal", key), found.reveal))
        else:
            self.sentences.append(stages[0].text)
        for index, use in enumerate(found.uses):
            stage = min(index, len(stages) - 1)
            position = 0.35 + 0.65 * (index + 0.2 + 0.6 * self.draw("use", key, index)) / len(found.uses)
            self.body.append((position, _act(names[index], use, key, awaits=shown_by[stage])))
            self.probes.append(use.probe(found.kind.code(stages[stage].value)))

    def add_rule(self, item: Deliverable, *, role: str) -> None:
        """Bind a deliverable: `task` (rule in the first message), `change` (the user supersedes it), `addition` (the user adds it)."""
        taken = [fact.stages[-1].value for fact in self.facts.values() if fact.kind == item.kind]
        first = self.other_value(item.kind, taken, item.subject)
        stages = [Stage(first, self.rule(item.kind, item.subject, first))]
        if role == "change":
            second = self.other_value(item.kind, [*taken, first], item.subject, "change")
            stages.append(Stage(second, self.rule(item.kind, item.subject, second, "change"), "user"))
            self.turn = phrasing.change(stages[1].text, self.wording, self.family, self.seed)
        elif role == "addition":
            stages = [replace(stages[0], source="user")]
            self.turn = phrasing.addition(stages[0].text, self.wording, self.family, self.seed)
        if role != "task":
            self.turn_subject = item.subject
        if stages[0].source == "task":
            self.sentences.append(stages[0].text)
        key = f"r-{slug(item.subject)}"
        self.facts[key] = Fact(key, "requirement", item.subject, item.kind, tuple(stages))
        low = 0.4 if role != "task" else 0.0
        self.body.append((low + (1 - low) * self.draw("position", item.subject), _act(key, item, key)))
        self.probes.append(item.probe(item.kind.code(stages[-1].value)))

    def add_free(self, item: Deliverable) -> None:
        name = f"f-{slug(item.subject)}"
        self.body.append((self.draw("position", item.subject), _act(name, item, None)))


def compose(family: str, seed: int, num_acts: int, offer_of: OfferOf, *, heldout: bool = False) -> Task:
    """One task of about `num_acts` acts: a third of them bound by facts, the others of the same form and free."""
    task_id = f"{family}-{seed:06d}"
    made = _Composer(family, seed, "other" if heldout else wording_of(task_id, family))
    bound = frozenset(made.shuffled(FOUND, "mechanisms")[: max(1, num_acts // ACTS_PER_DISCOVERY)])
    offer = offer_of(seed, bound, num_acts)
    for number, found in enumerate(offer.discoveries):
        if found.mechanism in bound:
            made.add_discovery(number, found)
    num_rules = max(2, num_acts // ACTS_PER_RULE)
    ordinary = made.shuffled(offer.deliverables, "deliverables")
    roles = ["change" if made.draw("turn") < PROB_CHANGE else "addition", *["task"] * (num_rules - 1)]
    for item, role in zip(ordinary, roles):
        made.add_rule(item, role=role)
    unbound = [
        use for found in offer.discoveries if found.mechanism not in bound for use in {u.subject: u for u in found.uses}.values()
    ]
    for item in made.shuffled([*ordinary[num_rules:], *unbound], "free")[: max(2, num_acts - 3 - len(made.body))]:
        made.add_free(item)
    return _finished(made, task_id, offer)


def _finished(made: _Composer, task_id: str, offer: Offer) -> Task:
    body = [act for _, act in sorted(made.body, key=lambda pair: (pair[0], pair[1].name))]
    turn_after = _place_turn(body, made.turn_subject, 0.3 * made.draw("turn position"))
    body.insert(len(body) - int(3 * made.draw("review")), offer.review)
    facts = {key: _with_turn(_with_rivals(fact, made.facts), turn_after) for key, fact in made.facts.items()}
    rules = " ".join([*made.shuffled(made.sentences, "sentences"), phrasing.freedom(made.wording, made.family, made.seed)])
    return Task(
        task_id=task_id,
        family=made.family,
        seed=made.seed,
        wording=made.wording,
        text=f"{offer.title} {rules}",
        files=offer.files,
        setup=offer.setup,
        facts=facts,
        acts=(offer.first, *body, offer.finish),
        turns={turn_after: made.turn},
        look=offer.look,
        probes=(*made.probes, offer.finish_probe),
        volatile=offer.volatile,
        lasting=offer.lasting,
        executable=offer.executable,
        tools=offer.tools,
    )


def _place_turn(body: list[Act], subject: str, fraction: float) -> str:
    """Name of the act after which the user speaks; the act it concerns is moved so that it comes at least three acts later."""
    at = next(index for index, act in enumerate(body) if act.subject == subject)
    act = body.pop(at)
    turn = min(int(fraction * len(body)), len(body) - 2)
    body.insert(max(at, min(turn + 3, len(body))), act)
    return body[turn].name


def _act(name: str, item: Deliverable, fact: str | None, *, awaits: str = "") -> Act:
    return Act(
        name,
        item.command,
        subject=item.subject,
        kind=item.kind,
        fact=fact,
        awaits=awaits,
        reads=item.reads,
        tool=item.tool,
        vague=f"go on with the {item.subject}",
    )


def _with_turn(fact: Fact, act: str) -> Fact:
    return replace(fact, stages=tuple(replace(stage, act=act) if stage.source == "user" else stage for stage in fact.stages))


def _with_rivals(fact: Fact, facts: Mapping[str, Fact]) -> Fact:
    """Values of other facts of the same kind are likely confusions."""
    others = [
        stage.value for other in facts.values() if other.key != fact.key and other.kind == fact.kind for stage in other.stages
    ]
    return replace(fact, rivals=tuple(dict.fromkeys([*fact.rivals, *others])))
