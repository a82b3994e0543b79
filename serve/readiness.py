"""Ready means that a real decision has been read, through the same client that the runtime uses, not that a port is open."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from pmem.backend import DecisionRead, Request, RouteError
from pmem.envelope import EMPTY_LIST
from pmem.prompt import golden_snapshot, render_messages
from pmem.route import HttpBackend

POLL_S = 0.5
DECISION_TIMEOUT_S = 120.0


class NotReady(Exception):
    """The server ended, or did not answer a decision in time; the message says which."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and whom to ask."""

    url: str
    model: str
    decision: dict[str, Any]
    api_key: str | None = None

    def backend(self, *, client: str = "pmem") -> HttpBackend:
        """A client of this route."""
        return HttpBackend(self.url, self.model, kind="vllm", api_key=self.api_key, client=client, **self.decision)


def wait_until_ready(target: Target, *, ended: Callable[[], bool], timeout_s: float) -> DecisionRead:
    """Poll until the route answers a real decision and return it. Raises NotReady when it cannot any more."""
    end = time.monotonic() + timeout_s
    while not _answers(target.url):
        if ended():
            raise NotReady("the server ended before it was ready")
        if time.monotonic() > end:
            raise NotReady(f"the server did not answer within {timeout_s:g} s")
        time.sleep(POLL_S)
    backend = target.backend()
    try:
        return ask_decision(backend, deadline=min(end, time.monotonic() + DECISION_TIMEOUT_S))
    except (RouteError, TimeoutError) as error:
        raise NotReady(f"the server is up but answers no decision ({error})") from None
    finally:
        backend.close()


def ask_decision(backend: HttpBackend, *, deadline: float | None = None) -> DecisionRead:
    """Read the decision on the golden snapshot after an empty list."""
    request = Request(messages=render_messages(golden_snapshot()), prefix=EMPTY_LIST + "\n")
    return backend.decide([request], deadline=deadline)[0]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url.removesuffix("/v1") + "/health", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
