"""The decision token: where the two answers part, and which tokens belong to either, for several ways of cutting text."""

import math

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from serve.decision_tokens import CONTEXT, DecisionTokens, decision_tokens, masses
from tests.tiny import byte_tokenizer


def merging_tokenizer(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """A byte tokenizer that also joins the given pairs."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = [*alphabet, *("".join(pair) for pair in merges)]
    inner = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(vocabulary)}, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, clean_up_tokenization_spaces=False)


def texts(tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...]) -> set[str]:
    return {tokenizer.decode([token]) for token in ids}


def test_bytes_part_after_the_bracket() -> None:
    tokenizer = byte_tokenizer()
    point = decision_tokens(tokenizer)
    assert point.shared_text == "\n<"
    assert tokenizer.decode(point.ids) == CONTEXT + "<"
    assert texts(tokenizer, point.speak_ids) == {"c"} and texts(tokenizer, point.silent_ids) == {"n"}


def test_every_token_that_begins_an_answer_counts() -> None:
    tokenizer = merging_tokenizer(("c", "o"), ("n", "o"), ("no", "_"), ("c", "a"))
    point = decision_tokens(tokenizer)
    assert texts(tokenizer, point.speak_ids) == {"c", "co"}
    assert texts(tokenizer, point.silent_ids) == {"n", "no", "no_"}


def test_a_bracket_joined_to_the_word_moves_the_decision_before_it() -> None:
    tokenizer = merging_tokenizer(("<", "c"), ("n", "o"))
    point = decision_tokens(tokenizer)
    assert point.shared_text == "\n"
    assert tokenizer.decode(point.ids) == CONTEXT
    assert texts(tokenizer, point.speak_ids) == {"<c"}, "the lone bracket begins both answers and belongs to neither"
    assert point.silent_ids == ()


def test_a_newline_joined_to_the_bracket() -> None:
    tokenizer = merging_tokenizer(("Ċ", "<"))
    point = decision_tokens(tokenizer)
    assert tokenizer.decode(point.ids) == CONTEXT + "<" and point.shared_text == "\n<"


def test_points_of_a_batch_follow_their_texts() -> None:
    tokenizer = byte_tokenizer()
    tokens = DecisionTokens(tokenizer)
    many = [f"prompt {index} " + CONTEXT for index in range(5)]
    for text, point in zip(many, tokens.points(many), strict=True):
        assert tokenizer.decode(point.ids) == text + "<"
    assert tokens.points([]) == []


def test_as_config_holds_what_policy_json_carries() -> None:
    tokenizer = byte_tokenizer()
    config = decision_tokens(tokenizer).as_config()
    assert config["decision_prefix"] == "\n<"
    assert set(config["decision_token_ids"]) == {"speak", "silent"}


def test_masses_are_shares_of_the_raw_distribution() -> None:
    tokenizer = byte_tokenizer()
    point = decision_tokens(tokenizer)
    logits = torch.full((len(tokenizer),), -100.0)
    logits[list(point.speak_ids)], logits[list(point.silent_ids)], logits[0] = math.log(3), math.log(1), math.log(4)
    prob_speak, label_mass = masses(logits, point)
    assert prob_speak == pytest.approx(0.75) and label_mass == pytest.approx(0.5)
