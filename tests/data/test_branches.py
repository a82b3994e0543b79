"""Branches: figures, verdicts by the definitions of calibration, candidates, and common random numbers."""

import pytest

from data.agent import STRENGTHS
from data.branches import Measured, candidates_for, continuation_seeds, measure, run_branches, verdict_of
from data.episode import Episode
from pmem.bank import cited_sentence
from pmem.snapshot import BankState, Entry


def entry(number: int, content: str, kind: str = "knowledge") -> Entry:
    return Entry(id=f"tm-{kind[0]}-{number}", kind=kind, content=content, created=0, touched=0)


def needing() -> tuple[Episode, str]:
    """An episode at a point of need, and the sentence that would help."""
    for seed in range(60):
        episode = Episode("files", seed, STRENGTHS["medium"], seed, num_acts=12)
        while not episode.done:
            episode.advance()
            truth = episode.truth()
            wanted = [fact["text"] for fact in truth["facts"] if fact["key"] in set(truth["lost"]) & set(truth["depends"])]
            if truth["need_true"] and not episode.done and wanted:
                return episode, wanted[0]
    raise AssertionError("no need in sixty episodes")


def test_figures_of_pairs() -> None:
    figures = measure([True, True, True, False], [False, False, True, False])
    assert (figures.num_branches, figures.num_success, figures.value, figures.paired_diff) == (4, 3, 0.75, 0.5)
    assert figures.paired_std_error == pytest.approx(0.288675, abs=1e-6)
    assert measure([True, False], None).paired_diff is None
    assert measure([True, False], [True, False]).all_equal


def figures(diff: float, error: float, *, equal: bool = False) -> Measured:
    return Measured(8, 4, 0.5, 0.1, diff, error, equal)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, "not_needed"),
        ({"a": figures(0.0, 0.0, equal=True)}, "not_needed"),
        ({"a": figures(0.5, 0.2), "b": figures(-0.2, 0.1)}, "need"),
        ({"a": figures(-0.2, 0.1), "b": figures(0.0, 0.0, equal=True)}, "not_needed"),
        ({"a": figures(0.125, 0.125)}, "unknown"),
        ({"a": figures(0.02, 0.0)}, "not_needed"),
    ],
)
def test_verdicts(measured: dict[str, Measured], expected: str) -> None:
    assert verdict_of(measured, dict.fromkeys(measured, 0.02)) == expected


def test_a_reminder_is_one_sentence_and_its_citation() -> None:
    assert cited_sentence(entry(3, "use tabs")) == "Use tabs. [tm-k-3]"
    failed = entry(4, "bash bin/x failed (first at step 2): pack: mode a failed here; pack in mode b", "procedural")
    assert cited_sentence(failed) == "Pack: mode a failed here; pack in mode b. [tm-p-4]"


def test_what_bears_on_the_next_acts_comes_first_and_a_decoy_last() -> None:
    episode, helpful = needing()
    bank = BankState(entries=(entry(1, "The moon is full."), entry(2, helpful), entry(3, "Rain is wet.")))
    candidates = candidates_for(episode, bank, 2)
    assert candidates[0].cited_ids == ("tm-k-2",) and candidates[1].cited_ids[0] in {"tm-k-1", "tm-k-3"}
    assert candidates[0].cost == pytest.approx(0.01 + 0.0002 * -(-len(candidates[0].text) // 4))
    assert candidates_for(episode, BankState(), 2) == []


def test_a_helpful_reminder_is_worth_more_than_silence_and_a_decoy_is_not() -> None:
    episode, helpful = needing()
    bank = BankState(entries=(entry(1, "The moon is full."), entry(2, helpful)))
    outcomes = run_branches(episode, candidates_for(episode, bank, 2), continuation_seeds(0, 16))
    assert sum(outcomes["tm-k-2"]) > sum(outcomes[None]) + 3
    assert sum(outcomes["tm-k-1"]) <= sum(outcomes[None])
    assert run_branches(episode, candidates_for(episode, bank, 2), continuation_seeds(0, 16)) == outcomes


def test_seed_sets_differ() -> None:
    assert len({*continuation_seeds(0, 8), *continuation_seeds(1, 8)}) == 16
