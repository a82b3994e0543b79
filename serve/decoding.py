"""The decoding loop of the embedded route: prefill a batch with reuse of kept prefixes, then a pass a token, or fewer.

Rows are padded on the left. A row's columns are: pad, reused tokens, gap, new tokens, drafts, generated tokens; positions count
only tokens, so padding and gaps change nothing but the order of additions. Each pass also computes a row's draft; as long as
the model chooses the drafted tokens they are taken without a pass of their own, the columns of the rest are masked out. A row
that has ended leaves the batch.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

from serve.kv_rows import KvRows
from serve.prefix_cache import PrefixCache
from serve.row import Row

MIN_KEPT = 64
"""A row is kept for reuse when it computed at least this many new tokens; shorter ones are cheaper than the copy."""
Ids = tuple[int, ...]


@dataclass(slots=True)
class Batch:
    """Cache, mask `[rows, width]` (1 = token) and position of the next input `[rows]` of the rows that are still running."""

    kv: Cache
    mask: torch.Tensor
    position: torch.Tensor

    @property
    def num_columns(self) -> int:
        """Columns in use."""
        return self.kv.get_seq_length()

    def select(self, rows: list[int]) -> None:
        """Keep (or repeat) the given rows."""
        index = torch.tensor(rows, device=self.mask.device)
        self.kv.batch_select_indices(index)
        self.mask, self.position = self.mask[index], self.position[index]

    def settle(self, taken: list[int], num_drafted: int) -> None:
        """After a pass with `num_drafted` draft columns: unmask what was taken of the drafts, move on by what was taken."""
        counts = torch.tensor(taken, device=self.mask.device)
        if num_drafted:
            places = torch.arange(num_drafted, device=self.mask.device)
            end = self.num_columns
            self.mask[:, end - num_drafted : end] = (places[None] < counts[:, None] - 1).long()
        self.position += counts


class Decoder:
    """One model. `plain`: every layer is full attention, so prefixes (`max_bytes` of them) can be kept."""

    def __init__(self, model: Any, *, plain: bool, max_bytes: int) -> None:
        self.model, self.device = model, model.device
        self.reuse = plain and max_bytes > 0
        self.kept = PrefixCache(max_bytes)
        self._config, self._plain = model.config.get_text_config(), plain
        self._bitmask: torch.Tensor | None = None

    @property
    def kept_tokens(self) -> int:
        """Tokens that the kept prefixes may hold together."""
        config = self._config
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        num_bytes = 2 * config.num_hidden_layers * heads * dim * self.model.dtype.itemsize
        return self.kept.max_bytes // num_bytes if self.reuse else sys.maxsize

    def prefill(
        self, requests: Sequence[Ids], *, drafts: Sequence[Ids] | None = None, extra: int = 0
    ) -> tuple[Batch, torch.Tensor, list[int]]:
        """Run distinct requests up to their last token and through their drafts.

        Returns the batch, with room for `extra` more columns, the logits from the last token of the request on
        `[rows, 1 + draft, vocabulary]`, and the number of reused tokens of each row.
        """
        drafts = drafts or [()] * len(requests)
        strips = [self.kept.find(ids) if self.reuse else None for ids in requests]
        reused = [0 if strip is None else strip.shape[3] for strip in strips]
        num_reused, num_new = max(reused), max(len(ids) - n for ids, n in zip(requests, reused))
        num_drafted = max(map(len, drafts))
        width = num_reused + num_new + num_drafted + extra
        kv = KvRows(self._config.num_hidden_layers, width) if self._plain else DynamicCache(config=self._config)
        mask = torch.zeros((len(requests), width), dtype=torch.long)
        inputs, positions = (torch.zeros((len(requests), num_new + num_drafted), dtype=torch.long) for _ in range(2))
        for row, (ids, n, draft) in enumerate(zip(requests, reused, drafts)):
            first, end = num_new - len(ids) + n, num_new + len(draft)
            mask[row, num_reused - n : num_reused] = 1
            mask[row, num_reused + first : num_reused + end] = 1
            inputs[row, first:end] = torch.tensor(ids[n:] + draft)
            positions[row, first:end] = torch.arange(n, len(ids) + len(draft))
        if num_reused:
            assert isinstance(kv, KvRows)
            kv.load(strips, num_reused)
        last = torch.tensor([len(ids) - 1 for ids in requests], device=self.device)
        batch = Batch(kv, mask.to(self.device), last)
        logits = self._forward(batch, inputs.to(self.device), positions.to(self.device), 1 + num_drafted)
        for row, (ids, n) in enumerate(zip(requests, reused)):
            if len(ids) - n >= MIN_KEPT and not extra:
                self._keep(batch, row, ids)
        return batch, logits, reused

    def keep_prefix(self, ids: Ids) -> None:
        """Compute and keep a beginning that many coming requests share, unless it is there or too short to pay."""
        strip = self.kept.find((*ids, -1))
        if len(ids) - (0 if strip is None else strip.shape[3]) >= MIN_KEPT:
            self.prefill([ids])

    def generate(self, rows: list[Row], *, deadline: float | None = None) -> None:
        """Fill `new_ids`, `text` and `finish_reason` of each row. Raises TimeoutError past `deadline` (time.monotonic)."""
        batch, logits, drafts = self._begin(rows)
        running = list(rows)
        while True:
            alive, taken = self._accept(logits, running, drafts)
            batch.settle(taken, logits.shape[1] - 1)
            self._keep_ended(batch, running, alive)
            if not alive:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("the deadline passed while the model was writing")
            if len(alive) < len(running):
                batch.select(alive)
                running = [running[index] for index in alive]
            drafts = [row.draft() if self._plain else () for row in running]
            logits = self._step(batch, running, drafts)

    def _begin(self, rows: list[Row]) -> tuple[Batch, torch.Tensor, list[Ids]]:
        """Prefill the distinct requests of the rows, with their first drafts."""
        unique = {row.ids: row.draft() if self._plain else () for row in rows}
        extra = max(row.max_tokens + sum(map(len, row.skeletons)) for row in rows)
        batch, logits, reused = self.prefill(list(unique), drafts=list(unique.values()), extra=extra)
        places = {ids: place for place, ids in enumerate(unique)}
        order = [places[row.ids] for row in rows]
        for index, (row, place) in enumerate(zip(rows, order)):
            row.num_cached, row.keep = reused[place], place not in order[:index]
        if order != list(range(len(unique))):
            batch.select(order)
            logits = logits[order]
        return batch, logits, [unique[row.ids] for row in rows]

    def _step(self, batch: Batch, rows: list[Row], drafts: list[Ids]) -> torch.Tensor:
        """One pass over the last token of each row and its draft; logits `[rows, 1 + draft, vocabulary]`."""
        num_drafted, start = max(map(len, drafts)), batch.num_columns
        inputs = torch.zeros((len(rows), 1 + num_drafted), dtype=torch.long)
        mask = torch.zeros_like(inputs)
        for index, (row, draft) in enumerate(zip(rows, drafts)):
            inputs[index, : 1 + len(draft)] = torch.tensor([row.new_ids[-1], *draft])
            mask[index, : 1 + len(draft)] = 1
        batch.mask[:, start : start + 1 + num_drafted] = mask.to(self.device)
        positions = batch.position[:, None] + torch.arange(1 + num_drafted, device=self.device)[None]
        return self._forward(batch, inputs.to(self.device), positions, 1 + num_drafted)

    def _forward(self, batch: Batch, inputs: torch.Tensor, positions: torch.Tensor, num_logits: int) -> torch.Tensor:
        """One pass over `inputs` `[rows, new]`; float32 logits of the last columns `[rows, num_logits, vocabulary]`."""
        num_columns = batch.num_columns + inputs.shape[1]
        output = self.model(
            input_ids=inputs,
            attention_mask=batch.mask[:, :num_columns],
            position_ids=positions,
            past_key_values=batch.kv,
            use_cache=True,
            logits_to_keep=num_logits,
        )
        return output.logits.float()

    def _accept(self, logits: torch.Tensor, rows: list[Row], drafts: list[Ids]) -> tuple[list[int], list[int]]:
        """Let every row take tokens as long as it chooses its draft; places of the rows that go on, tokens taken by each."""
        taken, pending = [0] * len(rows), list(range(len(rows)))
        alive: list[int] = []
        for place in range(logits.shape[1]):
            going: list[int] = []
            chosen = self._choose(logits[pending, place], [rows[index] for index in pending]) if pending else []
            for index, token in zip(pending, chosen):
                taken[index] += 1
                if rows[index].take(token):
                    continue
                drafted = place < len(drafts[index]) and drafts[index][place] == token
                (going if drafted else alive).append(index)
            pending = going
        return sorted(alive), taken

    def _choose(self, logits: torch.Tensor, rows: list[Row]) -> list[int]:
        """The next token of each row from `[rows, vocabulary]`: the likeliest, or a draw."""
        if any(row.matcher is not None for row in rows):
            logits = self._masked(logits, rows)
        best: list[int] = logits.argmax(dim=-1).tolist()
        for index, row in enumerate(rows):
            if row.temperature > 0:
                probs = torch.softmax(logits[index] / row.temperature, dim=-1)
                best[index] = int(torch.multinomial(probs.cpu(), 1, generator=row.generator))
        return best

    def _masked(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        import xgrammar

        if self._bitmask is None or self._bitmask.shape[0] < len(rows):
            self._bitmask = xgrammar.allocate_token_bitmask(len(rows), logits.shape[-1])
        bitmask = self._bitmask[: len(rows)]
        xgrammar.reset_token_bitmask(bitmask)
        for index, row in enumerate(rows):
            if row.matcher is not None:
                row.matcher.fill_next_token_bitmask(bitmask, index)
        logits = logits.clone()
        xgrammar.apply_token_bitmask_inplace(logits, bitmask.to(logits.device))
        return logits

    def _keep_ended(self, batch: Batch, running: list[Row], alive: list[int]) -> None:
        for index in sorted(set(range(len(running))) - set(alive)):
            row = running[index]
            if row.keep and len(row.ids) - row.num_cached >= MIN_KEPT:
                self._keep(batch, index, row.ids + tuple(row.new_ids))

    def _keep(self, batch: Batch, index: int, ids: Ids) -> None:
        if not self.reuse:
            return
        assert isinstance(batch.kv, KvRows)
        columns = batch.mask[index, : batch.num_columns].nonzero()[:, 0]
        self.kept.keep(ids[: len(columns)], batch.kv.strip(index, columns))
