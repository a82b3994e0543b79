"""Bodies: any bytes give a body or a problem; what the server behind could choke on is refused before it."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.capacity_settings import BodyLimits
from serve.request_body import Body, ClientGone, Problem, parse_body, read_body, with_priority, without_seed

LIMITS = BodyLimits(max_bytes=1000, max_depth=5, timeout_s=0.2)


def code(raw: bytes) -> str:
    answer = parse_body(raw, LIMITS)
    return answer.code if isinstance(answer, Problem) else "ok"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"prompt":"a"}', "ok"),
        (b"", "not_json"),
        (b"[1]", "not_an_object"),
        (b'{"a":NaN}', "not_json"),
        (b'{"a":"\xff"}', "not_utf8"),
        ('{"a":"é"}'.encode("utf-16"), "not_utf8"),
        (b'{"a":[[[[1]]]]}', "ok"),
        (b'{"a":[[[[[1]]]]]}', "too_deep"),
        (b'{"a":' + b"[" * 100_000, "too_deep"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b'{"a":"\\ud800"}', "half_character"),
        (b'{"a":"\\ud83d\\ude00"}', "ok"),
        (b'{"a":' + b"9" * 5000 + b"}", "not_json"),
    ],
)
def test_what_is_taken_and_what_is_not(raw: bytes, expected: str) -> None:
    assert code(raw) == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer(raw: bytes) -> None:
    assert isinstance(parse_body(raw, LIMITS), Body | Problem)


@pytest.mark.parametrize(
    ("value", "weight", "scoring"),
    [
        ({"prompt": "a"}, 1, False),
        ({"prompt": ["a", "b"], "n": 2}, 4, False),
        ({"prompt": [1, 2, 3]}, 1, False),
        ({"prompt": [[1], [2]]}, 2, False),
        ({"messages": [{"role": "user"}]}, 1, False),
        ({"messages": [], "max_tokens": 1, "logprobs": True}, 1, True),
        ({"messages": [], "max_completion_tokens": 1, "logprobs": True}, 1, True),
        ({"prompt": "a", "n": "many"}, 1, False),
    ],
)
def test_weight_and_kind(value: dict[str, Any], weight: int, scoring: bool) -> None:
    body = parse_body(json.dumps(value).encode(), LIMITS)
    assert isinstance(body, Body) and (body.weight, body.is_scoring) == (weight, scoring)


def test_priority_goes_in_front_and_the_clients_own_wins() -> None:
    body = parse_body(b' {"a":1}', LIMITS)
    assert isinstance(body, Body) and json.loads(with_priority(body.raw, -1)) == {"priority": -1, "a": 1}
    own = parse_body(b'{"priority":5}', LIMITS)
    assert isinstance(own, Body) and json.loads(with_priority(own.raw, -1)) == {"priority": 5}


def test_an_empty_object_takes_a_priority() -> None:
    body = parse_body(b"{}", LIMITS)
    assert isinstance(body, Body) and json.loads(with_priority(body.raw, -1)) == {"priority": -1}


def test_a_seed_is_taken_back() -> None:
    body = parse_body(b'{"seed":5,"a":1} ', LIMITS)
    assert isinstance(body, Body) and body.has_seed and json.loads(without_seed(body.raw)) == {"seed": None, "a": 1}
    assert isinstance(plain := parse_body(b'{"seed":null}', LIMITS), Body) and not plain.has_seed


async def read(chunks: list[Any], headers: dict[str, str] | None = None) -> Body | Problem:
    messages = iter(chunks)

    async def receive() -> dict[str, Any]:
        chunk = next(messages)
        if isinstance(chunk, float):
            await asyncio.sleep(chunk)
            chunk = next(messages)
        return {"type": "http.disconnect"} if chunk is None else {"type": "http.request", "body": chunk[0], "more_body": chunk[1]}

    return await read_body(receive, headers or {}, LIMITS)


def test_a_body_in_pieces() -> None:
    assert isinstance(asyncio.run(read([(b'{"a"', True), (b":1}", False)])), Body)


@pytest.mark.parametrize(
    ("chunks", "headers", "status"),
    [
        ([(b" " * 600, True), (b" " * 600, True)], {}, 413),
        ([], {"content-length": "5000"}, 413),
        ([(b"{", True), 1.0, (b"}", False)], {}, 408),
        ([], {"content-encoding": "gzip"}, 415),
        ([], {"content-type": "text/plain"}, 415),
    ],
)
def test_unfit_transfers(chunks: list[Any], headers: dict[str, str], status: int) -> None:
    answer = asyncio.run(read(chunks, headers))
    assert isinstance(answer, Problem) and answer.status == status


def test_a_client_that_leaves_while_sending() -> None:
    with pytest.raises(ClientGone):
        asyncio.run(read([(b"{", True), None]))
