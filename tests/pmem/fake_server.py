"""A real local HTTP server that answers as told: 200, 429, 503, slowly, by the drop, cut off, rubbish, or never.

    with FakeServer() as server:
        server.play(Say("<operations>[]</operations>"), Read({"context": -0.1, "no": -3.0}), Status(503), Hang())
        … talk to server.url (ends in /v1) …
        server.requests[0].json["messages"]

Answers are played in order to POST requests; a script that has run out answers with the last one. GET requests see `server.gets`.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Say:
    """A chat completion. `wait_s`: thinking time before the first byte."""

    text: str | None
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = None
    model: str = "memory"
    wait_s: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Read:
    """One token with the log-probabilities of its alternatives, by token text."""

    logprobs: dict[str, float]
    wait_s: float = 0.0


@dataclass(frozen=True)
class Json:
    """Any JSON body."""

    value: Any
    status: int = 200


@dataclass(frozen=True)
class Status:
    """An error in the OpenAI form."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes as they are, with a 200."""

    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True)
class Hang:
    """Says nothing for `seconds`, then closes."""

    seconds: float = 30.0


@dataclass(frozen=True)
class Drip:
    """A proper answer, one byte every `every_s`; `headers`: already the head comes by the drop."""

    every_s: float = 0.05
    headers: bool = False


@dataclass(frozen=True)
class Cut:
    """Promises a long body and closes in the middle of it."""


Reply = Say | Read | Json | Status | Raw | Hang | Drip | Cut | Callable[[Seen], Any]


def chat(text: str | None, finish_reason: str, usage: dict[str, Any] | None, model: str, **extra: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason, **extra}
    usage = usage or {"prompt_tokens": 100, "completion_tokens": 7}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}


def token(logprobs: dict[str, float], model: str = "memory") -> dict[str, Any]:
    """The body of a one-token completion with alternatives, most likely first."""
    ordered = sorted(logprobs.items(), key=lambda item: -item[1])
    top = [{"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in ordered]
    usage = {"prompt_tokens": 100, "completion_tokens": 1}
    return chat(ordered[0][0], "length", usage, model, logprobs={"content": [{**top[0], "top_logprobs": top}]})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.owner.gets_seen.append(self.path)
        reply = self.server.owner.gets.get(self.path, Status(404))
        self._answer(reply, Seen("GET", self.path, dict(self.headers.items()), b""))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        seen = Seen("POST", self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        with self.server.owner.counting():
            self._answer(self.server.owner.next_reply(seen), seen)

    def _answer(self, reply: Any, seen: Seen) -> None:
        try:
            self._play(reply, seen)
        except (BrokenPipeError, ConnectionResetError):
            self.server.owner.clients_gone += 1
            self.close_connection = True

    def _play(self, reply: Any, seen: Seen) -> None:
        if isinstance(reply, Say):
            time.sleep(reply.wait_s)
            self._send(200, chat(reply.text, reply.finish_reason, reply.usage, reply.model, **reply.extra))
        elif isinstance(reply, Read):
            time.sleep(reply.wait_s)
            self._send(200, token(reply.logprobs))
        elif isinstance(reply, Json):
            self._send(reply.status, reply.value)
        elif isinstance(reply, Status):
            self._send(reply.status, {"error": {"message": "told to", "type": "x", "code": reply.status}}, reply.headers)
        elif isinstance(reply, Raw):
            self._write_head(200, {"content-type": reply.content_type, "content-length": str(len(reply.body))})
            self.wfile.write(reply.body)
        elif isinstance(reply, Hang):
            self.server.owner.stopped.wait(reply.seconds)
            self.close_connection = True
        elif isinstance(reply, Drip):
            self._drip(reply)
        elif isinstance(reply, Cut):
            self._write_head(200, {"content-type": "application/json", "content-length": "5000"})
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
        else:
            self._play(reply(seen), seen)

    def _drip(self, reply: Drip) -> None:
        body = json.dumps(chat("<operations>[]</operations>", "stop", None, "memory")).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        if not reply.headers:
            self.wfile.write(head)
        for byte in (head if reply.headers else b"") + body:
            if self.server.owner.stopped.wait(reply.every_s):
                break
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
        self.close_connection = True

    def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._write_head(status, {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def _write_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: "FakeServer"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class FakeServer:
    """The server of one test. `in_flight` and `most_in_flight` count POST requests being answered."""

    def __init__(self, *script: Reply) -> None:
        self.requests: list[Seen] = []
        self.gets: dict[str, Any] = {"/v1/models": Json({"data": [{"id": "memory", "owned_by": "vllm"}]})}
        self.gets_seen: list[str] = []
        self.in_flight = self.most_in_flight = self.clients_gone = 0
        self.stopped = threading.Event()
        self._script: list[Reply] = list(script)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Base address, `/v1` included."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def play(self, *script: Reply) -> None:
        """Replace what is still to be answered."""
        with self._lock:
            self._script = list(script)

    def next_reply(self, seen: Seen) -> Reply:
        with self._lock:
            self.requests.append(seen)
            if not self._script:
                return Status(500)
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def counting(self) -> "_Counting":
        return _Counting(self)

    def close(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Counting:
    def __init__(self, owner: FakeServer) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        with self._owner._lock:
            self._owner.in_flight += 1
            self._owner.most_in_flight = max(self._owner.most_in_flight, self._owner.in_flight)

    def __exit__(self, *_: object) -> None:
        with self._owner._lock:
            self._owner.in_flight -= 1
