"""The configured routes: where, which model, how many requests at once and on which evidence.

pmem targets              what the settings say
pmem targets --probe      asks each server; exit code 1 when one cannot serve
"""

import time
from typing import Any

from pmem.cli_output import command_parser, console, print_json, settings_of
from pmem.errors import UserError
from pmem.settings import RouteSettings, Settings

PROBE_S = 5.0


def run(arguments: list[str]) -> int:
    parser = command_parser("targets", __doc__)
    parser.add_argument("--probe", action="store_true", help="ask each server")
    options = parser.parse_args(arguments)
    settings = settings_of(options)
    if not settings.enabled:
        raise UserError("memory is disabled (enabled: false), so no route is resolved; set enabled: true first")
    routes = [(role, route) for role, route in (("memory", settings.route), ("chat", settings.chat)) if route is not None]
    found = [{"role": role, **_described(route, settings, probe=options.probe)} for role, route in routes]
    if options.json:
        print_json(found)
    else:
        _print(found)
    return int(any(row.get("status") == "fail" for row in found))


def probe_route(route: RouteSettings, settings: Settings) -> dict[str, Any]:
    """Ask one server: `{status: ok|fail, detail, kind, limit, evidence, model_hash, latency_ms, lacks}`."""
    from pmem.capacity import endpoint_at
    from pmem.router import make_backend

    backend = make_backend(route)
    started = time.monotonic()
    try:
        facts = backend.probe(deadline=started + PROBE_S)
    finally:
        backend.close()
    endpoint = endpoint_at(route.url, kind=route.kind)
    endpoint.configure(route.max_concurrent_requests)
    endpoint.learn(facts.limit, facts.kind)
    limit = endpoint.capacity.limit
    return {
        "status": "ok" if facts.problem is None else "fail",
        "detail": facts.problem or f"{facts.kind} server, {'unbounded' if limit is None else f'{limit} requests at once'}",
        "kind": facts.kind,
        "limit": limit,
        "evidence": endpoint.capacity.evidence,
        "model_hash": facts.model_hash,
        "latency_ms": round((time.monotonic() - started) * 1000, 1),
        "lacks": list(backend.lacks),
    }


def _described(route: RouteSettings, settings: Settings, *, probe: bool) -> dict[str, Any]:
    told = {"url": route.url, "model": route.model, "mode": route.mode, "max_concurrent_requests": route.max_concurrent_requests}
    return {**told, **probe_route(route, settings)} if probe else {**told, "kind": route.kind}


def _print(found: list[dict[str, Any]]) -> None:
    from rich.text import Text

    out = console()
    if not found:
        out.print("no route is set: rules only, no model is asked")
    for row in found:
        out.print(Text(f"{row['role']:<7} {row['model']} at {row['url']} ({row['kind']}, {row['mode']})"))
        if "status" in row:
            style = "green" if row["status"] == "ok" else "bold red"
            out.print(Text(f"        {row['status']}: {row['detail']} ({row['evidence']}, {row['latency_ms']} ms)", style=style))
            for lack in row["lacks"]:
                out.print(Text(f"        lacks {lack}", style="dim"))
