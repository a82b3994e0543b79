"""One HTTP exchange with a deadline that holds for the whole of it, whatever the server does.

A read timeout restarts with every byte, so a server that drips would hold a caller for ever. Here the exchange runs on a thread
of its own; at the deadline the caller goes on at once and the socket is shut down under the exchange. `on_end` is called when the
exchange has really ended: until then it holds its slot. Nothing is ever retried.
"""

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from pmem.backend import RouteError
from pmem.capacity import is_local

MAX_BODY_BYTES = 8 << 20
LONGEST_WAIT_S = 600.0
"""Without a deadline an exchange still ends some time."""
MAX_IDLE = 16
QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""A server that sends head and body apart and waits for our ACK in between costs 40 ms an answer; Linux can ACK at once."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one exchange, and how long it took."""

    status: int
    body: bytes
    duration_ms: float


class _Line:
    """One kept-alive connection and the socket under it, so that another thread can cut it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self._socket: socket.socket | None = None
        self._cut = False

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """httpcore tells when the connection stands (extension `trace`)."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._cut:
                self.cut()
        elif QUICKACK is not None and event.endswith(".send_request_body.complete") and self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def cut(self) -> None:
        """Shut the socket down; a read blocked on it wakes up."""
        self._cut = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Transport:
    """Exchanges with one server. `headers` go with every request; the API key stands in them and nowhere else."""

    def __init__(self, url: str, *, headers: dict[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"accept-encoding": "identity", **(headers or {})}
        self._trust_env = not is_local(url)
        self._idle: deque[_Line] = deque(maxlen=MAX_IDLE)
        self._ssl: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def exchange(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str] | None = None,
        deadline: float | None = None, on_end: Callable[[], None] | None = None,
        on_start: Callable[[Callable[[], None]], None] | None = None,
    ) -> Answer:  # fmt: skip
        """One request, one answer. Raises TimeoutError at `deadline` (time.monotonic), RouteError when the transport fails.

        `on_start` is handed a function that cuts this exchange from another thread; the caller then gets an aborted RouteError.
        """
        now = time.monotonic()
        until = now + LONGEST_WAIT_S if deadline is None else deadline
        if until <= now:
            if on_end is not None:
                on_end()
            raise TimeoutError("no time left for the request")
        try:
            exchange = _Exchange(self, method, self.url + path, body, {**self._headers, **(headers or {})}, until, on_end)
        except Exception as error:
            if on_end is not None:
                on_end()
            raise RouteError(f"the request could not be started: {type(error).__name__}") from error
        if on_start is not None:
            on_start(exchange.abort)
        return exchange.wait()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.popleft().client.close()

    def borrow(self) -> _Line:
        """An idle connection, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        return _Line(httpx.Client(limits=limits, verify=self._certificates(), trust_env=self._trust_env))

    def _certificates(self) -> ssl.SSLContext | bool:
        """Loading them takes 20 ms, so they are loaded once, and not at all for plain HTTP (where nothing is verified)."""
        if not self.url.startswith("https:"):
            return False
        if self._ssl is None:
            self._ssl = ssl.create_default_context()
        return self._ssl

    def give_back(self, line: _Line) -> None:
        """Keep a connection whose exchange ended well."""
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(line)
                return
        line.client.close()


class _Exchange:
    """The thread of one request. The waiting caller and the thread meet in `_done`."""

    def __init__(
        self, transport: Transport, method: str, url: str, body: bytes | None, headers: dict[str, str], until: float,
        on_end: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self._transport = transport
        self._request = (method, url, body, headers)
        self._until = until
        self._on_end = on_end
        self._line = transport.borrow()
        self._done = threading.Event()
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._ended = False
        """The answer is in, or was given up: what comes after changes nothing."""
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="pmem-http", daemon=True).start()

    def wait(self) -> Answer:
        """The answer, or what went wrong; past the deadline the connection is cut and the caller does not wait for its end."""
        if not self._done.wait(max(0.0, self._until - time.monotonic())):
            self._give_up(TimeoutError("the deadline passed before the answer was complete"))
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def abort(self) -> None:
        """Cut it: the caller goes on at once, the connection is not used again."""
        self._give_up(RouteError("the request was cut, nobody waits for its answer", aborted=True))

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
            self._line.cut()
        self._done.set()

    def _run(self) -> None:
        started = time.monotonic()
        answer: Answer | None = None
        error: Exception | None = None
        try:
            status, body = self._talk()
            answer = Answer(status, body, (time.monotonic() - started) * 1000)
        except (httpx.TimeoutException, TimeoutError):
            error = TimeoutError("the server did not answer in time")
        except Exception as fault:
            error = fault if isinstance(fault, RouteError) else RouteError(f"{type(fault).__name__}: {str(fault)[:200]}")
        finally:
            self._finish(answer, error)

    def _finish(self, answer: Answer | None, error: Exception | None) -> None:
        with self._lock:
            kept = answer is not None and not self._ended
            if not self._ended:
                self._ended, self._answer, self._error = True, answer, error
        if kept:
            self._transport.give_back(self._line)
        else:
            self._line.client.close()
        self._done.set()
        if self._on_end is not None:
            self._on_end()

    def _talk(self) -> tuple[int, bytes]:
        method, url, body, headers = self._request
        timeout = httpx.Timeout(max(0.001, self._until - time.monotonic()))
        extensions = {"trace": self._line.trace}
        chunks: list[bytes] = []
        size = 0
        with self._line.client.stream(
            method, url, content=body, headers=headers, timeout=timeout, extensions=extensions
        ) as response:
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise RouteError(f"the answer is longer than {MAX_BODY_BYTES} bytes")
                if time.monotonic() > self._until:
                    raise TimeoutError
                chunks.append(chunk)
            return response.status_code, b"".join(chunks)
