"""The decaying agent: it works through a task's script, states what it does and plans next, and loses facts as they grow old.

    prob(lapse of fact f at a plan) = ceiling · (1 − exp(−age(f) / decay_acts)) · (1 if f is held loosely else firm)
                                      · (interference if f was superseded) · (distraction while distracted)

A lapse shows in the stated plan one act before it happens. Every random draw is hashed from (seed, stream, act, fact): branches
with one seed differ only by what a reminder changes (common random numbers). A reminder is read as text (data.reminders), ids
mean nothing. The strengths' parameters stand in data/strengths.py.
"""

from copy import copy
from dataclasses import dataclass, field, replace
from math import exp

from data import phrasing
from data.envs.base import SLOT, Act, Fact, Mechanism, Task, ToolResult, choose, draw
from data.reminders import sentences, states
from data.strengths import STRENGTHS, AgentParams

__all__ = ["HORIZON", "STRENGTHS", "AgentParams", "DecayingAgent", "Move", "Planned"]

HORIZON = 6
"""Acts ahead that count for `need_true` (docs/design/calibration.md)."""


@dataclass(slots=True)
class _Held:
    """What the agent holds of one fact: its stage (-1: not met yet), when it last saw it, the wrong value once it is lost."""

    stage: int = -1
    seen: int = 0
    wrong: str | None = None
    num_lost: int = 0

    def meet(self, stage: int, now: int) -> None:
        """The fact is seen, at this stage."""
        self.stage, self.seen, self.wrong = stage, now, None


@dataclass(frozen=True, slots=True)
class Planned:
    """The act announced as next, with the value the agent means to use."""

    act: Act
    value: str | None = None
    vague: bool = False
    is_retry: bool = False
    """The same command has just failed."""


@dataclass(frozen=True, slots=True)
class Move:
    """What the agent does: the thought it states and the tool call."""

    thought: str
    planned: Planned
    command: str


@dataclass(slots=True)
class DecayingAgent:
    """One run of the agent on a task. `fork` copies it for a branch; `seed` may then be changed to draw another future."""

    task: Task
    params: AgentParams
    seed: int
    num_done: int = 0
    held: dict[str, _Held] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    queue: tuple[Act, ...] = ()
    plan: Planned | None = None
    done_wrong: dict[str, tuple[Act, str, int]] = field(default_factory=dict)
    """Acts done with a wrong value: name -> (act, fact, when)."""
    distracted_until: int = 0
    looking_up: str = ""
    """Fact that the plan at hand is to find out again; empty when there is none."""
    turns_heard: tuple[str, ...] = ()
    _next: Planned | None = None

    def start(self) -> None:
        """Read the first message and form the first plan."""
        self.held = {key: _Held() for key in self.task.facts}
        number = self.params.loose * len(self.task.facts) / 6
        count = int(number) + (draw(self.task.task_id, self.seed, "loose") < number % 1)
        order = sorted(self.task.facts, key=lambda key: draw(self.task.task_id, self.seed, "loose", key))
        self.loose = frozenset(order[:count])
        for fact in self.task.facts.values():
            if fact.stages[0].source == "task":
                self.held[fact.key] = _Held(stage=0)
        self.queue = self.task.acts
        self.plan = self._take()

    def fork(self, seed: int) -> "DecayingAgent":
        """A copy that goes on with another seed."""
        twin = copy(self)
        twin.held = {key: copy(held) for key, held in self.held.items()}
        twin.done_wrong = dict(self.done_wrong)
        twin.seed = seed
        return twin

    @property
    def finished(self) -> bool:
        """The script is through, or the budget is used up."""
        return self.plan is None or self.num_done >= len(self.task.acts) + self.params.slack

    def decide(self, reminder: str | None = None) -> Move:
        """Hear a reminder if there is one, then state the act at hand and the plan after it."""
        if reminder is not None:
            self._hear(reminder)
        now = self.plan
        assert now is not None, "the agent has finished"
        self._next = self._take(during=now.act.name)
        return Move(self._thought(now, self._next), now, self._command(now))

    def observe(self, result: ToolResult) -> None:
        """Take in the result of the act that `decide` announced, and settle the next plan."""
        now = self.plan
        assert now is not None
        self.num_done += 1
        fact = self.task.facts.get(now.act.fact or "")
        is_wrong = fact is not None and now.value != self._right(fact)
        self._notice_shown(result.text)
        if self.looking_up:
            self._found_again()
        if result.is_error and not now.act.fails:
            self._after_error(now)
            return
        if is_wrong and fact is not None:
            self.done_wrong[now.act.name] = (now.act, fact.key, self.num_done)
        else:
            self.done_wrong.pop(now.act.name, None)
        self.plan = self._next
        if now.act.name == "review":
            self._mend_after_review()

    def hear_user(self, act_name: str) -> str | None:
        """The user turn that arrives after `act_name`, if any: its fact is fresh; a plan that used the old value is mended."""
        if act_name not in self.task.turns or act_name in self.turns_heard:
            return None
        self.turns_heard = (*self.turns_heard, act_name)
        for fact in self.task.facts.values():
            for index, stage in enumerate(fact.stages):
                if stage.source == "user" and stage.act == act_name:
                    self.held[fact.key].meet(index, self.num_done)
                    if self.plan and self.plan.act.fact == fact.key:
                        self.plan = replace(self.plan, value=stage.value)
        return self.task.turns[act_name]

    def lost(self) -> dict[str, str]:
        """Facts the agent has lost, with the wrong value it believes."""
        return {key: held.wrong for key, held in self.held.items() if held.wrong is not None}

    def depends(self) -> tuple[str, ...]:
        """Facts that the next `HORIZON` acts depend on, or by which something just done wrong would be mended.

        Not the fact that the agent is about to look up by itself.
        """
        ahead = [self.plan.act] if self.plan else []
        ahead += self.queue[: HORIZON - len(ahead)]
        keys = [act.fact for act in ahead if act.fact]
        keys += [fact for _, fact, when in self.done_wrong.values() if self._is_recent(when)]
        return tuple(key for key in dict.fromkeys(keys) if key != self.looking_up)

    def need(self) -> tuple[bool, Mechanism | None]:
        """The structural truth at this point and the mechanism it falls under."""
        lost = self.lost()
        for key in self.depends():
            if key in lost:
                return True, self.task.facts[key].mechanism
        return False, None

    def stage_of(self, fact: Fact) -> int:
        return self.held[fact.key].stage

    # ------------------------------------------------------------------ plans

    def _take(self, during: str = "") -> Planned | None:
        """Form the plan of the next act in the queue."""
        if not self.queue:
            return None
        act, self.queue = self.queue[0], self.queue[1:]
        if act.awaits and act.awaits == during:
            return Planned(act, vague=True)
        return Planned(act, self._value(act))

    def _value(self, act: Act) -> str | None:
        """The value the agent means to use: right, lost, or its own choice. Here facts are lost."""
        if act.kind is None:
            return None
        if act.fact is None:
            return choose(act.kind.words, self.task.task_id, self.seed, "free", act.name)
        fact, held = self.task.facts[act.fact], self.held[act.fact]
        if held.wrong is None and self._draw("lapse", act, f"{fact.key} {held.num_lost}") < self._prob_lapse(fact, held):
            held.wrong, held.num_lost = self._wrong_value(fact, held, act), held.num_lost + 1
        if held.wrong is not None:
            return held.wrong
        held.seen = self.num_done
        return self._right(fact)

    def _prob_lapse(self, fact: Fact, held: _Held) -> float:
        age = self.num_done - held.seen
        prob = self.params.ceiling * (1.0 - exp(-age / self.params.decay_acts))
        prob *= 1.0 if fact.key in self.loose else self.params.firm
        prob *= self.params.interference if self._old_values(fact, held) else 1.0
        return prob * (self.params.distraction if self.num_done < self.distracted_until else 1.0)

    def _wrong_value(self, fact: Fact, held: _Held, act: Act) -> str:
        right, old = self._right(fact), self._old_values(fact, held)
        if old and self._draw("stale", act, fact.key) < self.params.stale:
            return choose(old, self.task.task_id, self.seed, "old", act.name)
        rivals = [value for value in fact.rivals if value != right]
        options = rivals if rivals and self._draw("rival", act, fact.key) < self.params.rival else fact.kind.words
        return choose([value for value in options if value != right], self.task.task_id, self.seed, "wrong", act.name)

    def _old_values(self, fact: Fact, held: _Held) -> list[str]:
        right = self._right(fact)
        return [stage.value for stage in fact.stages[: max(held.stage, 0)] if stage.value != right]

    def _right(self, fact: Fact) -> str:
        return fact.stages[max(self.held[fact.key].stage, 0)].value

    def _draw(self, stream: str, act: Act, key: str = "") -> float:
        return draw(self.task.task_id, self.seed, stream, act.name, key)

    # ------------------------------------------------------------------ results

    def _notice_shown(self, text: str) -> None:
        """Facts that stand in a result are fresh; what was lost is found again."""
        for fact in self.task.facts.values():
            for index, stage in enumerate(fact.stages):
                if stage.source == "result" and index >= self.held[fact.key].stage and stage.text in text:
                    self.held[fact.key].meet(index, self.num_done)
        following = self._next
        if following and following.vague:
            self._next = Planned(following.act, self._value(following.act))

    def _after_error(self, now: Planned) -> None:
        """Repeat the command once, look the fact up again, or give the act up."""
        self._push_back(self._next)
        if not now.is_retry and self._draw("retry", now.act) < self.params.retry:
            self.plan = replace(now, is_retry=True)
        elif self._draw("rediagnose", now.act) < self.params.rediagnose:
            self._push_back(Planned(now.act))
            self.plan = Planned(self._source_act(now.act))
            self.looking_up = now.act.fact or ""
        else:
            self.plan = self._take()
            if now.act.fact:
                self.done_wrong[now.act.name] = (now.act, now.act.fact, self.num_done)

    def _found_again(self) -> None:
        """What was looked up is known again, also when it was the user who said it: the dialogue was read once more."""
        held = self.held[self.looking_up]
        held.meet(held.stage, self.num_done)
        self.looking_up = ""

    def _source_act(self, act: Act) -> Act:
        """The act whose result shows the fact of `act`, to be done again; a look around when the fact came from the user."""
        fact = self.task.facts.get(act.fact or "")
        name = fact.stages[self.held[fact.key].stage].act if fact and self.held[fact.key].stage >= 0 else ""
        for candidate in self.task.acts:
            if candidate.name == name and candidate.kind is None:
                return candidate
        return self.task.look

    def _mend_after_review(self) -> None:
        """Looking over the results, the agent sees each wrong one with some chance and does it again."""
        seen = [name for name, (act, _, _) in self.done_wrong.items() if self._draw("review", act) < self.params.review]
        for name in seen:
            act, key, _ = self.done_wrong[name]
            self.held[key].meet(self.held[key].stage, self.num_done)
            self._push_back(self.plan)
            self.plan = Planned(act, self._right(self.task.facts[key]))

    def _push_back(self, planned: Planned | None) -> None:
        """Put an act off: it is planned anew later."""
        if planned is not None:
            self.queue = (planned.act, *self.queue)

    # ------------------------------------------------------------------ reminders

    def _hear(self, text: str) -> None:
        """Read a reminder against what the agent lacks. Only its words count."""
        assert self.plan is not None
        parts = sentences(text)
        stated = [fact for fact in self.task.facts.values() if self.stage_of(fact) >= 0 and self._is_stated(text, fact)]
        helps = [fact for fact in stated if self.held[fact.key].wrong is not None]
        num_idle = max(0, len(parts) - len(helps))
        if helps and self._draw("obey", self.plan.act) < self.params.obey * 2 * len(helps) / (2 * len(helps) + num_idle):
            for fact in helps:
                self._restore(fact)
        if helps and num_idle < self.params.patience:
            return
        cost = self.params.redundant_cost if stated else self.params.irrelevant_cost
        self.distracted_until = self.num_done + self.params.distraction_acts
        if self._draw("detour", self.plan.act) < cost:
            self._push_back(self.plan)
            self.plan = Planned(self.task.look)

    def _is_stated(self, text: str, fact: Fact) -> bool:
        return states(text, fact.subject, self._right(fact), fact.kind.words)

    def _restore(self, fact: Fact) -> None:
        """The fact is known again; what was done wrong for want of it is done again, if it still matters to the acts at hand."""
        matters = fact.key in self.depends()
        self.held[fact.key].meet(self.stage_of(fact), self.num_done)
        if self.plan and self.plan.act.fact == fact.key:
            self.plan = Planned(self.plan.act, self._right(fact))
        for act, key, _ in list(self.done_wrong.values()):
            if key == fact.key and matters:
                self._push_back(self.plan)
                self.plan = Planned(act, self._right(fact))

    def _is_recent(self, when: int) -> bool:
        return self.num_done - when < self.params.recall_acts

    # ------------------------------------------------------------------ words

    def _thought(self, now: Planned, then: Planned | None) -> str:
        key = (self.task.task_id, self.seed, self.num_done)
        return phrasing.thought(self._phrase(now), self._phrase(then), self.task.wording, *key)

    def _phrase(self, planned: Planned | None) -> str:
        if planned is None:
            return "stop"
        act = planned.act
        if act.kind is None:
            return act.goal
        if planned.vague or planned.value is None:
            return act.vague
        return phrasing.plan(act.kind, act.subject, planned.value, self.task.wording, self.task.task_id, act.name)

    def _command(self, planned: Planned) -> str:
        act = planned.act
        if act.kind is None or planned.value is None:
            return act.command
        return act.command.replace(SLOT, act.kind.code(planned.value))
