"""The key check of a route that is bound beyond loopback: every path asks for the key, the health checks do not."""

import hashlib
import secrets

OPEN_PATHS = ("/health", "/ping")


class KeyCheck:
    """`key` None: everybody may ask (loopback)."""

    def __init__(self, key: str | None) -> None:
        self._digest = None if key is None else hashlib.sha256(key.encode()).digest()

    def allows(self, path: str, headers: dict[str, str]) -> bool:
        if self._digest is None or path in OPEN_PATHS:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        return scheme.lower() == "bearer" and secrets.compare_digest(digest, self._digest)
