"""Near-duplicate snapshots must not straddle splits: MinHash over word shingles finds them, the less precious copy goes.

    index = NearDuplicates(threshold=0.85)
    index.add(snapshot_id, split, text); ...; index.straddling()      # ids to leave out

Jaccard similarity of the sets of 4-word shingles; within one split duplicates may stay (consecutive steps of a run always are).
"""

import re
import zlib
from functools import lru_cache

import numpy as np
from datasketch import MinHash, MinHashLSH

NUM_PERM = 64
SHINGLE_WORDS = 4
PRECEDENCE = ("certify", "test", "heldout", "fit", "dev", "train")
"""Who keeps a snapshot that two splits share: the splits that figures are read from, before those that are trained on."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


class NearDuplicates:
    """Collect signatures, then name what must go. `threshold`: Jaccard similarity from which two snapshots count as the same."""

    def __init__(self, threshold: float, *, num_perm: int = NUM_PERM) -> None:
        self._threshold = threshold
        self._template = MinHash(num_perm=num_perm, seed=1, hashfunc=_identity)
        self._rows: list[tuple[int, str, str, MinHash]] = []

    def add(self, snapshot_id: str, split: str, text: str) -> None:
        """Take in one snapshot."""
        signature = self._template.copy()
        if hashes := shingles(text):
            signature.update_batch(hashes)
        self._rows.append((PRECEDENCE.index(split), snapshot_id, split, signature))

    def straddling(self) -> set[str]:
        """Ids of snapshots that are near-duplicates of one that is kept in another split. Deterministic in the set of rows."""
        index = MinHashLSH(threshold=self._threshold, num_perm=len(self._template.hashvalues))
        kept: dict[str, tuple[str, MinHash]] = {}
        dropped: set[str] = set()
        for _, snapshot_id, split, signature in sorted(self._rows, key=lambda row: row[:2]):
            near = (kept[name] for name in index.query(signature))
            if any(other != split and twin.jaccard(signature) >= self._threshold for other, twin in near):
                dropped.add(snapshot_id)
            elif snapshot_id not in kept:
                kept[snapshot_id] = (split, signature)
                index.insert(snapshot_id, signature)
        return dropped


def shingles(text: str) -> list[int]:
    """32-bit hashes of the 4-word shingles, each once."""
    words = np.fromiter(map(_word_hash, _WORD.findall(text.lower())), dtype=np.uint64)
    mixed = np.zeros(max(len(words) - SHINGLE_WORDS + 1, min(len(words), 1)), dtype=np.uint64)
    for offset in range(min(SHINGLE_WORDS, len(words))):
        mixed = mixed * _MULTIPLIER + words[offset : offset + len(mixed)]
    return [int(value) for value in np.unique(mixed >> np.uint64(32))]


@lru_cache(maxsize=200_000)
def _word_hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) + 1


def _identity(value: int) -> int:
    return value
