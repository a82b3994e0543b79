"""Reading a request body within limits, and what must be known of it before the server behind may see it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from serve.capacity_settings import BodyLimits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request is refused: HTTP status, a code for programs, a sentence for people."""

    status: int
    code: str
    message: str


class ClientGone(Exception):
    """The client went away before its request was whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """`weight`: sequences the engine would run; `is_scoring`: one token with log-probabilities, a decision read; `has_seed`."""

    raw: bytes
    weight: int = 1
    is_scoring: bool = False
    has_seed: bool = False


async def read_body(receive: Receive, headers: dict[str, str], limits: BodyLimits) -> Body | Problem:
    """The whole body, checked. Raises ClientGone when the client left while sending."""
    problem = _check_headers(headers, limits)
    if problem is not None:
        return problem
    raw = bytearray()
    try:
        async with asyncio.timeout(limits.timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                raw += message.get("body", b"")
                if len(raw) > limits.max_bytes:
                    return _too_large(limits)
                if not message.get("more_body", False):
                    return parse_body(bytes(raw), limits)
    except TimeoutError:
        return Problem(408, "body_too_slow", f"the body did not arrive within {limits.timeout_s:g} s")


def parse_body(raw: bytes, limits: BodyLimits) -> Body | Problem:
    """Check a whole body: UTF-8, one JSON object, not too deep, no half characters. Total over any bytes."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return Problem(400, "not_utf8", "the body is not UTF-8 text")
    except RecursionError:
        return Problem(400, "too_deep", f"the body is nested deeper than {limits.max_depth}")
    except ValueError:
        return Problem(400, "not_json", "the body is not valid JSON")
    if not isinstance(value, dict):
        return Problem(400, "not_an_object", "the body must be one JSON object")
    if _depth_exceeds(value, limits.max_depth):
        return Problem(400, "too_deep", f"the body is nested deeper than {limits.max_depth}")
    if b"\\u" in raw and not _encodable(value):
        return Problem(400, "half_character", "a string holds half a surrogate pair")
    scoring = value.get("max_tokens", value.get("max_completion_tokens")) == 1 and bool(value.get("logprobs"))
    return Body(raw=raw, weight=_num_sequences(value), is_scoring=scoring, has_seed=value.get("seed") is not None)


def without_seed(raw: bytes) -> bytes:
    """The body with its seed taken back by a last word (later keys win in JSON readers)."""
    return raw.rstrip()[:-1] + b',"seed":null}'


def with_priority(raw: bytes, priority: int) -> bytes:
    """The body with a `priority` in front, unless it states one."""
    rest = raw.lstrip()[1:].lstrip()
    return b'{"priority":%d' % priority + (b"" if rest.startswith(b"}") else b",") + rest


def _check_headers(headers: dict[str, str], limits: BodyLimits) -> Problem | None:
    if headers.get("content-encoding", "identity") != "identity":
        return Problem(415, "encoded_body", "compressed bodies are not taken")
    kind = headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json":
        return Problem(415, "not_json", "the body must be application/json")
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > limits.max_bytes):
        return _too_large(limits)
    return None


def _too_large(limits: BodyLimits) -> Problem:
    return Problem(413, "body_too_large", f"the body is longer than {limits.max_bytes} bytes")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value
    return [item for item in items if isinstance(item, dict | list)]


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _num_sequences(value: dict[str, Any]) -> int:
    """Sequences in the engine: prompts of a list, times answers asked for. Nonsense counts as one; the server refuses it."""
    prompt = value.get("prompt", value.get("messages"))
    num_prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else 1
    num_answers = value.get("n")
    num_answers = num_answers if isinstance(num_answers, int) and num_answers > 1 else 1
    return num_prompts * num_answers
