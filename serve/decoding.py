"""The decoding loop of the embedded route: prefill a batch with reuse of kept prefixes, then one token a row a pass.

Rows are padded on the left. A row's columns are: pad, reused tokens, gap, new tokens, generated tokens; positions count only
tokens, so padding and gaps change nothing but the order of additions. A row that has ended leaves the batch.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache

from serve.kv_rows import KvRows
from serve.prefix_cache import PrefixCache

MIN_KEPT = 64
"""A row is kept for reuse when it computed at least this many new tokens; shorter ones are cheaper than the copy."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One generation under way. `ids` is the request, `new_ids` what was generated; `matcher` is an xgrammar one."""

    ids: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    generator: torch.Generator | None = None
    matcher: Any = None
    new_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    num_cached: int = 0
    keep: bool = True


@dataclass(slots=True)
class Batch:
    """Cache, mask `[rows, width]` (1 = token) and next position `[rows]` of the rows that are still running."""

    kv: Cache
    mask: torch.Tensor
    position: torch.Tensor

    def select(self, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.mask.device)
        self.kv.batch_select_indices(index)
        self.mask, self.position = self.mask[index], self.position[index]


class Decoder:
    """One model and tokenizer. `plain`: every layer is full attention, so prefixes (`max_bytes` of them) can be kept."""

    def __init__(self, model: Any, tokenizer: Any, *, stop_ids: frozenset[int], plain: bool, max_bytes: int) -> None:
        self.model, self.tokenizer, self.stop_ids = model, tokenizer, stop_ids
        self.reuse = plain and max_bytes > 0
        self._config, self._plain = model.config.get_text_config(), plain
        self.device = model.device
        self.kept = PrefixCache(max_bytes)
        self._bitmask: torch.Tensor | None = None

    def prefill(self, requests: Sequence[tuple[int, ...]], extra: int = 0) -> tuple[Batch, torch.Tensor, list[int]]:
        """Run distinct requests up to their last token.

        Returns the batch, with room for `extra` more tokens a row, the logits there `[rows, vocabulary]`, and the number of
        reused tokens of each row.
        """
        strips = [self.kept.find(ids) if self.reuse else None for ids in requests]
        reused = [0 if strip is None else strip.shape[3] for strip in strips]
        num_reused, num_new = max(reused), max(len(ids) - n for ids, n in zip(requests, reused))
        width = num_reused + num_new + extra
        kv = KvRows(self._config.num_hidden_layers, width) if self._plain else DynamicCache(config=self._config)
        mask = torch.zeros((len(requests), width), dtype=torch.long)
        inputs, positions = (torch.zeros((len(requests), num_new), dtype=torch.long) for _ in range(2))
        for row, (ids, n) in enumerate(zip(requests, reused)):
            fresh = len(ids) - n
            mask[row, num_reused - n : num_reused] = 1
            mask[row, num_reused + num_new - fresh : num_reused + num_new] = 1
            inputs[row, num_new - fresh :] = torch.tensor(ids[n:])
            positions[row, num_new - fresh :] = torch.arange(n, len(ids))
        if num_reused:
            assert isinstance(kv, KvRows)
            kv.load(strips, num_reused)
        batch = Batch(kv, mask.to(self.device), torch.tensor([len(ids) for ids in requests], device=self.device))
        logits = self._forward(batch, inputs.to(self.device), positions.to(self.device))
        for row, (ids, n) in enumerate(zip(requests, reused)):
            if len(ids) - n >= MIN_KEPT and not extra:
                self._keep(batch, row, ids)
        return batch, logits, reused

    def keep_prefix(self, ids: tuple[int, ...]) -> None:
        """Compute and keep a beginning that many coming requests share, unless it is there or too short to pay."""
        strip = self.kept.find((*ids, -1))
        if len(ids) - (0 if strip is None else strip.shape[3]) >= MIN_KEPT:
            self.prefill([ids])

    def generate(self, rows: list[Row], *, deadline: float | None = None) -> None:
        """Fill `new_ids`, `text` and `finish_reason` of each row. Raises TimeoutError past `deadline` (time.monotonic)."""
        unique = list(dict.fromkeys(row.ids for row in rows))
        batch, logits, reused = self.prefill(unique, extra=max(row.max_tokens for row in rows))
        order = [unique.index(row.ids) for row in rows]
        for index, (row, place) in enumerate(zip(rows, order)):
            row.num_cached, row.keep = reused[place], place not in order[:index]
        if order != list(range(len(unique))):
            batch.select(order)
            logits = logits[order]
        running = list(rows)
        while True:
            tokens = self._choose(logits, running)
            alive = [index for index, (row, token) in enumerate(zip(running, tokens)) if not self._append(row, token)]
            self._keep_ended(batch, running, alive)
            if not alive:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("the deadline passed while the model was writing")
            if len(alive) < len(running):
                batch.select(alive)
                running = [running[index] for index in alive]
            inputs = torch.tensor([[row.new_ids[-1]] for row in running], device=self.device)
            batch.mask[:, batch.kv.get_seq_length()] = 1
            logits = self._forward(batch, inputs, batch.position[:, None])
            batch.position += 1

    def _forward(self, batch: Batch, inputs: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """One pass over `inputs` `[rows, new]`; logits of the last column, float32 `[rows, vocabulary]`."""
        num_columns = batch.kv.get_seq_length() + inputs.shape[1]
        output = self.model(
            input_ids=inputs,
            attention_mask=batch.mask[:, :num_columns],
            position_ids=positions,
            past_key_values=batch.kv,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _choose(self, logits: torch.Tensor, rows: list[Row]) -> list[int]:
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

    def _append(self, row: Row, token: int) -> bool:
        """Take a token into a row; True when the row has ended."""
        if token in self.stop_ids:
            return self._end(row, "stop")
        row.new_ids.append(token)
        if row.matcher is not None:
            row.matcher.accept_token(token)
        if self._stopped(row):
            return True
        return self._end(row, "length") if len(row.new_ids) >= row.max_tokens else False

    def _stopped(self, row: Row) -> bool:
        if not row.stop:
            return False
        tail = self.decode(row.new_ids[-(max(map(len, row.stop)) + 4) :])
        if not any(stop in tail for stop in row.stop):
            return False
        text = self.decode(row.new_ids)
        ends = [text.index(stop) + len(stop) for stop in row.stop if stop in text]
        if not ends:  # the tail began inside a character; the whole text is what counts
            return False
        row.text, row.finish_reason = text[: min(ends)], "stop"
        return True

    def _end(self, row: Row, reason: str) -> bool:
        row.text, row.finish_reason = self.decode(row.new_ids).rstrip("\ufffd"), reason
        return True

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _keep_ended(self, batch: Batch, running: list[Row], alive: list[int]) -> None:
        for index in sorted(set(range(len(running))) - set(alive)):
            row = running[index]
            if row.keep and len(row.ids) - row.num_cached >= MIN_KEPT:
                self._keep(batch, index, row.ids + tuple(row.new_ids))

    def _keep(self, batch: Batch, index: int, ids: tuple[int, ...]) -> None:
        if not self.reuse:
            return
        assert isinstance(batch.kv, KvRows)
        columns = batch.mask[index, : batch.kv.get_seq_length()].nonzero()[:, 0]
        self.kept.keep(ids[: len(columns)], batch.kv.strip(index, columns))
