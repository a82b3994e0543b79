"""Two futures of one moment: branches of an episode that differ only by a reminder (common random numbers), and what they show.

    values = run_branches(episode, candidates, seeds)      # values["tm-k-1"][k] pairs with values[None][k]

Pair k uses one continuation seed in the silent branch and in every candidate's; no memory takes part to the end; checks are real.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from data.agent import HORIZON
from data.envs.base import Fact, draw
from data.episode import Episode
from data.reminders import asserted, sentences
from pmem.bank import cited_sentence, estimate_tokens
from pmem.snapshot import BankState, Entry

COST_FIXED = 0.01
COST_PER_TOKEN = 0.0002


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reminder to be measured: the sentence of one bank entry, with its citation."""

    candidate_id: str
    text: str
    cited_ids: tuple[str, ...]

    @property
    def cost(self) -> float:
        """In units of success probability (docs/design/calibration.md)."""
        return COST_FIXED + COST_PER_TOKEN * estimate_tokens(self.text)


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean and standard error over the K branches, and over the K paired differences to silence (None for silence itself)."""

    num_branches: int
    num_success: int
    value: float
    std_error: float
    paired_diff: float | None = None
    paired_std_error: float | None = None
    all_equal: bool = True


def candidates_for(episode: Episode, bank: BankState, max_candidates: int) -> list[Candidate]:
    """The entries that bear on the next acts, what the agent lacks first, and at least one decoy when there is one."""
    depends, lost = episode.agent.depends(), episode.agent.lost()
    bearing: list[tuple[int, Entry]] = []
    decoys: list[tuple[float, Entry]] = []
    for entry in bank.entries:
        keys = [fact.key for fact in episode.task.facts.values() if speaks_of(entry.content, fact)]
        ranks = [(key not in lost, depends.index(key)) for key in keys if key in depends]
        if ranks:
            is_held, place = min(ranks)
            bearing.append((is_held * HORIZON + place, entry))
        else:
            decoys.append((draw("decoy", episode.task.task_id, episode.num_done, entry.id), entry))
    bearing.sort(key=lambda pair: (pair[0], pair[1].id))
    decoys.sort(key=lambda pair: (pair[0], pair[1].id))
    num_decoys = min(len(decoys), max(1, max_candidates - len(bearing)))
    chosen = [entry for _, entry in bearing][: max_candidates - num_decoys] + [entry for _, entry in decoys][:num_decoys]
    return [Candidate(entry.id, cited_sentence(entry), (entry.id,)) for entry in chosen]


def speaks_of(content: str, fact: Fact) -> bool:
    """Whether an entry gives some value of the fact, right or wrong."""
    return any(asserted(part, fact.subject, fact.kind.words) for part in sentences(content))


def continuation_seeds(seed_set: int, num_branches: int) -> list[int]:
    """The seeds of the K pairs, the same for every snapshot of a seed set."""
    return [int(draw("continuation", seed_set, k) * 2**31) for k in range(num_branches)]


def run_branches(episode: Episode, candidates: Sequence[Candidate], seeds: Sequence[int]) -> dict[str | None, list[bool]]:
    """Success of each branch by candidate id; key None holds the silent ones."""
    reminders: dict[str | None, str | None] = {None: None} | {candidate.candidate_id: candidate.text for candidate in candidates}
    return {name: [bool(episode.fork(seed).run_to_end(text).success) for seed in seeds] for name, text in reminders.items()}


def measure(outcomes: Sequence[bool], silent: Sequence[bool] | None) -> Measured:
    """Figures of one set of branches; `silent` are its pairs."""
    value, std_error = _mean_and_error([float(success) for success in outcomes])
    if silent is None:
        return Measured(len(outcomes), sum(outcomes), value, std_error)
    diffs = [float(mine) - float(its) for mine, its in zip(outcomes, silent, strict=True)]
    diff, diff_error = _mean_and_error(diffs)
    return Measured(len(outcomes), sum(outcomes), value, std_error, diff, diff_error, not any(diffs))


def verdict_of(measured: Mapping[str, Measured], costs: Mapping[str, float]) -> str:
    """`need`, `not_needed` or `unknown` over a snapshot's candidates (docs/design/calibration.md)."""
    if all(figures.all_equal for figures in measured.values()):
        return "not_needed"
    bounds = [(_low(figures), _high(figures), costs[name]) for name, figures in measured.items()]
    if any(low > cost for low, _, cost in bounds):
        return "need"
    return "not_needed" if all(high <= cost for _, high, cost in bounds) else "unknown"


def _low(figures: Measured) -> float:
    assert figures.paired_diff is not None and figures.paired_std_error is not None
    return figures.paired_diff - figures.paired_std_error


def _high(figures: Measured) -> float:
    assert figures.paired_diff is not None and figures.paired_std_error is not None
    return figures.paired_diff + figures.paired_std_error


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of the mean (0 for a single value)."""
    count = len(values)
    mean = sum(values) / count
    spread = sum((value - mean) ** 2 for value in values)
    return round(mean, 6), round(sqrt(spread / (count - 1) / count), 6) if count > 1 else 0.0
