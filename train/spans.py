"""Where in a sampled completion its list ends and its decision token stands, by the texts of its tokens."""

from collections.abc import Sequence
from typing import Any

from pmem.envelope import OPERATIONS_CLOSE, SILENT, SPEAK
from serve.decision_tokens import DecisionPoint
from train.credit import Span


def span_of(tokenizer: Any, ids: Sequence[int], point: DecisionPoint, *, decides_only: bool = False) -> Span:
    """The span of one completion. No decision when the text has none, or its tokens do not break where the answers differ.

    `decides_only`: the prompt holds the list already.
    """
    text = tokenizer.decode(ids, skip_special_tokens=False)
    close = 0 if decides_only else text.rfind(OPERATIONS_CLOSE)
    if close < 0:
        return Span(len(ids), None)
    list_end = 0 if decides_only else _tokens_until(tokenizer, ids, close + len(OPERATIONS_CLOSE))
    line = next((at for at in (text.find(SPEAK, close), text.find(SILENT, close)) if at >= 0), None)
    if line is None:
        return Span(list_end, None)
    until = line - 1 + len(point.shared_text)  # the shared text opens with the newline before the line
    decision = _tokens_until(tokenizer, ids, until)
    begins = tokenizer.decode(ids[:decision], skip_special_tokens=False) == text[:until]
    own = (*point.speak_ids, *point.silent_ids)
    return Span(list_end, decision if begins and decision < len(ids) and ids[decision] in own else None)


def _tokens_until(tokenizer: Any, ids: Sequence[int], num_chars: int) -> int:
    """The least number of tokens whose text has at least `num_chars` characters (bisection; texts of beginnings only grow)."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(tokenizer.decode(ids[:middle], skip_special_tokens=False)) >= num_chars:
            high = middle
        else:
            low = middle + 1
    return low
