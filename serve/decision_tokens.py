"""Where the two answers of a step first differ, and which tokens begin either of them (docs/design/calibration.md).

After `</operations>` and a newline the policy writes `<context_for_action>` or `<no_intervention/>`. A tokenizer cuts both
into tokens; up to some token they are the same (`<` for most). The *decision token* is the first one after that: each token
whose text begins one remainder, or is begun by it, is mass for that answer, whatever tokenisation the model would go on with.
A token that begins both remainders says nothing and belongs to neither.

    tokens = DecisionTokens.of(tokenizer)
    point = tokens.point("…<operations>[]</operations>\\n")
    prob_speak, label_mass = masses(logits_at_last_position, point)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from pmem.envelope import EMPTY_LIST, SILENT, SPEAK

CONTEXT = EMPTY_LIST + "\n"
"""A list and its newline: what stands before the decision in every answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """`ids`: the request up to the decision token. `shared_text`: what both answers share after the list, newline first."""

    ids: tuple[int, ...]
    shared_text: str
    speak_ids: tuple[int, ...]
    silent_ids: tuple[int, ...]

    def as_config(self) -> dict[str, Any]:
        """The two values that `policy.json` and the runtime's settings carry, for backends without a tokenizer."""
        token_ids = {"speak": list(self.speak_ids), "silent": list(self.silent_ids)}
        return {"decision_prefix": self.shared_text, "decision_token_ids": token_ids}


class DecisionTokens:
    """The decision tokens of one tokenizer (a Hugging Face one)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts = tuple(_token_text(token) for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
        self._sets = lru_cache(maxsize=64)(self._token_sets)

    def point(self, text: str = CONTEXT) -> DecisionPoint:
        """The decision point after `text` (prompt and assistant text so far, ending with the newline after the list)."""
        return self.points([text])[0]

    def points(self, texts: Sequence[str]) -> list[DecisionPoint]:
        """As `point`, for many texts in one call of the tokenizer."""
        both = [text + answer for text in texts for answer in (SPEAK, SILENT)]
        encoded = self._tokenizer(both, add_special_tokens=False)["input_ids"] if both else []
        return [self._point(tuple(speak), tuple(silent)) for speak, silent in zip(encoded[::2], encoded[1::2], strict=True)]

    def _point(self, speak: tuple[int, ...], silent: tuple[int, ...]) -> DecisionPoint:
        num_shared = next(index for index, (a, b) in enumerate(zip(speak, silent)) if a != b)
        rest_speak, rest_silent = self._text(speak[num_shared:]), self._text(silent[num_shared:])
        assert rest_speak.endswith(SPEAK[2:]) and rest_silent.endswith(SILENT[2:]), "the answers differ before the decision"
        speak_ids, silent_ids = self._sets(rest_speak, rest_silent)
        shared = ("\n" + SPEAK).removesuffix(rest_speak)
        return DecisionPoint(ids=speak[:num_shared], shared_text=shared, speak_ids=speak_ids, silent_ids=silent_ids)

    def _text(self, ids: Sequence[int]) -> str:
        return "".join(self._texts[token] for token in ids)

    def _token_sets(self, rest_speak: str, rest_silent: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        speak = {token for token, text in enumerate(self._texts) if text and _begins(text, rest_speak)}
        silent = {token for token, text in enumerate(self._texts) if text and _begins(text, rest_silent)}
        return tuple(sorted(speak - silent)), tuple(sorted(silent - speak))


def decision_tokens(tokenizer: Any, text: str = CONTEXT) -> DecisionPoint:
    """The decision point of one tokenizer after `text`; `as_config()` of it goes into `policy.json`."""
    return DecisionTokens(tokenizer).point(text)


def masses(logits: torch.Tensor, point: DecisionPoint) -> tuple[float, float]:
    """(prob_speak, label_mass) from raw logits `[vocabulary]` at the decision token; float32 log-softmax, nothing masked."""
    log_probs = torch.log_softmax(logits.detach().float(), dim=-1)
    speak = torch.logsumexp(log_probs[list(point.speak_ids)], dim=0)
    silent = torch.logsumexp(log_probs[list(point.silent_ids)], dim=0)
    return float(torch.sigmoid(speak - silent)), float(speak.exp() + silent.exp())


def _begins(token: str, rest: str) -> bool:
    return rest.startswith(token) or token.startswith(rest)


def _token_text(token: str | None) -> str:
    """Text of a vocabulary entry as far as the ASCII answers need it: byte-level and SentencePiece marks undone."""
    return (token or "").replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n").replace("<0x0A>", "\n")
