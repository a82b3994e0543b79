"""Report of what memory cost and earned, folded from the telemetry rows.

pmem usage report            tables: steps, tokens, model time, hit rate, cost per injection, timeouts, drops
pmem usage report --json     the same figures for machines
"""

from typing import Any

from pmem.cli_output import command_parser, console, print_json, settings_of, shown
from pmem.settings import Settings
from pmem.telemetry import Rows, StepRow, UsageRow, read_rows
from pmem.usage import fold

_LINES = (
    ("steps", "steps", "", 0),
    ("reminders delivered", "hits", "", 0),
    ("of them cited", "cited_hits", "", 0),
    ("tokens", "tokens", "", 0),
    ("model time", "model_seconds", " s", 1),
    ("tokens per reminder", "tokens_per_hit", "", 0),
    ("seconds per reminder", "seconds_per_hit", " s", 1),
    ("timeouts", "timeouts", "", 0),
)


def report(settings: Settings) -> dict[str, Any]:
    """The folded figures, with the count of lines that could not be read."""
    skipped = Rows()
    steps = read_rows(settings.steps_file, StepRow, skipped)
    usages = read_rows(settings.usage_file, UsageRow, skipped)
    return {**fold(steps, usages), "skipped_lines": skipped.num_skipped}


def run(arguments: list[str]) -> int:
    parser = command_parser("usage", __doc__)
    parser.add_argument("action", choices=["report"])
    options = parser.parse_args(arguments)
    found = report(settings_of(options))
    if options.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    if found["first"] is None:
        out.print("no memory step was recorded yet")
        return
    out.print(f"{found['first']} to {found['last']}", markup=False)
    rules, model = found["tiers"]["rules"], found["tiers"]["llm"]
    table = Table("", "rules", "model")
    for label, key, unit, digits in _LINES:
        table.add_row(label, shown(rules[key], unit, digits), shown(model[key], unit, digits))
    table.add_row("hit rate", _percent(rules["hit_rate"]), _percent(model["hit_rate"]))
    table.add_row("latency p50 / p95", _latency(rules["latency_ms"]), _latency(model["latency_ms"]))
    for name in ("drops", "gated"):
        table.add_row(name, _counts(rules[name]), _counts(model[name]))
    out.print(table)
    if found["routes"]:
        _print_routes(found["routes"])
    if found["skipped_lines"]:
        out.print(f"{found['skipped_lines']} lines could not be read and were left out")


def _print_routes(routes: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("route", "model", "calls", "tokens in", "cached", "tokens out", "model time")
    for row in routes:
        table.add_row(
            escape(row["route"]), escape(row["model"]), shown(row["calls"]), shown(row["tokens_in"]), shown(row["cached_tokens"]),
            shown(row["tokens_out"]), shown(row["model_seconds"], " s", 1),
        )  # fmt: skip
    console().print(table)


def _percent(share: float | None) -> str:
    return shown(None if share is None else share * 100, " %", 1)


def _latency(quantiles: dict[str, float] | None) -> str:
    return "–" if quantiles is None else f"{quantiles['p50']:,.0f} / {quantiles['p95']:,.0f} ms"


def _counts(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items()) or "–"
