"""Frozen splits by task: the hash of a rollout's `split_key` alone decides, so adding or removing tasks moves no other task.

train · dev · fit · certify · test by weight; `heldout` = whole families that are never trained on (docs/design/calibration.md).
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pmem.config import STRICT, bounded
from pmem.errors import UserError

HASHED_SPLITS = ("train", "dev", "fit", "certify", "test")
SPLITS = (*HASHED_SPLITS, "heldout")
SALT = "pmem.split/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitConfig:
    """How tasks fall into splits."""

    __pydantic_config__ = STRICT

    weights: dict[str, float] = field(
        default_factory=lambda: {"train": 0.50, "dev": 0.06, "fit": 0.12, "certify": 0.16, "test": 0.16}
    )
    """Share of the tasks a split gets; the shares are normalised. Changing them moves tasks between splits."""
    heldout_families: tuple[str, ...] = ()
    """Families that go to `heldout` whole; `data.replay` takes those the environments hold out when there are none here."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.weights) - set(HASHED_SPLITS))
        if unknown:
            raise UserError(f"splits: unknown split {unknown[0]!r} in weights; known are {', '.join(HASHED_SPLITS)}")
        bounded(self, 0, math.inf, "weights")
        if not 0 < sum(self.weights.values()) < math.inf:
            raise UserError("splits: weights must be finite and not all 0")


def assign_split(split_key: str, family: str, config: SplitConfig) -> str:
    """The split of a task. Only the key is hashed: datasets that share tasks must share splits."""
    if family in config.heldout_families:
        return "heldout"
    return split_of_fraction(hash_fraction(f"{SALT}:{split_key}"), config.weights)


def hash_fraction(text: str) -> float:
    """A number in [0, 1) from the first 52 bits of SHA-256 of `text`."""
    return int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:13], 16) / 16**13


def split_of_fraction(fraction: float, weights: Mapping[str, float]) -> str:
    """The split whose slice of [0, 1) holds `fraction`; slices follow the fixed order of `HASHED_SPLITS`."""
    total = sum(weights.values())
    edge, last = 0.0, ""
    for name in HASHED_SPLITS:
        weight = weights.get(name, 0.0) / total
        edge, last = edge + weight, name if weight else last
        if fraction < edge:
            return name
    return last
