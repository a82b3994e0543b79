"""A loopback server that speaks as much of the Anthropic Messages API as the Claude Code command line needs.

It plays scripted turns: each request of the main agent takes the next one. Requests are kept as they came.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


class ScriptedAnthropic:
    """`turns`: content blocks of each answer, in order, then `done`. `before`: called with each request before its answer."""

    def __init__(self, turns: list[list[Block]], *, before: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.turns = list(turns)
        self.before = before
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "ScriptedAnthropic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_turn(self, request: dict[str, Any]) -> list[Block]:
        """Requests without tools are the client's own business (titles and the like)."""
        if not request.get("tools"):
            return [text("ok")]
        if self.before is not None:
            self.before(request)
        with self._lock:
            self.requests.append(request)
            return self.turns.pop(0) if self.turns else [text("done")]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.send_response(200)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(404)
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if "/v1/messages" not in self.path or "count_tokens" in self.path:
                    self.send_response(404)
                    self.end_headers()
                    return
                request = json.loads(body)
                blocks = script.next_turn(request)
                self.send_response(200)
                if request.get("stream"):
                    self.send_header("content-type", "text/event-stream")
                    self.end_headers()
                    for name, data in events(request.get("model", "m"), blocks):
                        self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
                else:
                    self.send_header("content-type", "application/json")
                    self.end_headers()
                    self.wfile.write(json.dumps({**message(request.get("model", "m")), "content": blocks}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 10},
    }  # fmt: skip


def events(model: str, blocks: list[Block]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The stream of one answer."""
    yield "message_start", {"type": "message_start", "message": {**message(model), "stop_reason": None}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": start}
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    stop = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}}
    yield "message_delta", stop
    yield "message_stop", {"type": "message_stop"}
