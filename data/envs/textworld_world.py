"""A world of TextWorld's logic engine, played by text commands. Imported only when the package textworld is installed.

TextWorld needs the Inform 7 compiler only for its narrator; its logic engine runs without. Map, rooms, doors, containers, keys and
quests are the engine's objects, and a command does what the engine's rule of that command does (`textworld.logic.State.apply`). Ours
are the sentences around it, several commands in one call, and `go to ROOM`, which walks by the engine's own moves and opens closed
doors on the way. A game's state is kept as JSON: the engine's facts that differ from those of its start.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from numpy.random import RandomState
from textworld.generator import GameMaker, make_map
from textworld.generator.data import KnowledgeBase
from textworld.generator.game import Event, GameOptions, Quest
from textworld.generator.graph_networks import DIRECTIONS, reverse_direction
from textworld.generator.maker import WorldEntity
from textworld.logic import Action, Proposition, Rule, State, Variable

from data.envs.base import Refused

_DOORS = ("arched door", "barred door", "carved door", "double door", "glass door", "heavy door", "narrow door", "painted door",
          "panelled door", "sliding door", "studded door", "swing door")  # fmt: skip
_SHORT = {"take/c": "take {o}", "take/s": "take {o}", "insert": "put {o} in {c}"}
"""Shorter ways to say a command, as Inform's parser takes them."""
_MOVES = tuple(f"go/{way}" for way in DIRECTIONS)


class World:
    """One game: built by `add` and `add_vault`, then `begin`, then played."""

    def __init__(self, rooms: Sequence[str], seed: int) -> None:
        """Rooms on a map that the engine draws, some with doors between them; the player stands in the first."""
        options = GameOptions()
        options.kb = KnowledgeBase.default()  # parsing its rules anew would take longer than a run
        self.maker = GameMaker(options)
        self._named: dict[str, list[WorldEntity]] = defaultdict(list)
        graph = make_map(len(rooms), rng=RandomState(seed % 2**32), possible_door_states=["open", "closed"])
        for place, node in zip(RandomState((seed + 1) % 2**32).permutation(len(rooms)), graph.nodes.values()):
            node["name"] = rooms[place]
        for door, edge in zip(_DOORS, [edge for _, _, edge in graph.edges(data=True) if edge["has_door"]]):
            edge["door_name"], edge["door_state"] = door, str(edge["door_state"])
        rooms_made = self.maker.import_graph(graph)
        for entity in [*rooms_made, *(path.door for path in self.maker.paths if path.door)]:
            self._named[entity.name].append(entity)
        self.maker.set_player(self._named[rooms[0]][0])

    def add(self, kind: str, name: str, place: str = "", *, desc: str = "", state: str = "") -> None:
        """A thing of an engine type (o object, k key, c container, s supporter) in a place; no place = carried by the player."""
        entity = self.maker.new(type=kind, name=name, desc=desc)
        if state:
            entity.add_property(state)
        (self._named[place][0] if place else self.maker.inventory).add(entity)
        self._named[name].append(entity)

    def add_vault(self, name: str, gate: str, keys: Iterable[str]) -> str:
        """A room behind a locked gate that `keys` open, beside the first room with a free side, whose name is returned."""
        beside, way = next((room, way) for room in self.maker.rooms for way in DIRECTIONS if room.exits[way].dest is None)
        vault = self.maker.new_room(name)
        door = self.maker.new_door(self.maker.connect(beside.exits[way], vault.exits[reverse_direction(way)]), gate)
        door.add_property("locked")
        self._named[name].append(vault)
        self._named[gate].append(door)
        for key in keys:
            self.maker.add_fact("match", self._named[key][0], door)
        return str(beside.name)

    def begin(self) -> "World":
        """The world is built."""
        entities = [entity for group in self._named.values() for entity in group]
        self._names: dict[str, str] = {entity.id: entity.name for entity in entities}
        self._descriptions: dict[str, str] = {entity.id: entity.infos.desc for entity in entities}
        self._start: State = self.maker.state
        self._start_facts = {_text(fact): fact for fact in self._start.facts}
        self._variables = {variable.name: variable for variable in self._start.variables}
        return self

    # ------------------------------------------------------------------ playing

    def play(self, database: dict[str, Any], args: Mapping[str, Any]) -> str:
        """The tool: commands separated by full stops, up to the first that is refused. What came before it stays done."""
        state, said = self.state(database), list[str]()
        try:
            for command in str(args["cmd"]).lower().split("."):
                if command.strip():
                    said.append(self._carry_out(state, " ".join(command.split())))
        except Refused as refusal:
            raise Refused(" ".join([*said, str(refusal)])) from None
        finally:
            facts = {_text(fact) for fact in state.facts}
            database["gone"], database["new"] = sorted(self._start_facts.keys() - facts), sorted(facts - self._start_facts.keys())
        return " ".join(said)

    def state(self, database: Mapping[str, Any]) -> State:
        """The engine's state behind what `play` has kept."""
        state = self._start.copy()
        state.remove_facts([self._start_facts[text] for text in database["gone"]])
        for name, *arguments in map(str.split, database["new"]):
            state.add_fact(Proposition(name, [self._variables[argument] for argument in arguments]))
        return state

    def quest(self, predicates: Sequence[str], *names: str) -> Quest:
        """The engine's quest that is won when one of the predicates holds of the named things ("" = the player's hands)."""
        things = [self._named[name][0].var if name else self.maker.inventory.var for name in names]
        return Quest(win_events=[Event(conditions=[Proposition(predicate, things)]) for predicate in predicates])

    def is_won(self, text: str, quest: Quest) -> bool:
        """Whether the quest is won in the state kept as JSON in `text`."""
        return bool(text) and bool(quest.is_winning(self.state(json.loads(text))))

    def _carry_out(self, state: State, command: str) -> str:
        if command.startswith("go to "):
            return self._walk(state, _bare(command.removeprefix("go to ")))
        action = next(self._actions(state, command), None)
        if action is None:
            raise Refused(self._why_not(state, command))
        state.apply(action)
        if action.name == "look":
            return self._look(state)
        if action.name == "inventory":
            return f"You carry {self._list(state, _contents(state, 'in', self.maker.inventory.var))}."
        if action.name.startswith("examine"):
            return self._examined(action)
        return f"You {self._command(action)}."

    def _actions(self, state: State, command: str) -> Iterator[Action]:
        """What the engine allows now under the rules that the command may mean."""
        for rule, words in _meanings(command):
            for variables in product(*(self._called(word) for word in words.values())):
                yield from state.all_applicable_actions([rule], _placed(rule, dict(zip(words, variables))))

    def _walk(self, state: State, name: str) -> str:
        """Go to a room by the engine's moves."""
        target = next((variable for variable in self._called(name) if variable.type == "r"), None)
        here = _room(state)
        if target is None or (path := _path(state, here, target)) is None:
            raise Refused(f"There is no open way to {'the ' + name if target else 'a room ' + name}.")
        for there in path:
            for link in _links(state, here):
                if link.arguments[2] == there and _is(state, "closed", link.arguments[1]):
                    _apply(state, ["open/d"], {"d": link.arguments[1]})
            _apply(state, _MOVES, {"r": here, "r'": there})
            here = there
        return f"You go to the {name}." if path else f"You are in the {name}."

    # ------------------------------------------------------------------ words

    def _look(self, state: State) -> str:
        """The room, what is in and on the things there, and the ways out."""
        room = _room(state)
        things = _contents(state, "at", room)
        said = [f"In the {self._names[room.name]} you see {self._list(state, things)}."]
        for relation, thing in product(("in", "on"), [each for each in things if not _is_shut(state, each)]):
            if inside := _contents(state, relation, thing):
                said.append(f"{relation.title()} the {self._names[thing.name]} you see {self._list(state, inside)}.")
        exits = self._named[self._names[room.name]][0].exits
        ways = ", ".join(way for way in DIRECTIONS if exits[way].dest)
        doors = [link.arguments[1] for link in _links(state, room)]
        return " ".join([*said, f"Exits: {ways}" + (f"; doors: {self._list(state, doors)}." if doors else ".")])

    def _examined(self, action: Action) -> str:
        seen = next(each for each in action.variables if str(action.command_template).endswith(f"{{{each.name}}}"))
        return self._descriptions[seen.name] or f"There is nothing special about the {self._names[seen.name]}."

    def _why_not(self, state: State, command: str) -> str:
        """Why no rule of the command applies, read from the engine's facts."""
        meanings = _meanings(command)
        if not meanings:
            return f"The game does not know the command {command!r}."
        near, things = _near(state), list[Variable]()
        for word in meanings[0][1].values():
            if not (called := [variable for variable in self._called(word) if variable in near]):
                return f"You see no {_bare(word)} here."
            things += called[:1]
        if command.startswith("unlock") and _is(state, "locked", things[0]):
            lock, tried = (self._names[each.name] for each in things[:2])
            keys = [fact.arguments[0] for fact in _facts(state, "match") if fact.arguments[1] == things[0]]
            return f"The {tried} failed at the {lock}; unlock the {lock.split()[-1]} with {self._list(state, keys)}."
        known = [f"the {self._names[each.name]} is {word}" for each in things for word in _CONDITIONS if _is(state, word, each)]
        known += [f"you carry the {self._names[each.name]}" for each in things if self._is_carried(state, each)]
        return f"You cannot {command}" + (f": {' and '.join(known)}." if known else ".")

    def _is_carried(self, state: State, thing: Variable) -> bool:
        return bool(state.is_fact(Proposition("in", [thing, self.maker.inventory.var])))

    def _called(self, name: str) -> list[Variable]:
        return [entity.var for entity in self._named.get(_bare(name), [])]

    def _list(self, state: State, things: Sequence[Variable]) -> str:
        """Things in alphabetical order, those that are shut marked."""
        named = sorted(f"the {self._names[each.name]}{' (shut)' * _is_shut(state, each)}" for each in things)
        return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else "".join(named) or "nothing"

    def _command(self, action: Action) -> str:
        return str(action.format_command({each.name: f"the {self._names.get(each.name, '')}" for each in action.variables}))


_CONDITIONS = ("open", "closed", "locked")
_RULES: Mapping[str, Rule] = dict(KnowledgeBase.default().logic.rules)


@cache
def _forms() -> tuple[tuple[re.Pattern[str], Rule], ...]:
    """Every command of the engine as a pattern, with its rule."""
    said = [*KnowledgeBase.default().inform7_commands.items(), *_SHORT.items()]
    return tuple(
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(text))), _RULES[rule]) for rule, text in sorted(said)
    )


def _meanings(command: str) -> list[tuple[Rule, dict[str, str]]]:
    """The rules a command may mean, each with its words by placeholder; `take X from Y` does not take a thing called `X from Y`."""
    found = [(rule, match.groupdict()) for pattern, rule in _forms() if (match := pattern.fullmatch(command))]
    most = max((len(words) for _, words in found), default=0)
    return [(rule, words) for rule, words in found if len(words) == most]


def _placed(rule: Rule, variables: Mapping[str, Variable]) -> dict[Any, Variable]:
    return {holder: variables[holder.name] for holder in rule.placeholders if holder.name in variables}


def _apply(state: State, rules: Iterable[str], variables: Mapping[str, Variable]) -> None:
    """Do what the engine allows under one of the rules."""
    placed = ((_RULES[rule], _placed(_RULES[rule], variables)) for rule in rules)
    state.apply(next(action for rule, mapping in placed for action in state.all_applicable_actions([rule], mapping)))


def _bare(name: str) -> str:
    return name.removeprefix("the ")


def _text(fact: Proposition) -> str:
    return " ".join([fact.name, *(variable.name for variable in fact.arguments)])


def _facts(state: State, name: str) -> list[Proposition]:
    return sorted((fact for fact in state.facts if fact.name == name), key=_text)


def _is(state: State, name: str, variable: Variable) -> bool:
    return bool(state.is_fact(Proposition(name, [variable])))


def _is_shut(state: State, variable: Variable) -> bool:
    return _is(state, "closed", variable) or _is(state, "locked", variable)


def _room(state: State) -> Variable:
    return next(fact.arguments[1] for fact in _facts(state, "at") if fact.arguments[0].type == "P")


def _contents(state: State, relation: str, place: Variable) -> list[Variable]:
    held = [fact.arguments[0] for fact in _facts(state, relation) if fact.arguments[1] == place]
    return [variable for variable in held if variable.type != "P"]


def _links(state: State, room: Variable) -> list[Proposition]:
    return [fact for fact in _facts(state, "link") if fact.arguments[0] == room]


def _near(state: State) -> set[Variable]:
    """What the player sees or holds."""
    room = _room(state)
    here = _contents(state, "at", room)
    places = [each for each in here if not _is_shut(state, each)]
    inside = [thing for place in places for relation in ("in", "on") for thing in _contents(state, relation, place)]
    carried = [fact.arguments[0] for fact in _facts(state, "in") if fact.arguments[1].type == "I"]
    return {*here, *inside, *carried, *(link.arguments[1] for link in _links(state, room))}


def _path(state: State, start: Variable, target: Variable) -> list[Variable] | None:
    """Rooms to pass, through doors that are not locked; None when there is no way."""
    ways = defaultdict(set)
    for fact in list(state.facts):  # asking the state grows its tables
        if fact.name == "free" or (fact.name == "link" and _is(state, "closed", fact.arguments[1])):
            ways[fact.arguments[0]].add(fact.arguments[-1])
    paths: dict[Variable, list[Variable]] = {start: []}
    pending = deque([start])
    while pending and target not in paths:
        room = pending.popleft()
        for there in sorted(ways[room] - paths.keys(), key=lambda variable: variable.name):
            paths[there] = [*paths[room], there]
            pending.append(there)
    return paths.get(target)
