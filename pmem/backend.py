"""What a policy asks of a model, batch first: complete text, or read the probability of speaking at the decision token.

`pmem.route.HttpBackend` speaks to a server, `serve.embedded.EmbeddedBackend` runs transformers in the process; both give these
types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation. `prefix` is the assistant text so far; the model goes on from it, `Completion.text` does not repeat it."""

    messages: tuple[dict[str, str], ...]
    prefix: str = ""
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    temperature: float = 0.0
    seed: int | None = None
    step_id: str | None = None
    """The memory step this request belongs to; the requests of one step share it (header `X-Pmem-Step`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """`text` includes the stop string that ended it. `finish_reason`: `stop` or `length`."""

    text: str
    finish_reason: str | None
    tokens_in: int
    tokens_out: int
    cached_tokens: int = 0
    latency_ms: float = 0.0
    model: str | None = None
    """The model that really answered, where the server says so (a gateway may route elsewhere)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRead:
    """`prob_speak` = mass(speak) / (mass(speak) + mass(silent)); `label_mass` = both masses together, of the raw distribution."""

    prob_speak: float
    label_mass: float
    tokens_in: int
    latency_ms: float = 0.0
    model: str | None = None


class Backend(Protocol):
    """A model that answers requests. Errors: TimeoutError past `deadline` (time.monotonic seconds), `RouteError` otherwise."""

    route: str
    model: str
    model_hash: str | None

    def complete(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[Completion]: ...

    def decide(self, requests: Sequence[Request], *, deadline: float | None = None) -> list[DecisionRead]:
        """Each prefix ends with the newline after `</operations>`."""
        ...


class RouteError(Exception):
    """The route failed. `overloaded` (429, 503) is not `client_error`: a route that is full is not a route that is wrong.

    `aborted`: we cut the request ourselves. The server never says what such a one cost, so `tokens_in` holds an estimate.
    """

    def __init__(self, message: str, *, overloaded: bool = False, aborted: bool = False, tokens_in: int = 0) -> None:
        super().__init__(message)
        self.overloaded = overloaded
        self.aborted = aborted
        self.tokens_in = tokens_in
