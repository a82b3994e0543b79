"""How many requests an endpoint takes at once, on which evidence, and who holds its slots (docs/design/runtime.md section 8).

    endpoint = endpoint_at("http://127.0.0.1:8077/v1")
    with endpoint.hold(): …the host's own request…        # foreground traffic and dispatched workers count too
    slot = endpoint.take()                                # None: busy; checked and taken in one step
    slot.release()                                        # when the transport has really ended

Memory is optional work: it never waits for a slot, and the host's own traffic is never refused one.
"""

import ipaddress
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pmem.atomic import write_text

Evidence = Literal["configured", "probed", "persisted", "assumed", "unbounded"]

PROBE_TTL_S = 24 * 3600.0
MAX_RECORDS = 64
ENGINES_THAT_BATCH = frozenset({"vllm", "sglang"})
"""They queue and refuse by themselves; without a stated limit ours would only be a guess below theirs."""
GATEWAY_PROTOCOLS = frozenset({"gateway", "openai"})


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests at once (None: unbounded) and what says so."""

    limit: int | None
    evidence: Evidence


def endpoint_key(url: str) -> str:
    """Scheme, host, port and base path; no names are resolved, so two names of one machine are two endpoints."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    scheme = (parts.scheme or "http").lower()
    port = parts.port or {"http": 80, "https": 443}.get(scheme, 0)
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}{parts.path.rstrip('/')}"


def is_local(url: str) -> bool:
    """Whether the endpoint stands on this machine or in its private network."""
    host = (urlsplit(url if "//" in url else f"//{url}").hostname or "").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".lan", ".internal"))
    return address.is_loopback or address.is_private or address.is_link_local


def assumed_capacity(url: str, kind: str) -> Capacity:
    """What is assumed without any evidence: one slot for a local server of unknown kind, no bound behind a gateway."""
    if kind in ENGINES_THAT_BATCH or kind in GATEWAY_PROTOCOLS or not is_local(url):
        return Capacity(None, "unbounded")
    return Capacity(1, "assumed")


class Slot:
    """One taken place. Releasing twice is harmless."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free: Callable[[], None] | None = free
        self._lock = threading.Lock()

    def release(self) -> None:
        """Give the place back; call it when the transport has ended, whatever the outcome."""
        with self._lock:
            free, self._free = self._free, None
        if free is not None:
            free()


class Endpoint:
    """Occupancy and limit of one endpoint, shared by every session of this process. Safe to use from several threads."""

    def __init__(self, url: str, *, kind: str = "auto", store: "ProbeStore | None" = None) -> None:
        self.key = endpoint_key(url)
        self.kind = kind
        self._url = url
        self._store = store
        self._configured: int | None = None
        self._probed: int | None = None
        self._occupied = 0
        self._lock = threading.Lock()

    @property
    def occupied(self) -> int:
        """Requests now under way: the host's and ours."""
        return self._occupied

    @property
    def capacity(self) -> Capacity:
        """The limit by the strongest evidence there is: configured, probed here, persisted, assumed."""
        if self._configured is not None:
            return Capacity(self._configured, "configured")
        if self._probed is not None:
            return Capacity(self._probed, "probed")
        persisted = self._store.read(self.key, self.kind) if self._store else None
        return Capacity(persisted, "persisted") if persisted is not None else assumed_capacity(self._url, self.kind)

    @property
    def busy(self) -> bool:
        """A first look; only `take` decides."""
        limit = self.capacity.limit
        return limit is not None and self._occupied >= limit

    def configure(self, limit: int | None) -> None:
        """A limit from the settings. Two sessions that differ: the smaller holds."""
        with self._lock:
            if limit is not None:
                self._configured = limit if self._configured is None else min(limit, self._configured)

    def learn(self, limit: int | None, kind: str | None = None) -> None:
        """What a probe in this process found; kept for the next processes."""
        with self._lock:
            self.kind = kind or self.kind
            if limit is not None and limit >= 1:
                self._probed = limit
        if self._probed is not None and self._store:
            self._store.write(self.key, self.kind, self._probed)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The host's own request: counted, never refused."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def take(self) -> Slot | None:
        """A place for one memory step, or None when the endpoint is full. Check and take are one step."""
        limit = self.capacity.limit
        with self._lock:
            if limit is not None and self._occupied >= limit:
                return None
            self._occupied += 1
        return Slot(self._leave)

    def _enter(self) -> None:
        with self._lock:
            self._occupied += 1

    def _leave(self) -> None:
        with self._lock:
            self._occupied -= 1


class ProbeStore:
    """Probed limits on disk, good for 24 hours. Best effort: an unreadable, stale or unwritable file only means less evidence."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time, ttl_s: float = PROBE_TTL_S) -> None:
        self._path = Path(path)
        self._clock = clock
        self._ttl_s = ttl_s
        self._lock = threading.Lock()

    def read(self, key: str, kind: str) -> int | None:
        """The persisted limit, or None when there is none, it is stale, from the future, or of another kind of server."""
        record = self._records().get(key)
        if record is None or not 0 <= self._clock() - record["at"] <= self._ttl_s:
            return None
        return int(record["limit"]) if kind in (record["kind"], "auto") else None

    def write(self, key: str, kind: str, limit: int) -> None:
        """Keep one limit; the newest 64 endpoints stay."""
        with self._lock:
            records = self._records()
            known = records.get(key)
            if known and (known["kind"], known["limit"]) == (kind, limit) and 0 <= self._clock() - known["at"] < self._ttl_s / 24:
                return
            records[key] = {"at": self._clock(), "kind": kind, "limit": limit}
            newest = sorted(records.items(), key=lambda item: item[1]["at"])[-MAX_RECORDS:]
            try:
                write_text(self._path, json.dumps(dict(newest), indent=1, sort_keys=True) + "\n")
            except OSError:
                pass

    def _records(self) -> dict[str, dict[str, Any]]:
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {key: value for key, value in values.items() if _is_record(value)} if isinstance(values, dict) else {}


def _is_record(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"at", "kind", "limit"}:
        return False
    numbers = not isinstance(value["limit"], bool) and isinstance(value["limit"], int) and isinstance(value["at"], int | float)
    return numbers and value["limit"] >= 1 and isinstance(value["kind"], str)


_endpoints: dict[str, Endpoint] = {}
_endpoints_lock = threading.Lock()


def endpoint_at(url: str, *, kind: str = "auto", store: ProbeStore | None = None) -> Endpoint:
    """The one endpoint object of this process for `url`: sessions and host count on the same one."""
    with _endpoints_lock:
        endpoint = _endpoints.get(endpoint_key(url))
        if endpoint is None:
            endpoint = _endpoints[endpoint_key(url)] = Endpoint(url, kind=kind, store=store)
        if endpoint.kind == "auto" and kind != "auto":
            endpoint.kind = kind
        if endpoint._store is None and store is not None:
            endpoint._store = store
        return endpoint
