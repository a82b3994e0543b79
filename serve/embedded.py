"""The memory route in this process: transformers, batched, with reuse of kept prefixes. The default where no server runs.

    backend = EmbeddedBackend(Path("runs/quickstart/sft"))
    lists = backend.complete([Request(messages=messages, stop=("</operations>",))])
    reads = backend.decide([Request(messages=messages, prefix=lists[0].text + "\\n")])

It answers as a server would (pmem.backend.Backend): `complete` generates, `decide` is one forward pass that reads the raw
log-softmax at the decision token. Calls are serialised by a lock: one model, one set of cores.
"""

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pmem.backend import Completion, DecisionRead, Request, RouteError
from pmem.envelope import EMPTY_LIST
from pmem.errors import UserError
from pmem.policy_file import model_hash
from pmem.prompt import prompt_text
from serve.decision_tokens import DecisionPoint, DecisionTokens, masses
from serve.decoding import Decoder
from serve.dtype import compute_dtype
from serve.kv_rows import GROUPED
from serve.model_folder import check_model_folder, loading
from serve.prefix_cache import common_prefix
from serve.row import Row

SKELETONS = (EMPTY_LIST, '<operations>[{"op":"save_knowledge","content":"')
"""How lists begin; most are empty. Proposed to the model, never forced."""


class EmbeddedBackend:
    """A model folder run by transformers in this process.

    `max_batch_tokens` bounds rows x columns of a batch, `max_rows` its rows, `cache_mib` the kept keys and values.
    Raises UserError when the folder is not a whole model.
    """

    route = "embedded"

    def __init__(
        self,
        model_folder: Path,
        *,
        device: str = "cpu",
        dtype: str = "auto",
        max_batch_tokens: int = 16_384,
        max_rows: int = 32,
        cache_mib: int = 1024,
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()
        folder = Path(model_folder)
        check_model_folder(folder)
        self.model = folder.name
        self.model_hash: str | None = model_hash(folder)
        with loading(folder):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=compute_dtype(dtype, device))
        network.set_output_embeddings(Float32Head(network.get_output_embeddings()))
        network = network.to(device).eval()
        plain = _plain_attention(network.config)
        self.max_batch_tokens, self.max_rows = max_batch_tokens, max_rows if plain else 1
        if plain and device == "cpu" and network.config._attn_implementation == "sdpa":
            network.set_attn_implementation(GROUPED)
        self._decoder = Decoder(
            network,
            plain=plain,
            max_bytes=cache_mib * 2**20,
        )
        self._stop_ids = _stop_ids(network, self._tokenizer)
        self._skeletons = tuple(map(tuple, self._tokenizer(list(SKELETONS), add_special_tokens=False)["input_ids"]))
        self._context = int(network.config.get_text_config().max_position_embeddings)
        self._tokens = DecisionTokens(self._tokenizer)
        self._compiler: Any = None
        self._lock = threading.Lock()

    def complete(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[Completion]:
        """Generate from every request, in batches of similar length; the answers come in the order of the requests."""
        with self._lock, torch.inference_mode():
            texts = [self.render(request) for request in requests]
            encoded = self._tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
            rows = [self._row(request, tuple(ids)) for request, ids in zip(requests, encoded)]
            answers: dict[int, Completion] = {}
            for places in self._batches([row.ids for row in rows], [row.max_tokens for row in rows], deadline):
                started = time.perf_counter()
                self._decoder.generate([rows[place] for place in places], deadline=deadline)
                latency_ms = (time.perf_counter() - started) * 1000
                answers.update((place, _completion(rows[place], latency_ms)) for place in places)
            return [answers[place] for place in range(len(rows))]

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        """Read the probability of speaking after every prefix (which ends with the newline after `</operations>`)."""
        with self._lock, torch.inference_mode():
            points = self._tokens.points([self.render(request) for request in requests])
            reads: dict[tuple[int, ...], DecisionRead] = {}
            distinct = list({point.ids: point for point in points}.values())
            for point in distinct:
                self._check_length(len(point.ids))
            for places in self._batches([point.ids for point in distinct], [0] * len(distinct), deadline):
                started = time.perf_counter()
                _, logits, _ = self._decoder.prefill([distinct[place].ids for place in places])
                latency_ms = (time.perf_counter() - started) * 1000
                for row, place in enumerate(places):
                    reads[distinct[place].ids] = _read(logits[row, 0], distinct[place], latency_ms)
            return [reads[point.ids] for point in points]

    @property
    def kept_tokens(self) -> int:
        """Tokens whose keys and values are kept from one request to the next."""
        return self._decoder.kept_tokens

    def decision_point(self) -> DecisionPoint:
        """The decision tokens of this model's tokenizer, for `policy.json` and for routes without a tokenizer."""
        return self._tokens.point()

    def render(self, request: Request) -> str:
        """The request as the one string that is tokenised."""
        return prompt_text(self._tokenizer, request.messages, request.prefix)

    def _row(self, request: Request, ids: tuple[int, ...]) -> Row:
        self._check_length(len(ids) + 1)
        return Row(
            ids=ids,
            max_tokens=min(request.max_tokens, self._context - len(ids)),
            stop_ids=self._stop_ids,
            text_of=self.text_of,
            stop=request.stop,
            temperature=request.temperature,
            generator=_generator(request, ids) if request.temperature > 0 else None,
            matcher=self._matcher(request.grammar) if request.grammar else None,
            skeletons=() if request.prefix else self._skeletons,
        )

    def text_of(self, ids: Sequence[int]) -> str:
        """Text of generated tokens, special ones left out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _check_length(self, num_tokens: int) -> None:
        if num_tokens > self._context:
            raise RouteError(f"request of {num_tokens} tokens does not fit the context of {self._context} of {self.model}")

    def _batches(self, ids: list[tuple[int, ...]], extra: list[int], deadline: float | None) -> Iterator[list[int]]:
        """Places in `ids`, longest first, in batches within the limits; what all begin with is computed once beforehand."""
        shared = common_prefix(ids)
        if len(ids) > 2 and self._decoder.reuse:
            self._decoder.keep_prefix(shared[: min(map(len, ids)) - 1])
        order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
        while order:
            width = len(ids[order[0]]) + max(extra)
            num_rows = max(1, min(self.max_rows, self.max_batch_tokens // width))
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("the deadline passed before the model began")
            yield order[:num_rows]
            order = order[num_rows:]

    def _matcher(self, grammar: str) -> Any:
        try:
            import xgrammar
        except ImportError:
            raise UserError("decoding under a grammar needs the package xgrammar; install it, or set grammar=false") from None
        if self._compiler is None:
            size = self._decoder.model.get_output_embeddings().weight.shape[0]
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=size, stop_token_ids=sorted(self._stop_ids)
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=2, cache_limit_bytes=64 * 2**20)
        try:
            return xgrammar.GrammarMatcher(self._compiler.compile_grammar(grammar))
        except RuntimeError as error:
            raise RouteError(f"the grammar does not compile: {str(error).splitlines()[-1]}") from None


class Float32Head(torch.nn.Module):
    """The output layer in float32: bfloat16 logits near 20 have steps of 0.125, which is 0.03 on a probability."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(head.weight.float(), requires_grad=False)
        self.bias = None if head.bias is None else torch.nn.Parameter(head.bias.float(), requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(hidden.float(), self.weight, self.bias)


def _read(logits: torch.Tensor, point: DecisionPoint, latency_ms: float) -> DecisionRead:
    prob_speak, label_mass = masses(logits, point)
    return DecisionRead(prob_speak=prob_speak, label_mass=label_mass, tokens_in=len(point.ids), latency_ms=latency_ms)


def _completion(row: Row, latency_ms: float) -> Completion:
    return Completion(
        text=row.text,
        finish_reason=row.finish_reason,
        tokens_in=len(row.ids),
        tokens_out=len(row.new_ids),
        cached_tokens=row.num_cached,
        latency_ms=latency_ms,
    )


def _generator(request: Request, ids: tuple[int, ...]) -> torch.Generator:
    """Sampling state of one request: its seed, or a seed made from its tokens, so that equal requests give equal answers."""
    seed = request.seed
    if seed is None:
        seed = int.from_bytes(hashlib.sha256(repr(ids).encode()).digest()[:6], "big")
    return torch.Generator().manual_seed(seed)


def _stop_ids(network: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for value in (tokenizer.eos_token_id, network.generation_config.eos_token_id, network.config.eos_token_id):
        found.update(value if isinstance(value, Iterable) else [value] if value is not None else [])
    return frozenset(found)


def _plain_attention(config: Any) -> bool:
    """Whether every layer keeps all its keys and values, so that a request may go on from kept ones."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return set(kinds) == {"full_attention"} and not getattr(config, "sliding_window", None)
