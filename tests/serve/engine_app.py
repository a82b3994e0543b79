"""A stand-in for a vLLM server: the same answers to a client that leaves, the same request table, an engine that takes its time.

    with serving(CapacityLimit(EngineApp(), settings)) as url: …          # a real uvicorn on loopback

`running` counts what the engine really works on: a request is let go `abort_s` after it was abandoned, not when it was answered.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import uvicorn


class EngineApp:
    """ASGI application. The body's `sleep_s` says how long the engine works on a request."""

    def __init__(self, *, abort_s: float = 0.1) -> None:
        self.abort_s = abort_s
        self.running = 0
        self.peak = 0
        self.num_done = 0
        self.bodies: list[dict[str, Any]] = []
        self.request_ids: list[str] = []
        self.table: dict[str, list[str]] = {}
        self.state = SimpleNamespace(engine_client=SimpleNamespace(output_processor=SimpleNamespace(external_req_ids=self.table)))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            await answer(send, {"path": scope["path"]})
            return
        body = json.loads((await receive())["body"])
        self.bodies.append(body)
        if body.get("explode"):
            raise RuntimeError("the engine is dead")
        if body.get("status"):
            await answer(send, {}, body["status"])
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.request_ids.append(headers["x-request-id"])
        work = asyncio.create_task(self._work(f"chatcmpl-{headers['x-request-id']}", body.get("sleep_s", 0.0)))
        gone = asyncio.create_task(listen(receive))
        done, pending = await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await answer(send, {"choices": [{"text": "ok"}]} if work in done else None)

    async def _work(self, request_id: str, sleep_s: float) -> None:
        self.table[request_id] = [request_id]
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(sleep_s)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(self.abort_s, self._let_go, request_id)
            raise
        self.num_done += 1
        self._let_go(request_id)

    def _let_go(self, request_id: str) -> None:
        self.running -= 1
        del self.table[request_id]


async def listen(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Any, content: Any, status: int = 200) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class WithApp:
    """What Starlette does around its middlewares: names the application in the scope."""

    def __init__(self, outer: Any, engine: EngineApp) -> None:
        self.outer, self.engine = outer, engine

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await self.outer({**scope, "app": self.engine}, receive, send)


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application on a free loopback port; yields its base URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        end = time.monotonic() + 10
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
