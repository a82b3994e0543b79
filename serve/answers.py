"""The answers the middleware gives itself, errors in the OpenAI form."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from serve.capacity_settings import CapacitySettings
from serve.request_body import Problem

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole JSON answer."""

    status: int
    content: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        body = json.dumps(self.content, separators=(",", ":")).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


def capacity_answer(settings: CapacitySettings, in_flight: int, refused_total: int) -> Answer:
    """`/capacity`, exactly the keys of docs/design/files.md."""
    content = {
        "limit": settings.slots.limit,
        "in_flight": in_flight,
        "refused_total": refused_total,
        "model_hash": settings.model_hash,
        "prompt_version": settings.prompt_version,
    }
    return Answer(200, content, {"cache-control": "no-store"})


def problem_answer(problem: Problem) -> Answer:
    """An error that the caller can mend."""
    headers = {"connection": "close"} if problem.status in (408, 413) else {}
    return Answer(problem.status, _error(problem, "invalid_request_error"), headers)


def refusal_answer(problem: Problem) -> Answer:
    """429: the route is full, which is not the caller's fault; `Retry-After` in whole seconds as HTTP wants it."""
    return Answer(problem.status, _error(problem, "rate_limit_error"), {"retry-after": "1"})


def deadline_answer() -> Answer:
    """504: the caller's own deadline has passed."""
    return Answer(504, _error(Problem(504, "deadline", "the deadline of the request has passed"), "timeout_error"))


def unauthorized_answer() -> Answer:
    """401: the key is missing or wrong."""
    problem = Problem(401, "invalid_api_key", "this server asks for its key: Authorization: Bearer …")
    return Answer(401, _error(problem, "authentication_error"), {"www-authenticate": "Bearer"})


def _error(problem: Problem, kind: str) -> dict[str, Any]:
    return {"error": {"message": problem.message, "type": kind, "param": None, "code": problem.code}}
