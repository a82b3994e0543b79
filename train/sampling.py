"""Sample several answers to each prompt with the serving decoder: siblings share the keys and values of their prompt."""

from collections.abc import Sequence
from typing import Any

import torch

from pmem.envelope import SILENT, render_envelope
from serve.decoding import Decoder
from serve.row import Row

LIKELY_ANSWERS = (render_envelope((), None), SILENT)
"""Proposed to the decoder, which takes of it what each row really draws: most lists are empty, so most answers begin like it; an
answer behind a list that is written already is silence or not."""


@torch.no_grad()
def sample_siblings(
    causal: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    num_siblings: int,
    max_tokens: int,
    temperature: float,
    seed: int,
) -> list[list[int]]:
    """Token ids of `num_siblings` answers a prompt, prompt after prompt; each ends with the end token unless it was cut.

    `causal`: a transformers causal model (adapters stay as they are). The same seed gives the same answers.
    """
    was_training = causal.training
    causal.eval()
    decoder = Decoder(causal, plain=True, max_bytes=0)
    skeletons = tuple(
        (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id) for text in LIKELY_ANSWERS
    )
    rows = [
        Row(
            ids=tuple(prompt),
            max_tokens=max_tokens,
            stop_ids=frozenset({tokenizer.eos_token_id}),
            text_of=tokenizer.decode,
            skeletons=skeletons,
            temperature=temperature,
            generator=torch.Generator().manual_seed(seed * 1_000_003 + index * num_siblings + sibling),
        )
        for index, prompt in enumerate(prompts)
        for sibling in range(num_siblings)
    ]
    decoder.generate(rows)
    causal.train(was_training)
    return [[*row.new_ids, tokenizer.eos_token_id] if row.finish_reason == "stop" else row.new_ids for row in rows]
