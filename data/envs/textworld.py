"""Family `textworld` (optional: needs the package textworld): keeping house in a text world, by the commands of its game.

World and effects are TextWorld's (data/envs/textworld_world.py); here stand the things put into it and the facts that matter late.
The tool `game` takes one or several commands; the state of the game is `db.json`; the check asks the engine whether quests are won.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from data.envs.base import SLOT, Act, Mechanism, Probe, choose, draw
from data.envs.finished import Finished
from data.envs.script import Deliverable, Discovery, Offer, subjects
from data.envs.tools import queue_stages
from data.phrasing import Kind, kind, words
from pmem.canonical import canonical_json
from pmem.errors import UserError

if TYPE_CHECKING:  # the engine is only there when the extra is installed
    from data.envs.textworld_world import World

NAME = "textworld"
TOOL = "game"
DB = ("db.json",)
THINGS = words("apple candle fiddle lantern mirror needle pepper quill ribbon saddle thimble violin whistle bottle kettle ladle")
PEOPLE = words("adams baker clark davis evans foley")
WOODS = words("ash beech cedar elm larch maple")
FAR_ROOMS = words("attic loft shed porch")
ROOMS = ("hall", "yard", "corridor", "kitchen", "study", "cellar", "parlor", *FAR_ROOMS)

PACK = kind("pack", "pack packed in container", ("crate", "basket", "chest", "trunk"))
STAND = kind("stand", "stand stood on furniture", ("table", "bench", "counter", "rack"))
STORE = kind("store", "store stored in vessel", ("barrel", "sack", "jar", "vat"))
LAY = kind("lay", "lay laid on piece", ("sofa", "mantel", "stool", "sill"))
FETCH = kind("fetch", "fetch fetched from place", FAR_ROOMS)
KEY = kind("key", "unlock unlocked with key", ("brass", "iron", "silver", "copper"))
SHUT = kind("shut", "shut shut in locker", PEOPLE)
NEXT = kind("next", "claim claimed as parcel", WOODS)
TOPICS = (("kitchen", PACK), ("study", STAND), ("cellar", STORE), ("parlor", LAY))
"""Where things lie, and which of the places there they may belong in."""
FURNITURE = (STAND, LAY)


def require() -> None:
    """Raises UserError when the package is not installed."""
    if find_spec("textworld") is None:
        raise UserError('family textworld needs the package textworld: pip install "pmem[textworld]"')


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use. Raises UserError when the package is not installed."""
    require()
    house = _house(seed, bound, size)
    return Offer(
        title="Put the house in order by the commands of the game.",
        files={"db.json": canonical_json({"gone": [], "new": []})},
        tools={TOOL: house.world.play},
        deliverables=[house.placed(place, name) for place, name in enumerate(house.things)],
        discoveries=house.discoveries(),
        first=_act("first", "look", goal="look around the house"),
        look=_act("look", "look", goal="look around again"),
        review=_act("review", "go to hall. look", goal="look over the hall"),
        finish=_act("finish", "go to hall. close toolbox", goal="close the toolbox"),
        finish_probe=house.probe("toolbox shut", ["closed"], "toolbox"),
    )


class House:
    """The world of one seed and what there is to do in it."""

    def __init__(self, seed: int, bound: frozenset[Mechanism], size: int) -> None:
        self.bound = bound
        self.things = subjects(THINGS, size)
        self.far, self.foul = choose(FAR_ROOMS, NAME, seed, "far"), choose(PEOPLE, NAME, seed, "foul")
        self.good = choose(KEY.words, NAME, seed, "key")
        self.bad = choose([word for word in KEY.words if word != self.good], NAME, seed, "bad key")
        self.order = sorted(WOODS, key=lambda name: draw(NAME, seed, "order", name))[:3]
        self.gates: dict[str, str] = {}
        """The room where each gate is."""
        self.world = self._furnished(seed)

    def _furnished(self, seed: int) -> "World":
        """Where a mechanism is not bound, any value will do."""
        from data.envs.textworld_world import World

        world = World(ROOMS, seed)
        for room, of in TOPICS:
            for word in of.words:
                world.add("s" if of in FURNITURE else "c", word, room, state="" if of in FURNITURE else "open")
        for place, name in enumerate(self.things):
            world.add("o", name, TOPICS[place % len(TOPICS)][0])
        world.add("s", "workbench", "hall")
        world.add("c", "toolbox", "hall", state="open")
        for room in [self.far] if "grounding" in self.bound else FAR_ROOMS:
            world.add("o", "old hammer", room)
            world.add("o", "new hammer", room)
        for word in KEY.words:
            world.add("k", f"{word} key")
        fitting = [self.good] if "failure_loop" in self.bound else KEY.words
        for which in ("side", "old", "new"):
            self.gates[f"{which} gate"] = world.add_vault(f"{which} vault", f"{which} gate", [f"{word} key" for word in fitting])
        self._add_lockers_and_parcels(world)
        return world.begin()

    def _add_lockers_and_parcels(self, world: "World") -> None:
        for name in PEOPLE:
            world.add("c", f"{name} locker", "corridor", state="open")
        if "diagnosis" in self.bound:
            world.add("o", "spoiled fish", f"{self.foul} locker")
        labels = dict(zip(self.order, self.order[1:])) if "progress" in self.bound else {}
        for name in WOODS:
            label = f"parcel to take next: {labels[name]}." if name in labels else "There is no label on it."
            world.add("o", f"{name} parcel", "yard", desc=label)

    def placed(self, place: int, name: str) -> Deliverable:
        """A thing to put into one of the places of its room."""
        room, of = TOPICS[place % len(TOPICS)]
        relation, verb = ("on", "put {} on") if of in FURNITURE else ("in", "put {} in")
        command = f"go to {room}. take {name}. {verb.format(name)} {SLOT}"
        return self._deliverable(name, of, command, [relation], name, SLOT)

    def probe(self, name: str, predicates: Sequence[str], *things: str) -> Probe:
        """The engine's quest is won."""
        quest = self.world.quest(predicates, *things)
        return Probe(name, lambda end: str(self._is_won(end, quest)), "True")

    def discoveries(self) -> list[Discovery]:
        """What is found on the way: a place, a key that fails, a foul locker, the next parcel."""
        tour = ". ".join(f"go to {room}. look" for room in FAR_ROOMS)
        keys = f"unlock the gate with the {self.good} key"
        return [
            Discovery(
                "grounding", "hammer", FETCH, _act("search", tour, goal="search the far rooms"),
                ((self.far, f"In the {self.far} you see the new hammer and the old hammer"),),
                tuple(self._fetched(f"{age} hammer") for age in ("old", "new")),
            ),
            Discovery(
                "failure_loop", "gate", KEY,
                _act("try gate", self._unlock("side gate", self.bad), goal=f"try the {self.bad} key on the side gate", fails=True),
                ((self.good, keys),),
                tuple(self._unlocked(f"{age} gate") for age in ("old", "new")),
                rivals=(self.bad,),
            ),
            Discovery(
                "diagnosis", "spoiled fish", SHUT,
                _act("smell", "go to corridor. look", goal="find out where the smell comes from"),
                ((self.foul, f"In the {self.foul} locker you see the spoiled fish"),),
                (self._deliverable(
                    "spoiled fish", SHUT, f"go to corridor. close {SLOT} locker", ["closed"], f"{SLOT} locker"),),
            ),
            Discovery(
                "progress", "parcel", NEXT, None, queue_stages("parcel", self.order),
                tuple(self._deliverable(
                    "parcel next in line", NEXT, f"go to yard. take {SLOT} parcel. examine {SLOT} parcel", ["in"], f"{SLOT} parcel", "")
                    for _ in range(3)),
                rivals=tuple(self.order),
            ),
        ]  # fmt: skip

    def _fetched(self, name: str) -> Deliverable:
        command = f"go to {SLOT}. take {name}. go to hall. put {name} on workbench"
        return self._deliverable(name, FETCH, command, ["on"], name, "workbench")

    def _unlocked(self, gate: str) -> Deliverable:
        return self._deliverable(gate, KEY, self._unlock(gate, SLOT), ["closed", "open"], gate)

    def _unlock(self, gate: str, key: str) -> str:
        return f"go to {self.gates[gate]}. unlock {gate} with {key} key"

    def _deliverable(self, subject: str, of: Kind, command: str, predicates: Sequence[str], *things: str) -> Deliverable:
        """Commands whose effect must be one of the predicates of things (`<V>` in their names = the code)."""
        return Deliverable(
            subject,
            of,
            json.dumps({"cmd": command}),
            lambda code: self.probe(f"{subject} {code}", predicates, *(thing.replace(SLOT, code) for thing in things)),
            DB,
            tool=TOOL,
        )

    def _is_won(self, end: Finished, quest: Any) -> bool:
        return self.world.is_won(end.text("db.json"), quest)


@lru_cache(maxsize=8)
def _house(seed: int, bound: frozenset[Mechanism], size: int) -> House:
    """A seed's house is the same for each of its rollouts and branches."""
    return House(seed, bound, size)


def _act(name: str, command: str, *, goal: str, fails: bool = False) -> Act:
    return Act(name, json.dumps({"cmd": command}), tool=TOOL, goal=goal, fails=fails, reads=DB)
