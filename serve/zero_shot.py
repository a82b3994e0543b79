"""vLLM's own decisions (`POST /v1/decisions`, 0.33 and newer) as an untrained judge: should the other agent be told something now?

    python -m eval.score arm=prompted url=http://127.0.0.1:8077/v1/decisions model=FOLDER out=decisions/zero_shot.parquet

The server frames the question itself and only for architectures that it knows (Qwen3, Qwen3.5, Gemma 4 and their like); any other
answers 501. It states a probability and no label mass, so that counts as whole. Reminders are written by the same model as ever.
"""

from collections.abc import Sequence
from typing import Any

from pmem.backend import DecisionRead, Request, RouteError
from pmem.route import HttpBackend
from pmem.route_dialects import Body

QUESTION = (
    "An agent is at work; its task, its memory and its newest steps are shown. Is the agent about to act against something in its"
    " memory, or about to repeat a known failure, so that one short reminder now would change what it does next?"
)


class ZeroShotBackend(HttpBackend):
    """An `HttpBackend` whose decisions come from the server's own endpoint."""

    def __init__(self, url: str, model: str, **options: Any) -> None:
        super().__init__(url.rstrip("/").removesuffix("/decisions"), model, **options)
        self.route = f"{self.url}/decisions"

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        """One predicate a request. Raises RouteError where the server or the model's architecture has no decisions."""
        return self._each(lambda request: self._predicate(request, deadline), requests)

    def _predicate(self, request: Request, deadline: float | None) -> DecisionRead:
        value, answer = self._ask(self._transport, "/decisions", decisions_body(self.model, request), request, deadline)
        return read_predicate(value, answer.duration_ms)


def decisions_body(model: str, request: Request) -> Body:
    """The question about what the prompt shows; the system message, which asks for our own answer format, is left out."""
    shown = "\n\n".join(message["content"] for message in request.messages if message["role"] != "system")
    return {"model": model, "input": shown, "questions": [{"type": "predicate", "name": "remind", "instructions": QUESTION}]}


def read_predicate(value: Body, duration_ms: float = 0.0) -> DecisionRead:
    """The probability of the one predicate. Raises RouteError on any other answer."""
    try:
        (answer,) = value["answers"]
        prob, usage = answer["probability"], value["usage"]
        if isinstance(prob, bool) or not 0 <= prob <= 1:
            raise ValueError
        return DecisionRead(
            prob_speak=float(prob),
            label_mass=1.0,
            tokens_in=int(usage["input_tokens"]),
            latency_ms=duration_ms,
            model=value["model"],
        )
    except (KeyError, TypeError, ValueError):
        raise RouteError("the server did not answer the question with a probability") from None
