"""Flips between two seed sets, counted on labels made by hand."""

from pathlib import Path

import pytest

from data.label_noise import label_noise, main, wilson
from data.labels import write_labels
from pmem.errors import UserError
from tests.data.make import label_row


def rows(verdicts: str, seed_set: int) -> list[dict[str, object]]:
    """n = need, q = not needed, u = unknown, one snapshot a letter, each with a candidate."""
    names = {"n": "need", "q": "not_needed", "u": "unknown"}
    made = []
    for place, letter in enumerate(verdicts):
        common = {"snapshot_id": f"s{place}", "verdict": names[letter], "seed_set": seed_set}
        made.append(label_row(**common))
        gain = {"n": 0.5, "q": 0.0, "u": 0.2}[letter]
        made.append(label_row(**common, candidate_id="c", paired_diff=gain, paired_std_error=0.1, reminder_text="x", cost=0.01))
    return made


def test_flips_and_differences() -> None:
    noise = label_noise(rows("nnqqqu", 0), rows("nqqqun", 1))
    assert (noise.total, noise.flipped, noise.differing) == (6, 1, 3)
    assert noise.table["need", "not_needed"] == 1 and noise.spread is not None


def test_the_command_says_the_share_with_its_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_labels(tmp_path / "a.parquet", rows("nnqq", 0))
    write_labels(tmp_path / "b.parquet", rows("nqqq", 1))
    assert main([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]) == 0
    assert "1 of 4 verdicts flip = 25.0% [4.6%, 69.9%]" in capsys.readouterr().out


def test_what_cannot_be_compared_is_a_sentence() -> None:
    with pytest.raises(UserError, match="same seed set"):
        label_noise(rows("nq", 0), rows("nq", 0))
    with pytest.raises(UserError, match="in both files"):
        label_noise(rows("nq", 0), [])


def test_wilson_at_the_edges() -> None:
    low, high = wilson(0, 100)
    assert low == pytest.approx(0.0, abs=1e-9) and high == pytest.approx(0.037, abs=0.001)
