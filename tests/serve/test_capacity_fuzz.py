"""Whatever is sent to the limit: an answer that is no 500, and no slot left behind."""

import asyncio
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.capacity import CapacityLimit
from serve.capacity_settings import BodyLimits, CapacitySettings
from serve.slots import SlotLimits

SETTINGS = CapacitySettings(
    slots=SlotLimits(limit=2, hold_idle_s=0.0, hold_after_decision_s=0.0), body=BodyLimits(max_bytes=2000, timeout_s=0.5)
)
PATHS = ("/capacity", "/capacity/done", "/v1/chat/completions", "/v1/completions", "/tokenize", "/metrics", "/", "//", "/%ff")
NAMES = (
    "x-pmem-step", "x-pmem-client", "x-pmem-deadline-ms", "x-pmem-last", "content-type", "content-encoding", "content-length",
    "authorization", "x-request-id",
)  # fmt: skip
ODD = [b"1", b"0", b"-1", b"9" * 30, b"application/json", b"gzip", b"Bearer x", b"a b", b"\xff", b"\xb2", b"", b"1.5"]
VALUES = st.sampled_from(ODD) | st.binary(max_size=20).filter(lambda value: not set(value) & {0, 10, 13})
KEYS = st.sampled_from(["prompt", "messages", "n", "max_tokens", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The application behind: reads the body and answers."""
    if scope["method"] == "POST":
        await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"]),
    st.sampled_from(PATHS),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    st.one_of(JSON, st.binary(max_size=300), st.just(b"[" * 1990)),
)
def test_no_request_breaks_the_limit(method: str, path: str, headers: dict[str, bytes], body: Any) -> None:
    limit = CapacityLimit(echo, SETTINGS)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=limit), base_url="http://route") as client:
            pairs = [(name.encode(), value) for name, value in headers.items()]
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            return await client.request(method, path, headers=pairs, **content)

    answer = asyncio.run(ask())
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert limit.slots.in_flight == 0
