"""What each kind of server understands: thinking off, a grammar, an assistant text to go on from, log-probabilities.

One row a kind, and the functions that turn a `Request` into a body and an answer into a `Completion` or a `DecisionRead`. What a
kind cannot give is said in a sentence (`Dialect.lacks`), never papered over: without a prefix and log-probabilities a route runs
in completion mode. Field names: vLLM 0.29 to 0.33, SGLang 0.5, llama.cpp server (`/apply-template`, `/completion`), Ollama,
LM Studio.
"""

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from pmem.backend import Completion, DecisionRead, Request, RouteError
from pmem.envelope import SILENT, SPEAK

Kind = Literal["vllm", "sglang", "llama_cpp", "lmstudio", "ollama", "gateway", "openai"]
Body = dict[str, Any]

TOP_LOGPROBS = 20
DEFAULT_DECISION_PREFIX = "\n<"
"""What both answers share before they differ, where the tokenizer makes `<` a token of its own."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server. `thinking_off` goes into every body as it stands."""

    kind: Kind
    thinking_off: Body = field(default_factory=dict)
    grammar_key: Literal["structured_outputs", "ebnf", "grammar"] | None = None
    continues: bool = False
    """Takes an assistant text to go on from."""
    logprobs: bool = False
    """Gives raw log-probabilities of the next token."""

    @property
    def can_score(self) -> bool:
        """Whether the decision can be read at its token."""
        return self.continues and self.logprobs

    @property
    def lacks(self) -> tuple[str, ...]:
        """What this kind cannot give, in words."""
        lacking = []
        if not self.can_score:
            lacking.append(f"{self.kind} gives no probability of speaking (no prefix or no log-probabilities): completion mode")
        if self.grammar_key is None:
            lacking.append(
                f"{self.kind} takes no grammar: the parser alone keeps the envelope, citations are checked by the gates"
            )
        if not self.thinking_off:
            lacking.append(f"{self.kind} is sent no control that turns thinking off")
        return tuple(lacking)


_TEMPLATE_OFF: Body = {"chat_template_kwargs": {"enable_thinking": False}}
_EFFORT_OFF: Body = {"reasoning_effort": "none"}

DIALECTS: dict[str, Dialect] = {
    "vllm": Dialect("vllm", _TEMPLATE_OFF, "structured_outputs", continues=True, logprobs=True),
    "sglang": Dialect("sglang", _TEMPLATE_OFF, "ebnf", continues=True, logprobs=True),
    "llama_cpp": Dialect("llama_cpp", _TEMPLATE_OFF, "grammar", continues=True, logprobs=True),
    "lmstudio": Dialect("lmstudio", _EFFORT_OFF),
    "ollama": Dialect("ollama", _EFFORT_OFF),
    "gateway": Dialect("gateway"),
    "openai": Dialect("openai"),
}

_OWNERS: dict[str, Kind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama_cpp",
    "library": "ollama",
    "organization_owner": "lmstudio",
}


def kind_of_listing(listing: Body) -> Kind:
    """Which server answers `/v1/models` like this, by the owner it names; one of another name is a gateway."""
    for item in listing.get("data") or []:
        if isinstance(item, dict) and str(item.get("owned_by")) in _OWNERS:
            return _OWNERS[str(item["owned_by"])]
    return "gateway"


def output_budget(max_tokens: int, *, always_thinking: bool = False, cap: int | None = None) -> int:
    """Output tokens of one completion: a model that always thinks needs max(2x, 4,000), within its own cap."""
    wanted = max(2 * max_tokens, 4000) if always_thinking else max_tokens
    return min(wanted, cap) if cap is not None else wanted


# Bodies


def chat_body(dialect: Dialect, model: str, request: Request, *, max_tokens: int) -> Body:
    """The body of `/chat/completions`."""
    body: Body = {
        "model": model,
        "messages": list(request.messages),
        "max_tokens": max_tokens,
        "temperature": request.temperature,
        **dialect.thinking_off,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
        body |= {"vllm": {"include_stop_str_in_output": True}, "sglang": {"no_stop_trim": True}}.get(dialect.kind, {})
    if request.grammar and dialect.grammar_key:
        nested = dialect.grammar_key == "structured_outputs"
        body[dialect.grammar_key] = {"grammar": request.grammar} if nested else request.grammar
    if request.prefix:
        if not dialect.continues:
            raise RouteError(f"a {dialect.kind} route cannot go on from a given text")
        body["messages"].append({"role": "assistant", "content": request.prefix})
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    return body


def decision_body(dialect: Dialect, model: str, request: Request, token_ids: list[int]) -> Body:
    """The body that asks for one token and its alternatives; exact ids where the server takes them, else the most likely ones."""
    body = chat_body(dialect, model, request, max_tokens=1) | {"logprobs": True}
    if token_ids and dialect.kind == "vllm":
        return body | {"logprob_token_ids": token_ids, "return_tokens_as_token_ids": True}
    return body | {"top_logprobs": TOP_LOGPROBS}


def template_body(request: Request) -> Body:
    """llama.cpp `/apply-template`: the messages in the server's own chat template."""
    return {"messages": list(request.messages), **_TEMPLATE_OFF}


def llama_body(prompt: str, request: Request, *, max_tokens: int, n_probs: int = 0) -> Body:
    """llama.cpp `/completion`, samplers off; a negative temperature is greedy, with probabilities straight from the logits."""
    body: Body = {
        "prompt": prompt + request.prefix,
        "n_predict": max_tokens,
        "temperature": request.temperature or -1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "cache_prompt": True,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    if request.grammar:
        body["grammar"] = request.grammar
    return body | ({"n_probs": n_probs, "post_sampling_probs": False} if n_probs else {})


# Answers


def parse_json(body: bytes) -> Body:
    """The JSON object of an answer. Raises RouteError on anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise RouteError("the server did not answer with JSON") from None
    if not isinstance(value, dict):
        raise RouteError("the server did not answer with a JSON object")
    return value


def read_chat(value: Body, stop: tuple[str, ...] = (), duration_ms: float = 0.0) -> Completion:
    """A chat completion. Content null counts as an empty text, which is malformed and not silence."""
    choice = _choice(value)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else None
    text = text if isinstance(text, str) else ""
    matched = choice.get("stop_reason")
    if isinstance(matched, str) and matched in stop and not text.endswith(matched):
        text += matched
    usage = _usage(value)
    return Completion(
        text=text,
        finish_reason=_text(choice.get("finish_reason")),
        tokens_in=usage[0],
        tokens_out=usage[1],
        cached_tokens=usage[2],
        latency_ms=duration_ms,
        model=_text(value.get("model")),
    )


def read_llama(value: Body, duration_ms: float = 0.0) -> Completion:
    """An answer of llama.cpp `/completion`; the stop string is put back where it stood."""
    text, stop_type = value.get("content"), value.get("stop_type")
    if not isinstance(text, str):
        raise RouteError("the server's answer holds no content")
    word = value.get("stopping_word") if stop_type == "word" else ""
    return Completion(
        text=text + (word if isinstance(word, str) else ""),
        finish_reason="length" if stop_type == "limit" else "stop",
        tokens_in=_count(value.get("tokens_evaluated")),
        tokens_out=_count(value.get("tokens_predicted")),
        cached_tokens=_count(value.get("tokens_cached")),
        latency_ms=duration_ms,
        model=_text(value.get("model")),
    )


def read_decision(
    value: Body, *, token_ids: dict[str, list[int]] | None, remainders: tuple[str, str], duration_ms: float = 0.0
) -> DecisionRead:
    """Mass on the tokens that begin either answer. `remainders`: both answers from the first place where they differ."""
    alternatives = _alternatives(value)
    speak = math.fsum(prob for token, prob in alternatives if _begins(token, 0, token_ids, remainders))
    silent = math.fsum(prob for token, prob in alternatives if _begins(token, 1, token_ids, remainders))
    both = speak + silent
    return DecisionRead(
        prob_speak=speak / both if both > 0 else 0.0,
        label_mass=min(both, 1.0),
        tokens_in=_usage(value)[0] or _count(value.get("tokens_evaluated")),
        latency_ms=duration_ms,
        model=_text(value.get("model")),
    )


def answer_remainders(decision_prefix: str) -> tuple[str, str]:
    """What is left of either answer after the shared text. Raises RouteError when that text belongs to only one of them."""
    speak, silent = "\n" + SPEAK, "\n" + SILENT
    if not (speak.startswith(decision_prefix) and silent.startswith(decision_prefix)) or not decision_prefix:
        raise RouteError(f"decision_prefix {decision_prefix!r} is not shared by both answers; take it from policy.json")
    return speak[len(decision_prefix) :], silent[len(decision_prefix) :]


_ID_MARK = "token_id:"


def _begins(token: str, answer: int, token_ids: dict[str, list[int]] | None, remainders: tuple[str, str]) -> bool:
    if token.startswith(_ID_MARK):
        ids = (token_ids or {}).get(("speak", "silent")[answer], [])
        return token.removeprefix(_ID_MARK) in map(str, ids)
    mine, other = remainders[answer], remainders[1 - answer]
    return _fits(token, mine) and not _fits(token, other)


def _fits(token: str, remainder: str) -> bool:
    return bool(token) and (remainder.startswith(token) or token.startswith(remainder))


def _alternatives(value: Body) -> list[tuple[str, float]]:
    """(token, probability) of the first generated token and its alternatives, each once."""
    if "choices" in value:
        logprobs = _choice(value).get("logprobs")
        places = logprobs.get("content") if isinstance(logprobs, dict) else None
    else:
        places = value.get("completion_probabilities") or value.get("probs")
    first = places[0] if isinstance(places, list) and places else None
    if not isinstance(first, dict):
        raise RouteError("the server gave no log-probabilities; set mode: completion for this route")
    found: dict[str, float] = {}
    for item in [*(first.get("top_logprobs") or []), first]:
        if (
            not isinstance(item, dict)
            or not isinstance(item.get("token"), str)
            or not isinstance(item.get("logprob"), int | float)
        ):
            continue
        if not math.isnan(item["logprob"]):
            found.setdefault(_exact(item), math.exp(min(0.0, float(item["logprob"]))))
    return list(found.items())


def _exact(item: Body) -> str:
    """Token text from its bytes where given (some servers clean the text up)."""
    raw = item.get("bytes")
    if isinstance(raw, list) and raw and not item["token"].startswith(_ID_MARK):
        try:
            return bytes(raw).decode("utf-8", "replace")
        except (ValueError, TypeError):
            pass
    return str(item["token"])


def _choice(value: Body) -> Body:
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RouteError("the server's answer holds no choices")
    return choices[0]


def _usage(value: Body) -> tuple[int, int, int]:
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
