"""Tier, last decision, last twenty steps and spend; the live banks where a hook daemon holds them.

pmem memory            for people
pmem memory --json     for machines

Rows hold counts and outcomes only. Bank texts are shown for live sessions alone: no other process keeps them.
"""

from typing import Any

from pmem.cli_output import command_parser, console, print_json, settings_of, shown
from pmem.cli_usage import report
from pmem.live import ask
from pmem.settings import Settings
from pmem.telemetry import Rows, StepRow, read_rows

NUM_SHOWN = 20


def overview(settings: Settings) -> dict[str, Any]:
    """Everything the command shows. Disabled: nothing is looked at."""
    if not settings.enabled:
        return {"enabled": False}
    rows = list(read_rows(settings.steps_file, StepRow, Rows()))
    acted = [row for row in rows if row.decision != "dropped"]
    live = ask(settings, {"op": "inspect"})
    return {
        "enabled": True,
        "tier": "rules" if settings.route is None else "llm",
        "route": None if settings.route is None else {"url": settings.route.url, "model": settings.route.model},
        "last_decision": acted[-1].model_dump(mode="json") if acted else None,
        "steps": [row.model_dump(mode="json") for row in rows[-NUM_SHOWN:]],
        "spend": report(settings)["tiers"],
        "live": None if live is None else live.get("sessions", []),
    }


def run(arguments: list[str]) -> int:
    options = command_parser("memory", __doc__).parse_args(arguments)
    found = overview(settings_of(options))
    if options.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    out = console()
    if not found["enabled"]:
        out.print("memory is disabled (enabled: false); nothing is observed, written or sent")
        return
    route = found["route"]
    model = "rules only, no model" if route is None else f"{route['model']} at {route['url']}"
    out.print(f"tier      {found['tier']} ({model})", markup=False)
    last = found["last_decision"]
    out.print(
        f"last      {last['decision']}/{last['reason']} ({last['tier']}) at {last['at']}" if last else "last      –", markup=False
    )
    spend = found["spend"]["llm"]
    out.print(
        f"spend     {shown(spend['steps'])} steps, {shown(spend['tokens'])} tokens, {shown(spend['model_seconds'], ' s', 1)} "
        f"of model time, {shown(spend['hits'])} reminders"
    )
    _print_steps(found["steps"])
    for session in found["live"] or []:
        _print_session(session)
    if found["live"] is None:
        out.print("no hook daemon answers, so no live bank can be shown")


def _print_steps(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    if not rows:
        return
    table = Table("at", "triggers", "tier", "decision", "writes", "cited", "latency")
    for row in rows:
        writes = sum(sum(counts.values()) for counts in row["bank_delta"].values())
        table.add_row(
            row["at"], " ".join(row["triggers"]), row["tier"], f"{row['decision']}/{row['reason']}", str(writes),
            str(row["num_cited"]), shown(row["latency_ms"], " ms"),
        )  # fmt: skip
    console().print(table)


def _print_session(session: dict[str, Any]) -> None:
    from rich.text import Text

    out = console()
    flight = "a step is in flight" if session.get("in_flight") else "idle"
    out.print(f"\nsession {session.get('session_id')} ({session.get('tier')}, {flight})", markup=False)
    bank = session.get("bank") or {}
    out.print(Text(f"  status: {bank.get('status') or '–'}"))
    for entry in bank.get("entries", []):
        out.print(Text(f"  [{entry['id']}] {entry['kind']}: {entry['content']} (injected {entry['injections']}x)"))
