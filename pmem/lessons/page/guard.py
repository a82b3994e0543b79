"""Who may ask: this very host and port, no other origin, and only with the token.

The token comes once in the address and then lives in a cookie that scripts cannot read. Forms carry a second word made from it,
so that no other page can post for the person.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

MAX_FORM_BYTES = 200_000
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # `no-referrer` would make browsers send forms with `Origin: null`, which is refused
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Checks every request before anything is read from the store."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self.cookie = f"pmem_lessons_{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.form_word = hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = self._refusal(request) or self._login(request) or await self._admitted(request, call_next)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this page answers to 127.0.0.1 only", status_code=403)
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return PlainTextResponse("another origin may not ask here", status_code=403)
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("another site may not ask here", status_code=403)
        return None

    def _login(self, request: Request) -> Response | None:
        given = request.query_params.get("token")
        if given is None or not _equal(given, self._token):
            return None
        response = RedirectResponse(request.url.path, status_code=303)
        response.set_cookie(self.cookie, self._token, httponly=True, samesite="strict", path="/")
        return response

    async def _admitted(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if not _equal(request.cookies.get(self.cookie, ""), self._token):
            return PlainTextResponse("open the address that `pmem lessons serve` printed", status_code=401)
        return await call_next(request)


async def form_of(request: Request, guard: Guard) -> dict[str, str] | None:
    """The fields of a posted form, or None when it does not carry the page's own word or is too long."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
        return None
    body = await request.body()
    fields = {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()}
    return fields if _equal(fields.get("word", ""), guard.form_word) else None


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
