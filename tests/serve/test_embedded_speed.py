"""The embedded route against a plain transformers loop on the same prompts: the same text, 1.3 times the speed."""

import time

import pytest
import torch

from pmem.backend import Request
from pmem.envelope import OPERATIONS_CLOSE
from pmem.prompt import render_messages
from serve.decision_tokens import masses
from serve.embedded import EmbeddedBackend
from tests.serve.varied import varied

pytestmark = pytest.mark.slow
EMPTY = "<operations>[]</operations>\n"
NUM_STEPS = 12
MAX_TOKENS = 24
RATIO = 1.3


@pytest.fixture(scope="module")
def backend() -> EmbeddedBackend:
    from train.base import resolve_base

    return EmbeddedBackend(resolve_base())


def test_steps_are_faster_than_a_plain_loop(backend: EmbeddedBackend) -> None:
    """Processor time, so that other work on the machine does not count."""
    messages = [render_messages(snapshot) for snapshot in varied(NUM_STEPS)]
    lists = [Request(messages=each, max_tokens=MAX_TOKENS, stop=(OPERATIONS_CLOSE,)) for each in messages]
    decisions = [Request(messages=each, prefix=EMPTY) for each in messages]
    started = time.process_time()
    plain_texts = [plain_list(backend, request) for request in lists]
    plain_probs = [plain_decision(backend, request) for request in decisions]
    plain_s = time.process_time() - started
    started = time.process_time()
    answers, reads = backend.complete(lists), backend.decide(decisions)
    ours_s = time.process_time() - started
    print(f"\n{NUM_STEPS} steps: plain {plain_s:.1f} s, ours {ours_s:.1f} s, ratio {plain_s / ours_s:.1f}")
    assert plain_s / ours_s >= RATIO
    assert sum(answer.text == text for answer, text in zip(answers, plain_texts, strict=True)) >= NUM_STEPS * 0.7
    assert max(abs(read.prob_speak - prob) for read, prob in zip(reads, plain_probs, strict=True)) < 0.05


def plain_list(backend: EmbeddedBackend, request: Request) -> str:
    encoded = backend._tokenizer(backend.render(request), return_tensors="pt", add_special_tokens=False)
    output = backend._decoder.model.generate(
        **encoded, max_new_tokens=request.max_tokens, do_sample=False, stop_strings=list(request.stop),
        tokenizer=backend._tokenizer, pad_token_id=backend._tokenizer.pad_token_id,
    )  # fmt: skip
    return backend.text_of(output[0, encoded["input_ids"].shape[1] :])


@torch.inference_mode()
def plain_decision(backend: EmbeddedBackend, request: Request) -> float:
    encoded = backend._tokenizer(backend.render(request) + "<", return_tensors="pt", add_special_tokens=False)
    return masses(backend._decoder.model(**encoded).logits[0, -1], backend.decision_point())[0]
