"""The embedded route gives what plain transformers gives, whatever the batch and whatever was kept before."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pmem.backend import Request, RouteError
from pmem.errors import UserError
from pmem.prompt import golden_snapshot, render_messages
from serve.decision_tokens import masses
from serve.embedded import EmbeddedBackend
from tests.tiny import tiny_model

LIST = "<operations>[]</operations>\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def backend(folder: Path) -> EmbeddedBackend:
    return EmbeddedBackend(folder, dtype="float32", max_rows=4)


def messages(index: int) -> tuple[dict[str, str], ...]:
    snapshot = golden_snapshot()
    return render_messages(snapshot.model_copy(update={"task_messages": (f"Task {index}: " + "write it. " * index,)}))


def plain_generate(backend: EmbeddedBackend, request: Request) -> list[int]:
    encoded = backend._tokenizer(backend.render(request), return_tensors="pt", add_special_tokens=False)
    model = backend._decoder.model
    output = model.generate(**encoded, max_new_tokens=request.max_tokens, do_sample=False, pad_token_id=0)
    return [int(token) for token in output[0, encoded["input_ids"].shape[1] :]]


def plain_decision(backend: EmbeddedBackend, request: Request) -> tuple[float, float]:
    encoded = backend._tokenizer(backend.render(request) + "<", return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        return masses(backend._decoder.model(**encoded).logits[0, -1], backend.decision_point())


def test_greedy_text_equals_plain_transformers(backend: EmbeddedBackend) -> None:
    requests = [Request(messages=messages(index), max_tokens=12 + index) for index in (3, 0, 9, 1, 5, 0)]
    expected = [backend.text_of(plain_generate(backend, request)).rstrip("\ufffd") for request in requests]
    for _ in range(2):  # the second time everything is kept
        answers = backend.complete(requests)
        assert [answer.text for answer in answers] == expected
    assert all(answer.finish_reason == "length" for answer in answers)
    assert [answer.tokens_out for answer in answers] == [12 + index for index in (3, 0, 9, 1, 5, 0)]
    assert all(answer.cached_tokens > 0 for answer in answers)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kept_tokens_is_what_the_kept_prefixes_have_room_for(folder: Path, dtype: str) -> None:
    backend = EmbeddedBackend(folder, dtype=dtype)
    backend.decide([Request(messages=messages(3), prefix=LIST)])
    kept = backend._decoder.kept
    (strip,) = kept._kept.values()
    assert strip.num_bytes == len(strip.ids) * (kept.max_bytes // backend.kept_tokens)


def test_decision_equals_plain_transformers(backend: EmbeddedBackend) -> None:
    requests = [Request(messages=messages(index), prefix=LIST) for index in (4, 0, 7, 2, 4)]
    for _ in range(2):
        for request, read in zip(requests, backend.decide(requests), strict=True):
            prob_speak, label_mass = plain_decision(backend, request)
            assert read.prob_speak == pytest.approx(prob_speak, abs=1e-5)
            assert read.label_mass == pytest.approx(label_mass, abs=1e-6)


def test_the_three_requests_of_a_step_share_their_beginning(backend: EmbeddedBackend) -> None:
    asked = messages(2)
    first = backend.complete([Request(messages=asked, max_tokens=20)])[0]
    prefix = first.text + LIST
    read = backend.decide([Request(messages=asked, prefix=prefix)])[0]
    reminder = backend.complete([Request(messages=asked, prefix=prefix + "<context_for_action>", max_tokens=4)])[0]
    assert first.cached_tokens == 0
    assert reminder.cached_tokens >= first.tokens_in
    assert read.prob_speak == pytest.approx(plain_decision(backend, Request(messages=asked, prefix=prefix))[0], abs=1e-5)


def test_stop_string_ends_the_text_and_stays_in_it(backend: EmbeddedBackend) -> None:
    request = Request(messages=messages(1), max_tokens=30)
    whole = backend.complete([request])[0].text
    stop = whole[6:8]
    cut = backend.complete([Request(messages=messages(1), max_tokens=30, stop=("never", stop))])[0]
    assert cut.finish_reason == "stop"
    assert cut.text == whole[: whole.index(stop) + len(stop)]


def test_a_seed_fixes_a_sample_whatever_the_batch(backend: EmbeddedBackend) -> None:
    def sample(seed: int | None, index: int = 1) -> Request:
        return Request(messages=messages(index), max_tokens=10, temperature=1.0, seed=seed)

    alone = backend.complete([sample(1)])[0].text
    together = backend.complete([sample(2), sample(1), sample(3), sample(1), sample(1, index=4)])
    assert together[1].text == alone == together[3].text
    assert len({answer.text for answer in together}) > 2
    assert backend.complete([sample(None)])[0].text == backend.complete([sample(None)])[0].text


def test_grammar_leaves_only_its_own_texts(backend: EmbeddedBackend) -> None:
    pytest.importorskip("xgrammar")
    grammar = 'root ::= "[" ("tm-k-1" | "tm-p-2") "]"'
    requests = [
        Request(messages=messages(index % 3), max_tokens=12, grammar=grammar, temperature=1.5, seed=index) for index in range(12)
    ]
    answers = backend.complete([*requests, Request(messages=messages(0), max_tokens=3)])
    assert {answer.text for answer in answers[:-1]} == {"[tm-k-1]", "[tm-p-2]"}
    assert {answer.finish_reason for answer in answers[:-1]} == {"stop"}
    assert answers[-1].finish_reason == "length"


def test_drafts_change_the_passes_and_not_the_answer(backend: EmbeddedBackend) -> None:
    requests = [Request(messages=messages(index), max_tokens=16 + index) for index in (2, 0, 5)]
    sampled = [Request(messages=messages(1), max_tokens=12, temperature=1.0, seed=seed) for seed in range(4)]
    passes = []
    backend._decoder.model.register_forward_hook(lambda *_: passes.append(1))
    backend._skeletons = ()
    plain, num_plain = backend.complete(requests + sampled), len(passes)
    own = [tuple(backend._tokenizer(answer.text, add_special_tokens=False)["input_ids"]) for answer in plain]
    wrong = (*own[0][:5], own[0][5] + 1, *own[0][6:])
    backend._skeletons = (wrong, *own[1:], own[0])
    backend._decoder.kept.clear()
    passes.clear()
    drafted = backend.complete(requests + sampled)
    assert [answer.text for answer in drafted] == [answer.text for answer in plain]
    assert [answer.tokens_out for answer in drafted] == [answer.tokens_out for answer in plain]
    assert len(passes) < num_plain
    reads = backend.decide([Request(messages=messages(2), prefix=drafted[0].text + LIST)])
    expected = plain_decision(backend, Request(messages=messages(2), prefix=drafted[0].text + LIST))
    assert reads[0].prob_speak == pytest.approx(expected[0], abs=1e-5), "what was kept of a drafted row is whole"


def test_an_empty_list_takes_one_pass(backend: EmbeddedBackend) -> None:
    pytest.importorskip("xgrammar")
    passes = []
    backend._decoder.model.register_forward_hook(lambda *_: passes.append(1))
    request = Request(
        messages=messages(0), max_tokens=40, stop=("</operations>",), grammar='root ::= "<operations>[]</operations>"'
    )
    assert backend.complete([request])[0].text == "<operations>[]</operations>"
    assert len(passes) == 1


def test_a_broken_grammar_is_a_route_error(backend: EmbeddedBackend) -> None:
    pytest.importorskip("xgrammar")
    with pytest.raises(RouteError, match="grammar"):
        backend.complete([Request(messages=messages(0), grammar="root ::= [")])


def test_missing_xgrammar_is_one_sentence(backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(UserError, match="xgrammar"):
        backend.complete([Request(messages=messages(0), grammar='root ::= "a"')])


def test_a_passed_deadline_is_a_timeout(backend: EmbeddedBackend) -> None:
    request = Request(messages=messages(0), prefix=LIST, max_tokens=4000)
    with pytest.raises(TimeoutError):
        backend.complete([request], deadline=time.monotonic() - 1)
    with pytest.raises(TimeoutError):
        backend.decide([request], deadline=time.monotonic() - 1)
    with pytest.raises(TimeoutError):
        backend.complete([request], deadline=time.monotonic() + 0.05)


def test_a_request_beyond_the_context_is_a_route_error(backend: EmbeddedBackend) -> None:
    with pytest.raises(RouteError, match="8192"):
        backend.complete([Request(messages=({"role": "user", "content": "x" * 9000},))])


def test_no_requests_no_answers(backend: EmbeddedBackend) -> None:
    assert backend.complete([]) == [] and backend.decide([]) == []


@pytest.mark.parametrize(
    ("missing", "word"),
    [("tokenizer.json", "tokenizer"), ("config.json", "config.json"), ("model.safetensors", "weights"), (None, "does not exist")],
)
def test_a_folder_that_lacks_a_part_is_one_sentence(tmp_path: Path, missing: str | None, word: str) -> None:
    folder: Any = tmp_path / "nowhere"
    if missing:
        folder = tiny_model(tmp_path)
        (folder / missing).unlink()
    with pytest.raises(UserError, match=word):
        EmbeddedBackend(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_with_a_cut_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    folder = tiny_model(tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:60])
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        EmbeddedBackend(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_chat_template_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="chat template"):
        EmbeddedBackend(tiny_model(tmp_path, chat_template=None))


def test_models_with_another_cache_run_without_reuse(tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from tests.tiny import byte_tokenizer

    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(
        vocab_size=len(tokenizer), num_hidden_layers=2, **sizes, use_sliding_window=True, sliding_window=8, max_window_layers=1,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "sliding")
    tokenizer.save_pretrained(tmp_path / "sliding")
    backend = EmbeddedBackend(tmp_path / "sliding", dtype="float32")
    requests = [Request(messages=messages(index), max_tokens=6, prefix=LIST) for index in (2, 0)]
    expected = [backend.text_of(plain_generate(backend, request)).rstrip("\ufffd") for request in requests]
    assert [answer.text for answer in backend.complete(requests)] == expected
    assert backend.decide(requests)[0].prob_speak == pytest.approx(plain_decision(backend, requests[0])[0], abs=1e-5)
