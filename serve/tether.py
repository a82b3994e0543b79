"""One request on its way through the application behind: cut loose when its client has gone or its deadline has passed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal

from serve.answers import deadline_answer
from serve.request_body import Receive

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Outcome = Literal["answered", "gone", "deadline", "failed"]


class Tether:
    """Stands between server and application for one request. `outcome` and `status` tell how it ended.

    `on_answered` is called just before the last piece of an answer goes out: who asks again at once finds the slot free.
    """

    def __init__(
        self, receive: Receive, send: Send, body: bytes, deadline_s: float, on_answered: Callable[[int], None] = lambda _: None
    ) -> None:
        self.outcome: Outcome = "answered"
        self.status = 0
        self._outer_receive, self._outer_send = receive, send
        self._body: bytes | None = body
        self._deadline_s = deadline_s
        self._on_answered = on_answered
        self._cut = asyncio.Event()
        self.ended = False

    async def run(self, app: App, scope: MutableMapping[str, Any]) -> None:
        """Run the application; returns when it has returned. What it says after the cut is dropped."""
        watcher = asyncio.create_task(self._watch())
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            if not self._cut.is_set():  # what an abandoned request raises concerns nobody
                self.outcome = "failed"
                raise
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self) -> None:
        """Wait for the client to go or the deadline to pass, then cut."""
        try:
            async with asyncio.timeout(self._deadline_s):
                while (await self._outer_receive())["type"] != "http.disconnect":
                    pass
            outcome: Outcome = "gone"
        except TimeoutError:
            outcome = "deadline"
        if self.ended:
            return
        self.outcome = outcome
        self._cut.set()
        if outcome == "deadline":
            await self._end_late()

    async def _end_late(self) -> None:
        if self.status:
            await self._outer_send({"type": "http.response.body", "body": b""})
        else:
            self.status = 504
            await deadline_answer().send(self._outer_send)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._cut.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._cut.is_set():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.ended = True
            self._on_answered(self.status)
        await self._outer_send(message)
