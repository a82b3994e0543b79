"""Batches of rows of like length and even mix: little padding, every row once an epoch, the same order for the same seed.

An epoch's shuffle is cut into pools of some batches; inside a pool tasks are sorted by the length of their rows, then the batches
are shuffled.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from train.rows import TokenRow
from train.shared_prefix import SharedRows

POOL_BATCHES = 12
IGNORED = -100


class LengthBuckets:
    """A batch sampler: lists of row indices. `set_epoch` chooses the shuffle, so a resumed run continues in the same order.

    Every batch holds speaking and silent rows in the proportion of all rows, as far as possible of the same `groups` (tasks): what
    a batch teaches about the decision is then the comparison, not how often to speak nor about which task.
    """

    def __init__(
        self, lengths: Sequence[int], speaks: Sequence[bool], groups: Sequence[str], *, batch_size: int, seed: int
    ) -> None:
        self.lengths = list(lengths)
        self.speaks = list(speaks)
        self.groups = list(groups)
        together: dict[str, list[int]] = {}
        for length, group in zip(lengths, groups):
            together.setdefault(group, []).append(length)
        self._sizes = {group: sum(members) / len(members) for group, members in together.items()}
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = random.Random(self.seed * 1_000_003 + self.epoch)
        order = self._mixed(generator)
        pool = self.batch_size * POOL_BATCHES
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            batches += self._cut(order[start : start + pool])
        generator.shuffle(batches)
        return iter(batches)

    def _mixed(self, generator: random.Random) -> list[int]:
        """All groups shuffled, both kinds of rows spread evenly."""
        kinds = [[index for index, kind in enumerate(self.speaks) if kind is wanted] for wanted in (False, True)]
        names = sorted(self._sizes)
        generator.shuffle(names)
        rank = {name: place for place, name in enumerate(names)}
        places: list[tuple[float, int]] = []
        for members in kinds:
            generator.shuffle(members)
            members.sort(key=lambda index: rank[self.groups[index]])
            places += [((place + 0.5) / len(members), index) for place, index in enumerate(members)]
        return [index for _, index in sorted(places)]

    def _cut(self, pool: list[int]) -> list[list[int]]:
        """A pool in batches of rows of like length, both kinds spread over them in proportion."""
        num_batches = -(-len(pool) // self.batch_size)
        batches: list[list[int]] = [[] for _ in range(num_batches)]
        for wanted in (False, True):
            ranked = sorted((index for index in pool if self.speaks[index] is wanted), key=self._place)
            for place, index in enumerate(ranked):
                batches[place * num_batches // len(ranked)].append(index)
        return _levelled(batches, self.batch_size)

    def _place(self, index: int) -> tuple[float, str, int]:
        """Groups by their mean length, the rows of a group by theirs."""
        return self._sizes[self.groups[index]], self.groups[index], self.lengths[index]


def _levelled(batches: list[list[int]], size: int) -> list[list[int]]:
    """Move rows from batches that are too large into ones with room; order is kept as far as possible."""
    spare = [index for batch in batches for index in batch[size:]]
    batches = [batch[:size] for batch in batches]
    for batch in batches:
        while spare and len(batch) < size:
            batch.append(spare.pop(0))
    return [batch for batch in batches if batch]


@dataclass(frozen=True, slots=True)
class Collator:
    """Rows -> tensors. The first `num_shared` tokens, the same in all rows, are given once; `labels` follow the rest.

    `decision_weights` (by `speaks`): what one decision of that kind weighs, see `train.loss`.
    """

    pad_id: int
    num_shared: int
    decision_weights: tuple[float, float] = (1.0, 1.0)

    def __call__(self, rows: Sequence[TokenRow]) -> dict[str, torch.Tensor]:
        """Keys: prefix_ids (1, shared); input_ids, attention_mask, labels (rows, length); the rest are (rows,)."""
        rests = [(*row.prompt_ids[self.num_shared :], *row.completion_ids) for row in rows]
        length = max(map(len, rests))
        ids = torch.full((len(rows), length), self.pad_id)
        labels = torch.full((len(rows), length), IGNORED)
        mask = torch.zeros((len(rows), length), dtype=torch.long)
        starts = [len(row.prompt_ids) - self.num_shared for row in rows]
        for index, (row, rest, start) in enumerate(zip(rows, rests, starts)):
            ids[index, : len(rest)] = torch.tensor(rest)
            mask[index, : len(rest)] = 1
            labels[index, start : len(rest)] = torch.tensor(row.completion_ids)
            if row.decision_label is not None:
                labels[index, start + row.decision_index] = row.decision_label
        return {
            "prefix_ids": torch.tensor([rows[0].prompt_ids[: self.num_shared]], dtype=torch.long).reshape(1, self.num_shared),
            "input_ids": ids,
            "attention_mask": mask,
            "labels": labels,
            "decision_index": torch.tensor([start + row.decision_index for start, row in zip(starts, rows)]),
            "decision_weight": torch.tensor([self.decision_weights[row.speaks] for row in rows]),
            "speaks": torch.tensor([row.speaks for row in rows]),
            "row_weight": torch.tensor([row.weight for row in rows]),
        }


def shared_rows(batch: dict[str, torch.Tensor]) -> SharedRows:
    """The tensors of a collated batch as the forward pass takes them."""
    ids = batch["input_ids"]
    owner = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
    prefix_ids = batch["prefix_ids"]
    return SharedRows(prefix_ids, torch.ones_like(prefix_ids), owner, ids, batch["attention_mask"])


def decision_weights(rows: Sequence[TokenRow], speak_share: float | None) -> tuple[float, float]:
    """Weights (silent, speaking) of a decision so that speaking rows carry `speak_share` of all decision weight; mean 1."""
    total = sum(row.weight for row in rows)
    speaking = sum(row.weight for row in rows if row.speaks)
    if speak_share is None or speaking in (0.0, total):
        return 1.0, 1.0
    return (1 - speak_share) * total / (total - speaking), speak_share * total / speaking
