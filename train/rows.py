"""Rows of `sft.parquet` as token ids, rendered by `pmem.prompt` and checked one by one; the training library never renders.

Checked of every row: the prompt's ids begin the ids of prompt + completion; the completion decodes to its own text; the decision
token stands where `serve.decision_tokens` says and is one of the row's own answer; nothing is cut and nothing is dropped.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from data.rows import REMINDER, SILENCE, WOULD_SAY
from pmem.errors import UserError
from pmem.prompt import prompt_text
from serve.decision_tokens import DecisionPoint, DecisionTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """`completion_ids` ends with the end token; `completion_ids[decision_index]` is the decision token."""

    row_id: str
    snapshot_id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    decision_index: int
    speaks: bool
    weight: float
    group: str
    """Rows of one task have the same."""
    decision_label: int | None = None
    """Token that the decision is trained to be where it is not `completion_ids[decision_index]`: the row of a silence that is
    followed by what it would have said."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def check_decision(tokenizer: Any, name: str) -> DecisionPoint:
    """The decision tokens of `tokenizer`. Raises UserError when its two answers cannot be told apart at one position."""
    try:
        point = DecisionTokens(tokenizer).point()
    except (AssertionError, StopIteration):
        point = None
    if point is None or not point.speak_ids or not point.silent_ids:
        raise UserError(
            f"the tokenizer of {name} cannot tell '<context_for_action>' from '<no_intervention/>' at one position; "
            "choose another base model"
        )
    return point


def token_rows(tokenizer: Any, rows: Sequence[dict[str, Any]], *, max_tokens: int) -> list[TokenRow]:
    """Tokenise rows of `sft.parquet`, in order; a `would_say` row takes the place of the silent row of its snapshot.

    Raises UserError naming the first row that cannot be trained on as it is.
    """
    tokens = DecisionTokens(tokenizer)
    prompts = [prompt_text(tokenizer, tuple(row["prompt_messages"])) for row in rows]
    until = [prompt + _until_decision(row) for prompt, row in zip(prompts, rows)]
    prompt_ids = _encode(tokenizer, prompts)
    whole_ids = _encode(tokenizer, [prompt + row["completion"] for prompt, row in zip(prompts, rows)])
    made = [
        _token_row(tokenizer, row, prompt, whole, point, max_tokens)
        for row, prompt, whole, point in zip(rows, prompt_ids, whole_ids, tokens.points(until), strict=True)
    ]
    assert len(made) == len(rows), "a row was dropped"
    return _joined(rows, made)


def _joined(rows: Sequence[dict[str, Any]], made: Sequence[TokenRow]) -> list[TokenRow]:
    """Every silent row, with the sentence it would have said behind its decision where there is one."""
    said = {row["snapshot_id"]: tokens for row, tokens in zip(rows, made) if row["decision"] == WOULD_SAY}
    joined = []
    for row, tokens in zip(rows, made):
        if row["decision"] == WOULD_SAY:
            continue
        other = said.pop(row["snapshot_id"], None) if row["decision"] == SILENCE else None
        if other is not None:
            label = tokens.completion_ids[tokens.decision_index]
            other = replace(other, row_id=tokens.row_id, speaks=False, weight=tokens.weight, decision_label=label)
        joined.append(other or tokens)
    if said:
        raise UserError(f"snapshot {min(said)} has a would_say row but no silent row; write sft.parquet again with data.build")
    return joined


def _until_decision(row: dict[str, Any]) -> str:
    """The completion up to the newline before its phase-two line."""
    list_text, newline, line = row["completion"].partition("\n")
    if not newline or not line:
        raise UserError(f"SFT row {row['row_id']}: the completion has no second line; write sft.parquet again with data.build")
    return str(list_text) + newline


def _token_row(
    tokenizer: Any, row: dict[str, Any], prompt: list[int], whole: list[int], point: DecisionPoint, max_tokens: int
) -> TokenRow:
    name = f"SFT row {row['row_id']}"
    if whole[: len(prompt)] != prompt:
        raise UserError(
            f"{name}: its prompt is not a token prefix of prompt and completion; choose a base model whose template ends a turn"
        )
    completion = [*whole[len(prompt) :], tokenizer.eos_token_id]
    if tokenizer.decode(completion[:-1], skip_special_tokens=False) != row["completion"]:
        raise UserError(f"{name}: the tokenizer does not give its completion back; remove the row or choose another base model")
    if len(prompt) + len(completion) > max_tokens:
        raise UserError(
            f"{name} has {len(prompt) + len(completion)} tokens, max_tokens is {max_tokens}; raise it, rows are never cut"
        )
    speaks, position = row["decision"] in (REMINDER, WOULD_SAY), len(point.ids)
    own = point.speak_ids if speaks else point.silent_ids
    if whole[:position] != list(point.ids) or position >= len(whole) or whole[position] not in own:
        raise UserError(
            f"{name}: decision {row['decision']!r} does not stand after its list; write sft.parquet again with data.build"
        )
    return TokenRow(
        row_id=row["row_id"],
        snapshot_id=row["snapshot_id"],
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        decision_index=position - len(prompt),
        speaks=speaks,
        weight=float(row["weight"]),
        group=_first_message(row),
    )


def _first_message(row: dict[str, Any]) -> str:
    """Hash of what the prompt says before the bank and before any later user turn."""
    text = str(row["prompt_messages"][-1]["content"]).partition("\n# Bank\n")[0].partition("\nUser: ")[0]
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
