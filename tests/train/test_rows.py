"""Token rows: whole, checked, in order; what cannot be trained on is named."""

import pytest

from pmem.errors import UserError
from tests.tiny import CHATML, byte_tokenizer
from tests.train.contradictions import contradiction_rows
from train.batches import Collator, LengthBuckets, decision_weights
from train.rows import check_decision, token_rows
from train.shared_prefix import common_prefix

ROWS = contradiction_rows(24, seed=1, split="train")


def test_rows_keep_prompt_completion_and_decision() -> None:
    tokenizer = byte_tokenizer()
    made = token_rows(tokenizer, ROWS, max_tokens=4096)
    assert [row.row_id for row in made] == [row["row_id"] for row in ROWS]
    for row, source in zip(made, ROWS):
        assert tokenizer.decode(row.completion_ids[:-1]) == source["completion"]
        assert row.completion_ids[-1] == tokenizer.eos_token_id
        letter = tokenizer.decode(row.completion_ids[row.decision_index])
        assert letter == ("c" if row.speaks else "n")


def test_what_a_silent_row_would_have_said_follows_its_own_decision() -> None:
    """One sequence: the sentence is read and learned behind a decision that is trained to be silence."""
    tokenizer = byte_tokenizer()
    quiet = next(row for row in ROWS if row["decision"] == "silence")
    said = "<operations>[]</operations>\n<context_for_action>Use tabs. [tm-k-1]</context_for_action>"
    rows = [quiet, {**quiet, "row_id": "r", "decision": "would_say", "completion": said}]
    (row,) = token_rows(tokenizer, rows, max_tokens=4096)
    assert row.row_id == quiet["row_id"] and not row.speaks and tokenizer.decode(row.completion_ids[:-1]) == said
    batch = Collator(tokenizer.pad_token_id, 0)([row])
    place = int(batch["decision_index"][0])
    assert tokenizer.decode(batch["input_ids"][0, place]) == "c" and tokenizer.decode(batch["labels"][0, place]) == "n"
    learned = [int(token) for token in batch["labels"][0] if token != -100]
    assert tokenizer.decode(learned[:-1]) == said.replace("<context", "<nontext", 1)
    with pytest.raises(UserError, match="no silent row"):
        token_rows(tokenizer, rows[1:], max_tokens=4096)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"completion": "<operations>[]</operations>"}, "no second line"),
        ({"decision": "reminder", "completion": "<operations>[]</operations>\n<no_intervention/>"}, "does not stand after"),
        ({"completion": "<operations>[]</operations>\nnothing"}, "does not stand after"),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_named(change: dict[str, str], sentence: str) -> None:
    row = {**ROWS[0], **change}
    with pytest.raises(UserError, match=f"{row['row_id']}.*{sentence}"):
        token_rows(byte_tokenizer(), [row], max_tokens=4096)


def test_long_rows_are_an_error_not_a_cut() -> None:
    with pytest.raises(UserError, match="rows are never cut"):
        token_rows(byte_tokenizer(), ROWS, max_tokens=100)


def test_a_tokenizer_that_merges_over_the_border_is_refused() -> None:
    tokenizer = byte_tokenizer(CHATML + "<")
    tokenizer.add_tokens(["<<"])  # the template's end and the completion's begin become one token
    with pytest.raises(UserError, match="not a token prefix"):
        token_rows(tokenizer, ROWS[:1], max_tokens=4096)


def test_a_tokenizer_that_cannot_tell_the_answers_apart_is_refused() -> None:
    from tokenizers import normalizers

    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<context_for_action>", "<no_intervention/>"])
    assert check_decision(tokenizer, "x").shared_text == "\n"  # whole answers as tokens are fine
    plain = byte_tokenizer()
    plain._tokenizer.normalizer = normalizers.Replace("context_for_action", "no_intervention/")
    with pytest.raises(UserError, match="cannot tell"):
        check_decision(plain, "x")


def test_every_row_is_seen_once_an_epoch_in_the_same_order_for_the_same_seed() -> None:
    lengths = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 3]
    sampler = LengthBuckets(lengths, [index % 2 == 0 for index in range(11)], ["a", "b"] * 5 + ["c"], batch_size=3, seed=5)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again and first != list(sampler)
    assert sorted(index for batch in first for index in batch) == list(range(11)) and len(first) == len(sampler)


@pytest.mark.parametrize(("num_rows", "every"), [(200, 2), (200, 5), (197, 3), (7, 2), (16, 16)])
def test_every_batch_mixes_both_kinds_in_proportion(num_rows: int, every: int) -> None:
    speaks = [index % every == 0 for index in range(num_rows)]
    tasks = [str(index // 3) for index in range(num_rows)]
    sampler = LengthBuckets([index * 37 % 101 for index in range(num_rows)], speaks, tasks, batch_size=8, seed=1)
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(num_rows)) and len(batches) == len(sampler)
    for batch in batches:
        if len(batch) == 8:
            assert abs(sum(speaks[index] for index in batch) - 8 / every) <= 2


def test_rows_of_one_task_that_decide_differently_meet_in_a_batch() -> None:
    tasks = [str(index % 100) for index in range(200)]  # one speaking and one silent row of each, far apart
    sampler = LengthBuckets([index * 37 % 101 for index in range(200)], [index < 100 for index in range(200)], tasks,
                            batch_size=4, seed=1)  # fmt: skip
    met = sum(sum(index < 100 and index + 100 in batch for index in batch) for batch in sampler)
    assert met >= 90


def test_collator_gives_the_shared_part_once_and_labels_only_completions() -> None:
    rows = token_rows(byte_tokenizer(), ROWS[:4], max_tokens=4096)
    shared = common_prefix([row.prompt_ids for row in rows])
    batch = Collator(pad_id=0, num_shared=shared)(rows)
    for index, row in enumerate(rows):
        kept = batch["input_ids"][index][batch["attention_mask"][index].bool()].tolist()
        assert [*batch["prefix_ids"][0].tolist(), *kept] == [*row.prompt_ids, *row.completion_ids]
        assert batch["labels"][index][batch["labels"][index] != -100].tolist() == list(row.completion_ids)
        assert batch["labels"][index, batch["decision_index"][index]] == row.completion_ids[row.decision_index]


def test_decision_weights_move_the_balance_and_keep_the_mean() -> None:
    rows = token_rows(byte_tokenizer(), ROWS[:12] + ROWS[1::2][6:], max_tokens=4096)
    silent, speak = decision_weights(rows, 0.25)
    carried = [speak if row.speaks else silent for row in rows]
    assert sum(carried) == pytest.approx(len(rows))
    assert sum(weight for weight, row in zip(carried, rows) if row.speaks) == pytest.approx(len(rows) / 4)
    assert decision_weights(rows, None) == (1.0, 1.0)
