"""One OpenAI-compatible route as a `Backend`: lists, decisions and reminders over HTTP, never a retry (docs/design/runtime.md 8).

    backend = HttpBackend("http://127.0.0.1:8077/v1", "pmem-1a2b3c4d", kind="vllm", decision_token_ids=ids)
    ModelPolicy(backend, threshold=threshold).step(snapshot)

No provider SDK, because those retry 503 behind our back. 429 and 503 are `overloaded`; every other refusal is a client error.
The deadline holds for the whole exchange. `when_idle` tells when the transport of a step has really ended: then its slot is free.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pmem import route_dialects as dialects
from pmem.backend import Completion, DecisionRead, Request, RouteError
from pmem.bank import estimate_tokens
from pmem.envelope import SPEAK
from pmem.route_dialects import DEFAULT_DECISION_PREFIX, DIALECTS, Dialect, Kind
from pmem.transport import Answer, Transport

OVERLOADED = frozenset({429, 503})
PROBE_TIMEOUT_S = 2.0
DONE_TIMEOUT_S = 0.5
CLIENT_HEADER, STEP_HEADER, DEADLINE_HEADER = "x-pmem-client", "x-pmem-step", "x-pmem-deadline-ms"
NUM_ABORTED = 64
"""Given-up steps that are remembered, so that none of them asks once more."""
LAST_HEADER = "x-pmem-last"
"""`1` on a request that is the last of its step: a server that keeps a place for the step may give it away."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a probe learned. `problem`: why the route cannot be used now, in words; None when it can."""

    kind: Kind
    problem: str | None = None
    limit: int | None = None
    model_hash: str | None = None
    prompt_version: str | None = None


class HttpBackend:
    """A model behind a URL that ends in `/v1`. `kind` "auto" is found out by the first probe; until then a gateway is assumed.

    `decision_prefix` and `decision_token_ids` come from `policy.json`. `concurrency`: requests sent side by side for one batch.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        kind: str = "auto",
        api_key: str | None = None,
        route: str | None = None,
        model_hash: str | None = None,
        decision_prefix: str | None = None,
        decision_token_ids: dict[str, list[int]] | None = None,
        always_thinking: bool = False,
        model_max_output_tokens: int | None = None,
        concurrency: int = 8,
        client: str = "pmem",
    ) -> None:
        self.url = url.rstrip("/")
        self.model = model
        self.route = route or self.url
        self.model_hash = model_hash
        self.concurrency = concurrency
        self._dialect: Dialect | None = DIALECTS.get(kind)
        self._decision_prefix = decision_prefix or DEFAULT_DECISION_PREFIX
        self._token_ids = decision_token_ids
        self._always_thinking = always_thinking
        self._cap = model_max_output_tokens
        self._context: int | None = None
        headers = {"content-type": "application/json", CLIENT_HEADER: client}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._transport = Transport(self.url, headers=headers)
        self._root = Transport(self.url.removesuffix("/v1"), headers=headers)
        self._keeps_places = False
        self._live: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._cuts: dict[str, list[Callable[[], None]]] = {}
        self._aborted: deque[str] = deque(maxlen=NUM_ABORTED)
        self._lock = threading.Lock()

    @property
    def dialect(self) -> Dialect:
        """The dialect spoken here."""
        return self._dialect or DIALECTS["gateway"]

    @property
    def can_score(self) -> bool:
        """Whether the decision can be read at its token."""
        return self.dialect.can_score

    @property
    def lacks(self) -> tuple[str, ...]:
        """What this route cannot give, in words."""
        return self.dialect.lacks

    def complete(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[Completion]:
        """Generate. Raises TimeoutError or RouteError for the first request that fails."""
        return self._each(lambda request: self._complete(request, deadline), requests)

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        """Read the probability of speaking from raw log-probabilities after the text that both answers share."""
        return self._each(lambda request: self._decide(request, deadline), requests)

    def when_idle(self, step_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once no exchange of that step is under way any more: now, or when the last one has ended."""
        with self._lock:
            if self._live[step_id] > 0:
                self._waiting.setdefault(step_id, []).append(callback)
                return
            del self._live[step_id]
        callback()

    def abort_step(self, step_id: str) -> None:
        """Cut what this step has under way, and let it ask nothing more: nobody waits for it."""
        with self._lock:
            self._aborted.append(step_id)
            cuts = list(self._cuts.get(step_id, ()))
        for cut in cuts:
            cut()

    def end_step(self, step_id: str) -> None:
        """Tell a server of ours that the step is over, so that its place is free at once. Best effort."""
        if not self._keeps_places:
            return
        try:
            headers = {STEP_HEADER: step_id}
            self._root.exchange("POST", "/capacity/done", headers=headers, deadline=time.monotonic() + DONE_TIMEOUT_S)
        except (TimeoutError, RouteError):
            pass

    def probe(self, *, deadline: float | None = None) -> ServerFacts:
        """Ask the server what it is: kind, whether the model is there, how many requests it takes, which hash it states."""
        until = min(time.monotonic() + PROBE_TIMEOUT_S, deadline if deadline is not None else float("inf"))
        kind, problem = self._look(until)
        if self._dialect is None:
            self._dialect = DIALECTS[kind]
        if problem is not None:
            return ServerFacts(kind, problem)
        stated = self._stated(until)
        limit = stated.get("limit") or stated.get("total_slots")
        limit = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None
        self._keeps_places = "limit" in stated
        self.concurrency = min(self.concurrency, limit or self.concurrency)
        return ServerFacts(
            kind=kind,
            limit=limit,
            model_hash=_text(stated.get("model_hash")),
            prompt_version=_text(stated.get("prompt_version")),
        )

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()
        self._root.close()

    def _complete(self, request: Request, deadline: float | None) -> Completion:
        max_tokens = dialects.output_budget(request.max_tokens, always_thinking=self._always_thinking, cap=self._output_cap)
        if self.dialect.kind == "llama_cpp":
            body = dialects.llama_body(self._templated(request, deadline), request, max_tokens=max_tokens)
            value, answer = self._ask(self._root, "/completion", body, request, deadline)
            return dialects.read_llama(value, answer.duration_ms)
        body = dialects.chat_body(self.dialect, self.model, request, max_tokens=max_tokens)
        value, answer = self._ask(self._transport, "/chat/completions", body, request, deadline)
        return dialects.read_chat(value, request.stop, answer.duration_ms)

    def _decide(self, request: Request, deadline: float | None) -> DecisionRead:
        if not self.can_score:
            raise RouteError(f"a {self.dialect.kind} route cannot read the decision; set mode: completion for it")
        remainders = dialects.answer_remainders(self._decision_prefix)
        shared = _with_prefix(request, request.prefix.removesuffix("\n") + self._decision_prefix)
        if self.dialect.kind == "llama_cpp":
            prompt = self._templated(shared, deadline)
            body = dialects.llama_body(prompt, shared, max_tokens=1, n_probs=dialects.TOP_LOGPROBS)
            value, answer = self._ask(self._root, "/completion", body, request, deadline)
        else:
            ids = sorted({token for tokens in (self._token_ids or {}).values() for token in tokens})
            body = dialects.decision_body(self.dialect, self.model, shared, ids)
            value, answer = self._ask(self._transport, "/chat/completions", body, request, deadline)
        return dialects.read_decision(value, token_ids=self._token_ids, remainders=remainders, duration_ms=answer.duration_ms)

    @property
    def _output_cap(self) -> int | None:
        """The model's own cap, and at most half of the context that the server states: prompt and answer must fit into it."""
        caps = [cap for cap in (self._cap, self._context and self._context // 2) if cap]
        return min(caps, default=None)

    def _templated(self, request: Request, deadline: float | None) -> str:
        value, _ = self._ask(self._root, "/apply-template", dialects.template_body(request), request, deadline)
        if not isinstance(value.get("prompt"), str):
            raise RouteError("the server did not render its chat template")
        return cast(str, value["prompt"])

    def _ask(
        self, transport: Transport, path: str, body: dict[str, Any], request: Request, deadline: float | None
    ) -> tuple[dict[str, Any], Answer]:
        headers = {STEP_HEADER: request.step_id} if request.step_id else {}
        if request.prefix.endswith(SPEAK) or not (request.prefix or request.stop):
            headers[LAST_HEADER] = "1"
        if deadline is not None:
            headers[DEADLINE_HEADER] = str(max(0, round((deadline - time.monotonic()) * 1000)))
        step_id = request.step_id or ""
        with self._lock:
            if step_id in self._aborted:
                raise RouteError("the step was given up", aborted=True)
            self._live[step_id] += 1
        try:
            answer = transport.exchange(
                "POST", path, body=json.dumps(body).encode(), headers=headers, deadline=deadline,
                on_end=lambda: self._ended(step_id), on_start=lambda cut: self._may_cut(step_id, cut),
            )  # fmt: skip
        except RouteError as error:
            if error.aborted:
                error.tokens_in = _estimated_tokens(request)
            raise
        if answer.status != 200:
            raise RouteError(f"the server answered {answer.status}", overloaded=answer.status in OVERLOADED)
        return dialects.parse_json(answer.body), answer

    def _may_cut(self, step_id: str, cut: Callable[[], None]) -> None:
        with self._lock:
            if self._live[step_id] <= 0:
                del self._live[step_id]
                return  # it has ended meanwhile
            self._cuts.setdefault(step_id, []).append(cut)
            given_up = step_id in self._aborted
        if given_up:
            cut()

    def _ended(self, step_id: str) -> None:
        with self._lock:
            self._live[step_id] -= 1
            if self._live[step_id] > 0:
                return
            del self._live[step_id]
            self._cuts.pop(step_id, None)
            callbacks = self._waiting.pop(step_id, [])
        for callback in callbacks:
            callback()

    def _look(self, until: float) -> tuple[Kind, str | None]:
        """Kind of the server, and why it cannot be used (None: it can)."""
        assumed = self.dialect.kind
        try:
            answer = self._transport.exchange("GET", "/models", deadline=until)
        except (TimeoutError, RouteError) as error:
            return assumed, f"it does not answer ({type(error).__name__})"
        if answer.status == 503:
            return assumed, "it is loading"
        try:
            listing = dialects.parse_json(answer.body) if answer.status == 200 else {}
        except RouteError:
            listing = {}
        if not isinstance(listing.get("data"), list):
            return assumed, None  # no listing is no evidence against it: some gateways keep none
        kind = assumed if self._dialect else dialects.kind_of_listing(listing)
        names = {item.get("id"): item for item in listing["data"] if isinstance(item, dict)}
        context = names.get(self.model, {}).get("max_model_len")
        self._context = context if isinstance(context, int) and context > 1 else None
        if kind != "llama_cpp" and self.model not in names:
            return kind, f"it does not serve {self.model}"
        return kind, None

    def _stated(self, until: float) -> dict[str, Any]:
        """What the server says of itself: our `/capacity`, else llama.cpp's `/props`."""
        for path in ("/props",) if self.dialect.kind == "llama_cpp" else ("/capacity",):
            try:
                answer = self._root.exchange("GET", path, deadline=until)
                if answer.status == 200:
                    return dialects.parse_json(answer.body)
            except (TimeoutError, RouteError):
                continue
        return {}

    def _each(self, ask: Callable[[Request], Result], requests: Sequence[Request]) -> list[Result]:
        if len(requests) <= 1:
            return [ask(request) for request in requests]
        with ThreadPoolExecutor(min(self.concurrency, len(requests)), thread_name_prefix="pmem-route") as pool:
            return list(pool.map(ask, requests))


def _with_prefix(request: Request, prefix: str) -> Request:
    return Request(
        messages=request.messages, prefix=prefix, max_tokens=1, temperature=0.0, seed=request.seed, step_id=request.step_id
    )


def _estimated_tokens(request: Request) -> int:
    """What the server will have read of a request that was cut: nobody but it could count."""
    return estimate_tokens("".join(message["content"] for message in request.messages) + request.prefix)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
