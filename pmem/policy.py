"""Policies: one snapshot in, one `StepResult` out. Every tier and every ablation arm is a small object with that one method.

    policy = ModelPolicy(backend, threshold=threshold, mode="scored", grammar=True)
    result = policy.step(snapshot)
    results = policy.step_many(snapshots)          # the same steps, batched by phase

Scored step (docs/design/calibration.md): (1) complete the list; apply it to a copy of the bank; (2) read the probability of speaking
with the list as prefix; (3) write the reminder only where the threshold says speak; gates last.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from pmem.backend import Backend, Completion, DecisionRead, Request, RouteError
from pmem.bank import cited_sentence
from pmem.canonical import content_id
from pmem.envelope import OPERATIONS_CLOSE, SPEAK, SPEAK_CLOSE, Operation
from pmem.errors import UserError
from pmem.gates import RUNTIME, GateProfile, authorities, is_deterministic, rules_spoke
from pmem.grammar import envelope_grammar, list_grammar, reminder_grammar
from pmem.outcomes import Reason
from pmem.plan_notes import notes_apart, plan_note
from pmem.prompt import PromptLimits, render_messages
from pmem.rules_policy import RulesPolicy
from pmem.snapshot import BankState, Entry, Snapshot
from pmem.step import MIN_LABEL_MASS, STATUS_OPEN, Draft, StepResult
from pmem.threshold import Threshold

__all__ = ["MemoryPolicy", "Mode", "ModelPolicy", "RulesPolicy", "StepResult"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Mode = Literal["scored", "completion"]
NotedEntry = tuple[Operation, Entry]
"""The note of one clause alone, and the entry that it names."""
OFFLINE_PATIENCE_S = 120.0
OWN_CHOICE = 0.5
"""Without a threshold a model speaks where it puts more mass on speaking than on silence."""


class MemoryPolicy(Protocol):
    """What decides at a boundary. Never raises for what a model or a route does: that is an outcome."""

    name: str

    def step(self, snapshot: Snapshot) -> StepResult: ...


class ModelPolicy:
    """A model behind a backend. `threshold` None: the model's own choice counts. `timeout_ms` None: no deadline (evaluation).

    A backend with `concurrency` (an HTTP route) takes so many steps of `step_many` side by side; any other gets whole batches.
    Raises UserError when threshold, mode and backend do not belong together.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        name: str = "prompted",
        threshold: Threshold | None = None,
        mode: Mode = "scored",
        profile: GateProfile = RUNTIME,
        grammar: bool = False,
        plan_notes: bool = False,
        limits: PromptLimits | None = None,
        list_max_tokens: int = 384,
        reminder_max_tokens: int = 160,
        max_output_tokens: int = 2000,
        timeout_ms: int | None = 60_000,
        min_label_mass: float = MIN_LABEL_MASS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check(backend, threshold, mode)
        if plan_notes and mode != "scored":
            raise UserError("plan notes end the list before the decision is read; set mode: scored for a model trained with them")
        self.name = name
        self.backend = backend
        self.threshold = threshold
        self.threshold_id = threshold.threshold_id if threshold else None
        self.mode: Mode = mode
        self.profile = profile
        self.grammar = grammar
        self.plan_notes = plan_notes
        self.limits = limits or PromptLimits()
        self.list_max_tokens = min(list_max_tokens, max_output_tokens)
        self.reminder_max_tokens = min(reminder_max_tokens, max_output_tokens)
        self.max_output_tokens = max_output_tokens
        self.timeout_ms = timeout_ms
        self.min_label_mass = min_label_mass
        self._clock = clock

    def step(self, snapshot: Snapshot, *, step_id: str | None = None, deadline: float | None = None) -> StepResult:
        """One step. `deadline`: reading of the clock after which nothing counts; default: `timeout_ms` from now."""
        started = self._clock()
        if deadline is None and self.timeout_ms is not None:
            deadline = started + self.timeout_ms / 1000
        draft = self._draft(snapshot, step_id)
        (result,) = self._run([draft], deadline)
        self._let_go([draft])
        return replace(result, latency_ms=(self._clock() - started) * 1000)

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """The same steps: side by side on a route, else batched: all lists, all decisions, then the reminders that are wanted."""
        snapshots = list(snapshots)
        if self._one_by_one:
            return self._side_by_side(self.step, snapshots)
        return self._run([self._draft(snapshot) for snapshot in snapshots], None)

    def sample_many(
        self, snapshots: Iterable[Snapshot], *, num_samples: int, temperature: float = 1.0, seed: int = 0
    ) -> list[list[StepResult]]:
        """`num_samples` answers a snapshot: list decoded greedily once, decision drawn from p, reminder at `temperature`.

        The draw depends on seed, snapshot and sample only, never on what else is in the batch. No threshold is applied.
        """
        drafts = [self._draft(snapshot) for snapshot in snapshots]
        if self._one_by_one:
            return self._side_by_side(lambda draft: self._sample([draft], num_samples, temperature, seed)[0], drafts)
        return self._sample(drafts, num_samples, temperature, seed)

    @property
    def _one_by_one(self) -> bool:
        """A route takes whole steps side by side; a model in the process takes whole batches."""
        return hasattr(self.backend, "concurrency")

    def _side_by_side(self, ask: Callable[[Item], Result], items: list[Item]) -> list[Result]:
        with ThreadPoolExecutor(max(1, getattr(self.backend, "concurrency", 1)), thread_name_prefix="pmem-policy") as pool:
            return list(pool.map(ask, items))

    def _sample(self, drafts: list[Draft], num_samples: int, temperature: float, seed: int) -> list[list[StepResult]]:
        self._guarded(drafts, None, self.write_lists, self._end_unnoted, self._reads)
        self._let_go(drafts)
        samples = [[draft.copy(secrets.token_hex(8)) for _ in range(num_samples)] for draft in drafts]
        for draft, copies in zip(drafts, samples, strict=True):
            key = draft.snapshot.snapshot_id or content_id(draft.snapshot.model_dump(mode="json"))
            for index, copy in enumerate(copies):
                draw = random.Random(f"{seed}:{key}:{index}")
                if not copy.settled and copy.read is not None:
                    copy.set_verdict(speaks=draw.random() < copy.read.prob_speak)
                copy.temperature, copy.seed = temperature, draw.getrandbits(31)
        flat = [copy for copies in samples for copy in copies]
        for batch in [[copy] for copy in flat] if self._one_by_one else [flat]:
            self._guarded(batch, None, self._finish)
        return [[copy.result for copy in copies] for copies in samples]

    def _draft(self, snapshot: Snapshot, step_id: str | None = None) -> Draft:
        result = StepResult(
            decision="silent", reason="model_silent", bank_after=snapshot.bank, route=self.backend.route, model=self.backend.model
        )
        messages = render_messages(snapshot, self.limits)
        return Draft(snapshot=snapshot, messages=messages, step_id=step_id or secrets.token_hex(8), result=result)

    def _run(self, drafts: list[Draft], deadline: float | None) -> list[StepResult]:
        if self.mode == "completion":
            self._guarded(drafts, deadline, self._answers)
        else:
            self._guarded(drafts, deadline, self.write_lists, self._end_unnoted, self._reads, self.take_verdicts, self._finish)
        return [draft.result for draft in drafts]

    def _guarded(self, drafts: list[Draft], deadline: float | None, *phases: Callable[..., None]) -> None:
        """Run the phases over the drafts still open; a fault of the route or a passed deadline ends them all, nothing kept."""
        for phase in phases:
            live = [draft for draft in drafts if not draft.settled]
            reason: Reason | None = None
            try:
                if live:
                    phase(live, deadline)
            except TimeoutError:
                reason = "timed_out"
            except RouteError as error:
                reason = "scope_changed" if error.aborted else "overloaded" if error.overloaded else "client_error"
                live[0].book_cut(error.tokens_in)
            if reason is None and deadline is not None and self._clock() > deadline:
                reason = "deadline"
            if reason is not None:
                for draft in live:
                    draft.discard(reason)

    def write_lists(self, drafts: list[Draft], deadline: float | None) -> None:
        """Phase of a scored step that an arm of evaluation may replace: every draft gets its answer with the list of operations."""
        grammar = [list_grammar(draft.snapshot.bank) if self.grammar else None for draft in drafts]
        requests = [
            self._request(draft, max_tokens=self.list_max_tokens, stop=self._list_ends(draft), grammar=text)
            for draft, text in zip(drafts, grammar, strict=True)
        ]
        for draft, completion in zip(drafts, self._complete(requests, deadline), strict=True):
            draft.take_answer(completion, self.note(draft))

    def note(self, draft: Draft) -> Operation | None:
        """The plan note that ends the list of a draft, if it has one."""
        return plan_note(draft.snapshot) if self.plan_notes else None

    def _list_ends(self, draft: Draft) -> tuple[str, ...]:
        return (OPERATIONS_CLOSE,) if self.note(draft) is None else (OPERATIONS_CLOSE, STATUS_OPEN)

    def _end_unnoted(self, drafts: list[Draft], deadline: float | None) -> None:
        """End, unasked, the steps of a policy with plan notes whose note names no entry: there is nothing it could say word for word."""
        for draft in drafts:
            if self.plan_notes and self.profile.noted and not is_deterministic(draft.snapshot) and not self._noted(draft):
                draft.settle("nothing_noted")

    def _reads(self, drafts: list[Draft], deadline: float | None) -> None:
        requests = [self._request(draft, prefix=draft.decision_prefix, max_tokens=1) for draft in drafts]
        reads: list[DecisionRead] = self._patiently(lambda: self.backend.decide(requests, deadline=deadline), deadline)
        for draft, read in zip(drafts, reads, strict=True):
            draft.take_read(read, self.min_label_mass)

    def take_verdicts(self, drafts: list[Draft], deadline: float | None) -> None:
        """Phase of a scored step that an arm of evaluation may replace: every read draft gets its verdict, or is settled."""
        for draft in drafts:
            assert draft.read is not None
            prob = draft.read.prob_speak
            if self.threshold is None:
                draft.set_verdict(speaks=prob >= OWN_CHOICE)
                continue
            speaks = self.threshold.speaks(prob)
            draft.set_verdict(speaks=speaks, prob_calibrated=self.threshold.calibrated(prob), threshold=self.threshold.threshold)
            if not speaks and prob >= OWN_CHOICE and self.profile.threshold:
                draft.settle("below_threshold")

    def _finish(self, drafts: list[Draft], deadline: float | None) -> None:
        speakers = self._say_noted([draft for draft in drafts if self._writes(draft)], deadline)
        requests = [
            self._request(
                draft,
                prefix=draft.decision_prefix + SPEAK,
                max_tokens=self.reminder_max_tokens,
                stop=(SPEAK_CLOSE,),
                grammar=reminder_grammar(self._citable(draft)) if self.grammar else None,
                temperature=draft.temperature,
                seed=draft.seed,
            )
            for draft in speakers
        ]
        for draft in speakers:
            draft.asked_reminder = True
        for draft, completion in zip(speakers, self._complete(requests, deadline), strict=True):
            draft.take_reminder(completion)
        for draft in drafts:
            if not draft.settled:
                draft.pass_gates(self.profile)

    def _say_noted(self, drafts: list[Draft], deadline: float | None) -> list[Draft]:
        """Say the entry that the plan note names, word for word. Returns the drafts without one: they write by themselves."""
        noted = {draft.step_id: self._noted(draft) for draft in drafts}
        self._choose_louder([draft for draft in drafts if len(noted[draft.step_id]) > 1], noted, deadline)
        for draft in drafts:
            if choices := noted[draft.step_id]:
                text = cited_sentence(choices[0][1]) + SPEAK_CLOSE
                draft.take_reminder(Completion(text=text, finish_reason="stop", tokens_in=0, tokens_out=0))
        return [draft for draft in drafts if not noted[draft.step_id]]

    def _choose_louder(self, drafts: list[Draft], noted: dict[str, list[NotedEntry]], deadline: float | None) -> None:
        """Put that entry first whose clause alone makes the model speak more surely; of equals the one announced last."""
        asked = [(draft, choice) for draft in drafts for choice in noted[draft.step_id]]
        requests = [self._request(draft, prefix=draft.list_ended_by(note) + "\n", max_tokens=1) for draft, (note, _) in asked]
        reads = self._patiently(lambda: self.backend.decide(requests, deadline=deadline), deadline) if requests else []
        loudness: dict[str, list[float]] = {draft.step_id: [] for draft in drafts}
        for (draft, _), read in zip(asked, reads, strict=True):
            draft.book(read)
            loudness[draft.step_id].append(read.prob_speak)
        for name, probs in loudness.items():
            best = max(range(len(probs)), key=lambda place: (probs[place], place))
            noted[name].insert(0, noted[name].pop(best))

    def _noted(self, draft: Draft) -> list[NotedEntry]:
        citable = {entry.id for entry in self._citable(draft).entries}
        return [choice for choice in notes_apart(draft.snapshot) if choice[1].id in citable] if self.plan_notes else []

    def _writes(self, draft: Draft) -> bool:
        """Whether a reminder is worth writing: someone wants to speak, and no gate would refuse every text."""
        if not draft.speaks:
            draft.result = replace(draft.result, reminder=None)
            draft.silent_reason = "model_silent"
            return False
        if self.profile.suppression and rules_spoke(draft.snapshot):
            draft.settle("suppressed")
        elif self.profile.citation and not is_deterministic(draft.snapshot) and not self._citable(draft).entries:
            draft.settle("uncited")
        return not draft.settled

    def _answers(self, drafts: list[Draft], deadline: float | None) -> None:
        requests = [
            self._request(
                draft,
                max_tokens=self.max_output_tokens,
                grammar=envelope_grammar(draft.snapshot.bank) if self.grammar else None,
            )
            for draft in drafts
        ]
        for draft, completion in zip(drafts, self._complete(requests, deadline), strict=True):
            draft.take_answer(completion)
            if not draft.settled:
                draft.pass_gates(self.profile)

    def _citable(self, draft: Draft) -> BankState:
        """The part of the bank whose citation gives the right to speak; all of it where the arm lifts that gate."""
        if not self.profile.citation:
            return draft.bank_after
        ids = set(authorities(draft.snapshot, draft.bank_after))
        return BankState(entries=tuple(entry for entry in draft.bank_after.entries if entry.id in ids))

    def _complete(self, requests: list[Request], deadline: float | None) -> Sequence[Completion]:
        if not requests:
            return []
        return self._patiently(lambda: self.backend.complete(requests, deadline=deadline), deadline)

    def _patiently(self, ask: Callable[[], Result], deadline: float | None) -> Result:
        """The runtime, which has a deadline, never asks twice. Evaluation has none: it waits for a place on a full route."""
        until = self._clock() + OFFLINE_PATIENCE_S
        while True:
            try:
                return ask()
            except RouteError as error:
                if not error.overloaded or deadline is not None or self._clock() >= until:
                    raise
            time.sleep(0.1)

    def _let_go(self, drafts: list[Draft]) -> None:
        """Tell a route that keeps a place for a step that no further request of it will come."""
        end_step = getattr(self.backend, "end_step", None)
        for draft in drafts:
            if end_step is not None and not draft.asked_reminder:
                end_step(draft.step_id)

    def _request(
        self, draft: Draft, *, max_tokens: int, prefix: str = "", stop: tuple[str, ...] = (), grammar: str | None = None,
        temperature: float = 0.0, seed: int | None = None,
    ) -> Request:  # fmt: skip
        return Request(
            messages=draft.messages, prefix=prefix, max_tokens=max_tokens, stop=stop, grammar=grammar, temperature=temperature,
            seed=seed, step_id=draft.step_id,
        )  # fmt: skip


def _check(backend: Backend, threshold: Threshold | None, mode: Mode) -> None:
    if mode == "scored" and not getattr(backend, "can_score", True):
        raise UserError(f"route {backend.route!r} cannot read probabilities at a prefix; set mode: completion for it")
    if threshold is None:
        return
    if threshold.decision_mode != mode:
        raise UserError(f"the threshold was made for {threshold.decision_mode} decisions, the policy runs {mode}; sweep again")
    if threshold.model_hash and backend.model_hash and threshold.model_hash != backend.model_hash:
        raise UserError(
            f"the threshold was made for model {threshold.model_hash[:16]}, route {backend.route!r} serves "
            f"{backend.model_hash[:16]}; run `python -m eval.sweep` for this model"
        )
