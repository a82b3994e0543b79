"""One generation under way: what it was asked, what it has written, when it ends, and what it will likely write next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True, kw_only=True)
class Row:
    """`ids` is the request, `new_ids` what was generated; `matcher` is an xgrammar one.

    `skeletons`: texts in tokens that answers often begin with. They are only ever proposed: a token counts when the model
    itself chooses it, so they change how many passes an answer takes and not what it says.
    """

    ids: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int]
    text_of: Callable[[Sequence[int]], str]
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    generator: torch.Generator | None = None
    matcher: Any = None
    skeletons: tuple[tuple[int, ...], ...] = ()
    new_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    num_cached: int = 0
    keep: bool = True

    def draft(self) -> tuple[int, ...]:
        """The tokens that may come next, after the first skeleton that agrees with what was written."""
        written = tuple(self.new_ids)
        for skeleton in self.skeletons:
            if len(skeleton) > len(written) and skeleton[: len(written)] == written:
                return skeleton[len(written) :][: self.max_tokens - len(written) - 1]
        return ()

    def take(self, token: int) -> bool:
        """Take a chosen token; True when the row has ended."""
        if token in self.stop_ids:
            return self._end("stop")
        self.new_ids.append(token)
        if self.matcher is not None:
            self.matcher.accept_token(token)
        if self._stopped():
            return True
        return self._end("length") if len(self.new_ids) >= self.max_tokens else False

    def _stopped(self) -> bool:
        if not self.stop:
            return False
        tail = self.text_of(self.new_ids[-(max(map(len, self.stop)) + 4) :])
        if not any(stop in tail for stop in self.stop):
            return False
        text = self.text_of(self.new_ids)
        ends = [text.index(stop) + len(stop) for stop in self.stop if stop in text]
        if not ends:  # the tail began inside a character; the whole text is what counts
            return False
        self.text, self.finish_reason = text[: min(ends)], "stop"
        return True

    def _end(self, reason: str) -> bool:
        self.text, self.finish_reason = self.text_of(self.new_ids).rstrip("\ufffd"), reason
        return True
