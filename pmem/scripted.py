"""A backend that plays back answers written beforehand: demonstrations, replays and tests without a model.

    backend = ScriptedBackend(lists=["<operations>[]</operations>"], probs=[0.9],
                              reminders=["Use JSON [tm-k-1]</context_for_action>"])

It keeps every request. An answer that is an exception is raised; a script that has run out is an error of its writer.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from pmem.backend import Completion, DecisionRead, Request

Text = str | Completion | Exception
Read = float | DecisionRead | Exception


class ScriptedBackend:
    """Plays `lists` for requests without a prefix, `reminders` for the others, `probs` for decisions, each in order."""

    def __init__(
        self,
        *,
        lists: Iterable[Text] = (),
        probs: Iterable[Read] = (),
        reminders: Iterable[Text] = (),
        route: str = "scripted",
        model: str = "scripted",
        model_hash: str | None = None,
    ) -> None:
        self.route = route
        self.model = model
        self.model_hash = model_hash
        self.requests: list[Request] = []
        self._lists: deque[Text] = deque(lists)
        self._probs: deque[Read] = deque(probs)
        self._reminders: deque[Text] = deque(reminders)

    def complete(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[Completion]:
        """The next text for each request."""
        self.requests.extend(requests)
        return [_completion(request, _next(self._reminders if request.prefix else self._lists, request)) for request in requests]

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        """The next probability for each request."""
        self.requests.extend(requests)
        return [_read(request, _next(self._probs, request)) for request in requests]


def _next(script: deque[Any], request: Request) -> Any:
    if not script:
        raise LookupError(f"the script has no answer left for a request with prefix {request.prefix!r}")
    answer = script.popleft()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _completion(request: Request, answer: str | Completion) -> Completion:
    if isinstance(answer, Completion):
        return answer
    return Completion(text=answer, finish_reason="stop", tokens_in=_size(request), tokens_out=max(1, len(answer) // 4))


def _read(request: Request, answer: float | DecisionRead) -> DecisionRead:
    if isinstance(answer, DecisionRead):
        return answer
    return DecisionRead(prob_speak=float(answer), label_mass=1.0, tokens_in=_size(request))


def _size(request: Request) -> int:
    return (sum(len(message["content"]) for message in request.messages) + len(request.prefix)) // 4
