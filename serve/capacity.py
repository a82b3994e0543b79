"""The capacity limit inside the server: at most N in flight, no queue, everything else answered at once with 429.

    vllm … --middleware serve.capacity.CapacityLimit         (`python -m serve.route` does this; settings in SERVE_CAPACITY)

One memory step (header `X-Pmem-Step`) takes one slot for its at most three requests, so only its first can be refused. A slot
is freed when the engine has really let go: after the answer, or after the abort of a client that went away or ran past its
deadline (`X-Pmem-Deadline-Ms`). `GET /capacity` tells the limit and what is in flight; `POST /capacity/done` ends a step early.
"""

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serve import metrics
from serve.answers import Answer, capacity_answer, problem_answer, refusal_answer, unauthorized_answer
from serve.capacity_settings import CapacitySettings, from_environment
from serve.engine_view import wait_until_gone
from serve.keys import KeyCheck
from serve.request_body import Body, ClientGone, Problem, Receive, read_body, with_priority, without_seed
from serve.request_log import log_request, open_log
from serve.slots import Hold, Slots
from serve.tether import Tether

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UNLIMITED = ("/tokenize", "/detokenize")
"""Posts that cost the engine nothing; their bodies are checked all the same."""
RELEASE_TIMEOUT_S = 10.0
NAME = re.compile(r"[\w.:-]{1,64}\Z", re.ASCII)
DIGITS = re.compile(r"[0-9]{1,11}\Z")


class CapacityLimit:
    """ASGI middleware; vLLM calls it with the application alone. `settings` None: read from the environment."""

    def __init__(self, app: App, settings: CapacitySettings | None = None) -> None:
        self.app = app
        self.settings = settings or from_environment()
        self.slots = Slots(self.settings.slots)
        self.refused_total = 0
        if self.settings.log_requests:
            open_log()
        self._key = KeyCheck(self.settings.read_key())
        self._num_reading = 0
        metrics.LIMIT.set(self.settings.slots.limit)
        metrics.IN_FLIGHT.set_function(lambda: self.slots.in_flight)
        metrics.PEAK.set_function(lambda: self.slots.peak)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"].removeprefix(scope.get("root_path", "")), scope["method"]
        if not self._key.allows(path, headers):
            await unauthorized_answer().send(send)
        elif path == "/capacity" and method == "GET":
            await capacity_answer(self.settings, self.slots.in_flight, self.refused_total).send(send)
        elif path == "/capacity/done" and method == "POST":
            done = self.slots.done(_client(headers), headers.get("x-pmem-step", ""))
            await Answer(200, {"done": done}).send(send)
        elif method == "POST":
            await self._post(scope, receive, send, headers, path)
        else:
            await self.app(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str], path: str) -> None:
        started = time.perf_counter()
        limited = path not in UNLIMITED
        problem = self._refused_before_reading(headers) if limited else None
        body = problem or await self._read(receive, headers)
        if body is None:
            metrics.REQUESTS.labels("gone_while_sending").inc()
            return
        if isinstance(body, Problem):
            await self._refuse(send, body, started)
            return
        if not limited:
            await self.app(scope, _replay(body.raw), send)
            return
        hold = self.slots.take(_client(headers), headers.get("x-pmem-step"), body.weight)
        if isinstance(hold, str):
            await self._refuse(send, _refusal(hold, body.weight, self.settings.slots.limit), started)
            return
        await self._run(hold, body, scope, receive, send, headers)

    def _refused_before_reading(self, headers: dict[str, str]) -> Problem | None:
        for name in ("x-pmem-step", "x-pmem-client"):
            if name in headers and not NAME.match(headers[name]):
                return Problem(400, "bad_header", f"header {name} must be 1 to 64 letters, digits or . _ : -")
        reason = self.slots.would_refuse(_client(headers), headers.get("x-pmem-step"))
        return None if reason is None else _refusal(reason, 1, self.settings.slots.limit)

    async def _read(self, receive: Receive, headers: dict[str, str]) -> Body | Problem | None:
        """The body, a problem, or None when the client went away while sending."""
        if self._num_reading >= self.settings.body.max_reading:
            return Problem(429, "too_many_bodies", "too many requests are being sent at once")
        self._num_reading += 1
        try:
            return await read_body(receive, headers, self.settings.body)
        except ClientGone:
            return None
        finally:
            self._num_reading -= 1

    async def _refuse(self, send: Send, problem: Problem, started: float) -> None:
        if problem.status == 429:
            self.refused_total += 1
            metrics.REFUSALS.labels(problem.code).inc()
            metrics.SECONDS_REFUSED.observe(time.perf_counter() - started)
            await refusal_answer(problem).send(send)
        else:
            metrics.REQUESTS.labels(problem.code).inc()
            await problem_answer(problem).send(send)

    async def _run(self, hold: Hold, body: Body, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        """Run one request that has its slot; the slot is released when the engine no longer works on it."""
        started = time.perf_counter()
        if hold.num_requests == 1 and hold.step:
            metrics.STEPS.inc()
        request_id = f"{hold.step or 'pmem'}-{uuid.uuid4().hex[:12]}"
        raw = self._rewritten(body)
        last = headers.get("x-pmem-last") == "1"

        def answered(status: int) -> None:
            self.slots.release(hold, last=last or status >= 400, after_decision=body.is_scoring)

        tether = Tether(receive, send, raw, _deadline_s(headers, self.settings.max_deadline_ms), answered)
        try:
            await tether.run(self.app, _named(scope, request_id, len(raw)))
        finally:
            if not tether.ended:
                await asyncio.shield(self._let_go(hold, scope, request_id))
        held_s = time.perf_counter() - started
        kind = "decision" if body.is_scoring else "generation"
        metrics.REQUESTS.labels(tether.outcome).inc()
        metrics.SECONDS_HELD.labels(kind).observe(held_s)
        if self.settings.log_requests:
            log_request(
                event="request", id=request_id, kind=kind, outcome=tether.outcome, status=tether.status,
                held_ms=round(held_s * 1000, 1), in_flight=self.slots.in_flight,
            )  # fmt: skip

    def _rewritten(self, body: Body) -> bytes:
        """The body as the server behind is to see it."""
        raw = without_seed(body.raw) if self.settings.drop_seed and body.has_seed else body.raw
        return with_priority(raw, -1) if self.settings.priority_scoring and body.is_scoring else raw

    async def _let_go(self, hold: Hold, scope: Scope, request_id: str) -> None:
        """Free the slot of an abandoned request once the engine holds nothing of it any more."""
        started = time.perf_counter()
        await wait_until_gone(scope.get("app"), request_id, timeout_s=RELEASE_TIMEOUT_S)
        metrics.SECONDS_RELEASE.observe(time.perf_counter() - started)
        self.slots.release(hold, last=True)


def _client(headers: dict[str, str]) -> str:
    return headers.get("x-pmem-client", "")


def _deadline_s(headers: dict[str, str], max_ms: int) -> float:
    text = headers.get("x-pmem-deadline-ms", "")
    return min(int(text), max_ms) / 1000 if DIGITS.match(text) else max_ms / 1000


def _refusal(reason: str, weight: int, limit: int) -> Problem:
    if weight > limit:
        return Problem(400, "too_many_sequences", f"the request asks for {weight} sequences; at most {limit} run here at once")
    sentences = {
        "full": f"all {limit} slots are taken",
        "client_share": "this client holds its share of the slots and others are waiting for theirs",
        "step_busy": "another request of this step is still running",
    }
    return Problem(429, reason, sentences[reason])


def _replay(raw: bytes) -> Receive:
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return receive


def _named(scope: Scope, request_id: str, length: int) -> Scope:
    """The scope with our request id, which vLLM gives to its engine, and the length of the body as it now is."""
    own = (b"x-request-id", b"content-length", b"transfer-encoding")
    kept = [pair for pair in scope["headers"] if pair[0].lower() not in own]
    added = [(b"x-request-id", request_id.encode()), (b"content-length", str(length).encode())]
    return {**scope, "headers": [*kept, *added]}
