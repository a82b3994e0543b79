"""The arms of the comparison as policies: each a small object with `step_many`, judged through the same code path.

    rules            the product's rules tier alone             never / always / random   silence, threshold 0, a coin at a
    given rate prompted, sft,   the model behind a backend, its own         full_bank, retrieval      the whole bank, or its
    BM25 top-k, every time
      sft_grpo         threshold                                 injection_only, advisor   the model without a bank; advisor:
      never silent
`oracle` needs the truth and stands in `eval.live`. Lifted gates are stated with each arm (docs/design/runtime.md section 3).
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pmem.backend import Backend, Completion
from pmem.envelope import render_operations
from pmem.gates import RUNTIME, GateProfile, apply_gates
from pmem.policy import ModelPolicy, RulesPolicy, StepResult
from pmem.prompt import PromptLimits
from pmem.snapshot import BankState, Snapshot
from pmem.step import Draft
from pmem.threshold import Threshold
from pmem.words import FILLER

WITHOUT_MODEL = frozenset({"never", "rules", "full_bank", "retrieval", "oracle"})
TRAINED = frozenset({"prompted", "sft", "sft_grpo"})
FULL_BANK = GateProfile(hygiene=False, budget=False, duplicate=False)
RETRIEVAL = GateProfile(budget=False, duplicate=False)
BANKLESS = GateProfile(citation=False, noted=False)
ADVISOR = GateProfile(citation=False, duplicate=False, noted=False)
ALWAYS = GateProfile(duplicate=False, noted=False)
WORD = re.compile(r"\w+")
EMPTY_LIST = render_operations(())


class BatchPolicy(Protocol):
    """What the A/B harness and scoring ask of an arm."""

    @property
    def name(self) -> str: ...

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]: ...


class NeverPolicy:
    """Silence, without a model."""

    name = "never"

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """One silent result a snapshot."""
        return [_silent(snapshot) for snapshot in snapshots]


class FullBankPolicy:
    """Every knowledge and procedural entry, at every boundary: what happens without selection."""

    name = "full_bank"

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """The bank as one reminder; lifts hygiene, budget and duplicate."""
        return [_say(snapshot, _lines(snapshot.bank, _citable(snapshot.bank)), FULL_BANK) for snapshot in snapshots]


@dataclass(frozen=True, slots=True)
class RetrievalPolicy:
    """The `top_k` entries that BM25 finds nearest to the newest steps, at every boundary: relevance without timing."""

    top_k: int = 2
    name: str = "retrieval"

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """Lifts budget and duplicate."""
        return [_say(snapshot, _lines(snapshot.bank, self._nearest(snapshot)), RETRIEVAL) for snapshot in snapshots]

    def _nearest(self, snapshot: Snapshot) -> list[str]:
        from rank_bm25 import BM25Okapi

        entries = [entry for entry in snapshot.bank.entries if entry.kind != "status"]
        if not entries:
            return []
        query = " ".join(f"{step.thought or ''} {step.call}" for step in snapshot.window[-2:])
        scores = BM25Okapi([words(entry.content) or ["-"] for entry in entries]).get_scores(words(query))
        order = sorted(range(len(entries)), key=lambda place: (-scores[place], place))
        return [entries[place].id for place in order[: self.top_k]]


class BanklessPolicy:
    """A model arm whose snapshots have lost their bank: nothing to cite, nothing kept."""

    def __init__(self, inner: ModelPolicy) -> None:
        self.name = inner.name
        self.inner = inner

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """The inner policy's steps on an empty bank; its writes are dropped."""
        snapshots = list(snapshots)
        bare = [snapshot.model_copy(update={"bank": BankState(next_number=snapshot.bank.next_number)}) for snapshot in snapshots]
        results = self.inner.step_many(bare)
        return [
            replace(result, operations=(), bank_after=snapshot.bank, dropped=0) for result, snapshot in zip(results, snapshots)
        ]


@dataclass(slots=True)
class RandomPolicy:
    """The speaking policy's own text at boundaries chosen by a coin of a given rate: separates *when* from *how much*.

    The coin depends on the seed, the arm and the content of the window only, so a rerun throws the same.
    """

    speaker: BatchPolicy
    rate: float
    seed: int
    name: str = "random"

    def step_many(self, snapshots: Iterable[Snapshot]) -> list[StepResult]:
        """The model is asked only where the coin says speak."""
        snapshots = list(snapshots)
        chosen = [place for place, snapshot in enumerate(snapshots) if coin(self.seed, snapshot) < self.rate]
        spoken = dict(zip(chosen, self.speaker.step_many([snapshots[place] for place in chosen]) if chosen else []))
        return [spoken.get(place) or _silent(snapshot) for place, snapshot in enumerate(snapshots)]


class PlainPolicy(ModelPolicy):
    """A model policy that may be spared its list: the decision is then read after an empty one.

    An untrained model rarely closes a valid list, and a step without one is malformed before anything is read; the empty
    list is the kindest reading of what it would decide. The prompted arm uses it, on snapshots and live.
    """

    empty_lists: bool = False

    def write_lists(self, drafts: list[Draft], deadline: float | None) -> None:
        if not self.empty_lists:
            super().write_lists(drafts, deadline)
            return
        for draft in drafts:
            draft.take_answer(Completion(text=EMPTY_LIST, finish_reason="stop", tokens_in=0, tokens_out=0), self.note(draft))


class WritingPolicy(PlainPolicy):
    """A model policy that scores: it writes reminders only where a later threshold may want them, or where one was needed.

    Written are snapshots whose raw probability reaches `floor`, at most the share `max_share` of a batch, and those in `needed`.
    """

    floor: float = 0.0
    max_share: float = 1.0
    needed: frozenset[str] = frozenset()

    def take_verdicts(self, drafts: list[Draft], deadline: float | None) -> None:
        probs = [draft.read.prob_speak if draft.read else 0.0 for draft in drafts]
        ranked = sorted(range(len(drafts)), key=lambda place: -probs[place])
        allowed = set(ranked[: int(self.max_share * len(drafts) + 0.999)])
        for place, draft in enumerate(drafts):
            wanted = draft.snapshot.snapshot_id in self.needed
            speaks = wanted or (probs[place] >= self.floor and place in allowed)
            draft.set_verdict(speaks=speaks, threshold=0.0 if speaks else self.floor)
            if not speaks:
                draft.settle("below_threshold")


def make_arm(
    arm: str, backend: Backend | None, *, threshold: Threshold | None = None, limits: PromptLimits | None = None,
    grammar: bool = False, rate: float = 0.0, seed: int = 17, max_tokens: tuple[int, int] = (384, 160),
    empty_lists: bool = False, plan_notes: bool = False,
) -> BatchPolicy:  # fmt: skip
    """The policy of an arm. `threshold` belongs to the model behind `backend`; `rate` is the coin of `random`."""
    plain: dict[str, BatchPolicy] = {
        "never": NeverPolicy(), "rules": RulesPolicy(), "full_bank": FullBankPolicy(), "retrieval": RetrievalPolicy(),
    }  # fmt: skip
    if arm in plain:
        return plain[arm]
    assert backend is not None, f"arm {arm} needs a model"
    always = arm in {"always", "random", "advisor"}
    profile = {"always": ALWAYS, "random": ALWAYS, "injection_only": BANKLESS, "advisor": ADVISOR}.get(arm, RUNTIME)
    policy = PlainPolicy(
        backend, name=arm, threshold=_zero(backend) if always else threshold, profile=profile, grammar=grammar, limits=limits,
        list_max_tokens=max_tokens[0], reminder_max_tokens=max_tokens[1], timeout_ms=None, plan_notes=plan_notes,
    )  # fmt: skip
    policy.empty_lists = empty_lists
    if arm == "random":
        return RandomPolicy(policy, rate, seed)
    return BanklessPolicy(policy) if arm in {"injection_only", "advisor"} else policy


def coin(seed: int, snapshot: Snapshot) -> float:
    """A number in [0, 1) from the seed and what the snapshot shows."""
    shown = snapshot.model_dump_json(exclude={"bank", "last_reminder"})
    digest = hashlib.sha256(f"pmem.random/1:{seed}:{shown}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def words(text: str) -> list[str]:
    """Case-folded words that tell something."""
    return [word for word in WORD.findall(text.casefold()) if word not in FILLER]


def _zero(backend: Backend) -> Threshold:
    return Threshold.plain(0.0, model_hash=backend.model_hash or "")


def _silent(snapshot: Snapshot) -> StepResult:
    return StepResult(decision="silent", reason="model_silent", bank_after=snapshot.bank)


def _citable(bank: BankState) -> list[str]:
    return [entry.id for entry in bank.entries if entry.kind != "status"]


def _lines(bank: BankState, ids: Sequence[str]) -> str:
    content = {entry.id: entry.content for entry in bank.entries}
    return "\n".join(f"{content[name]} [{name}]" for name in ids)


def _say(snapshot: Snapshot, text: str, profile: GateProfile) -> StepResult:
    """A reminder without a model, through the same gates."""
    decision, reason = apply_gates(text or None, snapshot=snapshot, bank_after=snapshot.bank, prompt=text, profile=profile)
    if not text:
        return replace(_silent(snapshot), reason="bank_empty")
    cited = tuple(_citable(snapshot.bank)) if profile is FULL_BANK else tuple(re.findall(r"\[(tm-[kp]-\d+)\]", text))
    return replace(_silent(snapshot), decision=decision, reason=reason, reminder=text, cited=cited)
