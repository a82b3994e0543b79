"""The capacity limit in front of servers that cannot carry it inside: several replicas, SGLang, llama.cpp, Ray Serve.

Run:  python -m serve.gateway http://gpu-1:8000 http://gpu-2:8000 --limit 16 --port 8077 --model-hash 1a2b…

One limit for all replicas together; each request goes to the replica with the fewest in flight, the requests of one step to the
same one, whose prefix cache knows them. A client that leaves, or a deadline that passes, closes the connection to the replica.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import httpx

from pmem.errors import UserError, exit_code
from pmem.prompt import PROMPT_VERSION
from serve.answers import problem_answer
from serve.capacity import CapacityLimit, Scope, Send
from serve.capacity_settings import CapacitySettings
from serve.request_body import Problem, Receive
from serve.slots import SlotLimits

HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"})
MAX_STEPS = 4096
RETRY_AFTER_S = 5.0


class Replicas:
    """ASGI application that hands requests on. A replica that cannot be reached is left out for a few seconds."""

    def __init__(self, urls: list[str], *, timeout_s: float = 600.0) -> None:
        self.in_flight = dict.fromkeys((url.rstrip("/").removesuffix("/v1") for url in urls), 0)
        self._down: dict[str, float] = {}
        self._steps: OrderedDict[str, str] = OrderedDict()
        self._client: httpx.AsyncClient | None = None
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        async with httpx.AsyncClient(timeout=self._timeout_s, limits=limits, trust_env=False) as self._client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        url = self._choose(dict(headers).get("x-pmem-step"))
        if url is None:
            await problem_answer(Problem(503, "no_replica", "no replica can be reached")).send(send)
            return
        body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
        self.in_flight[url] += 1
        work = asyncio.create_task(self._forward(url, scope, headers, body, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.in_flight[url] -= 1
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _forward(self, url: str, scope: Scope, headers: list[tuple[str, str]], body: bytes, send: Send) -> None:
        assert self._client is not None
        kept = [pair for pair in headers if pair[0].lower() not in HOP_BY_HOP]
        target = url + scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope.get("query_string") else "")
        request = self._client.build_request(scope["method"], target, headers=kept, content=body)
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            self._down[url] = asyncio.get_running_loop().time() + RETRY_AFTER_S
            problem = Problem(503, "replica_failed", f"the replica did not answer ({type(error).__name__})")
            await problem_answer(problem).send(send)
            return
        async with contextlib.aclosing(answer):
            pairs = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in HOP_BY_HOP]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": pairs})
            async for chunk in answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _choose(self, step: str | None) -> str | None:
        """The replica of the step, else the least busy one that is up."""
        now = asyncio.get_running_loop().time()
        up = [url for url in self.in_flight if self._down.get(url, 0.0) <= now]
        known = self._steps.get(step) if step else None
        if known in up:
            return known
        if not up:
            return None
        url = min(up, key=lambda name: self.in_flight[name])
        if step:
            self._steps[step] = url
            while len(self._steps) > MAX_STEPS:
                self._steps.popitem(last=False)
        return url


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def gateway(urls: list[str], settings: CapacitySettings) -> CapacityLimit:
    """The limit over the replicas, as one ASGI application."""
    return CapacityLimit(Replicas(urls), settings)


def main(argv: list[str] | None = None) -> int:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("urls", nargs="+", metavar="URL", help="base addresses of the replicas")
    parser.add_argument("--limit", type=int, required=True, help="steps in flight over all replicas together")
    parser.add_argument("--client-share", type=float, default=0.5, help="part of the slots one client may hold while others come")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8077)
    parser.add_argument("--api-key-file", type=Path, help="key asked of clients; needed beyond loopback")
    parser.add_argument("--model-hash", help="hash that /capacity states")
    options = parser.parse_args(argv)
    if not ipaddress.ip_address(options.host).is_loopback and options.api_key_file is None:
        raise UserError(f"--host {options.host} is beyond loopback; name a key file with --api-key-file")
    try:
        slots = SlotLimits(limit=options.limit, client_share=options.client_share)
    except ValueError as error:
        raise UserError(str(error)) from None
    settings = CapacitySettings(
        slots=slots, api_key_file=options.api_key_file, model_hash=options.model_hash, prompt_version=PROMPT_VERSION
    )
    _serve(gateway(options.urls, settings), options.host, options.port)
    return 0


def _serve(app: Any, host: str, port: int) -> None:
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", lifespan="on")


if __name__ == "__main__":
    sys.exit(exit_code(main))
