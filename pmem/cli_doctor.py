"""Check what memory needs: settings, folders, telemetry, threshold, routes. One line a check, with its mend.

pmem doctor               exit code 0 when every check holds, 1 when one fails, 2 when the settings cannot be read
pmem doctor --probe       also asks the configured routes
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pmem.cli_output import command_parser, console, print_json
from pmem.errors import UserError
from pmem.settings import Settings, load_settings
from pmem.telemetry import Rows, StepRow, read_rows

Verdict = Literal["ok", "note", "fail"]
RECENT = 50


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it stands, and what mends it."""

    name: str
    verdict: Verdict
    found: str
    mend: str = ""


def run(arguments: list[str]) -> int:
    parser = command_parser("doctor", __doc__)
    parser.add_argument("--probe", action="store_true", help="ask the configured routes")
    options = parser.parse_args(arguments)
    checks = list(examine(options.settings, probe=options.probe))
    if options.json:
        print_json([asdict(check) for check in checks])
    else:
        print_checks(checks)
    failed = [check.name for check in checks if check.verdict == "fail"]
    return 2 if "settings" in failed else int(bool(failed))


def examine(settings_file: Path | None, *, probe: bool = False) -> Iterator[Check]:
    """All checks in order; without readable settings there is only the first."""
    try:
        settings = load_settings(settings_file)
    except UserError as error:
        yield Check("settings", "fail", str(error), "mend the settings file or the variable")
        return
    if not settings.enabled:
        yield Check("settings", "note", "memory is disabled (enabled: false)", "set enabled: true to use it")
        return
    yield Check("settings", "ok", "rules only" if settings.route is None else f"model {settings.route.model}")
    yield _folder("state folder", settings.state_dir)
    yield _folder("data folder", settings.data_dir)
    yield from _telemetry(settings)
    yield _threshold(settings)
    yield from _routes(settings, probe)


def _folder(name: str, folder: Path) -> Check:
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        return Check(
            name, "fail", f"{folder} cannot be written: {error.strerror}", "choose another folder or mend its permissions"
        )
    return Check(name, "ok", str(folder))


def _telemetry(settings: Settings) -> Iterator[Check]:
    if not settings.steps_file.exists():
        yield Check("telemetry", "note", "no step was recorded yet", "run an agent with memory")
        return
    skipped = Rows()
    try:
        rows = [row for row in read_rows(settings.steps_file, StepRow, skipped) if row.tier == "llm"][-RECENT:]
    except OSError as error:
        yield Check("telemetry", "fail", f"{settings.steps_file} cannot be read: {error.strerror}", "mend its permissions")
        return
    broken = f", {skipped.num_skipped} lines unreadable" if skipped.num_skipped else ""
    yield Check("telemetry", "ok", f"{settings.steps_file}{broken}")
    for decision, mend in _SYMPTOMS.items():
        count = sum(row.decision == decision for row in rows)
        if len(rows) >= 4 and count * 2 > len(rows):
            yield Check("recent steps", "fail", f"{count} of the last {len(rows)} model steps ended {decision}", mend)


_SYMPTOMS = {
    "timeout": "the deadline is too short for this route: raise timeout_ms or choose a smaller model",
    "malformed": "the model does not keep the envelope: turn on route.grammar or choose another model",
    "error": "the route refuses: run `pmem targets --probe`",
    "dropped": "the route is busier than the cadence: raise cadence_tool_calls or its max_concurrent_requests",
}


def _threshold(settings: Settings) -> Check:
    if settings.route is None:
        return Check("threshold", "note", "not needed, rules only", "")
    if settings.threshold is None:
        return Check("threshold", "note", "none: the model's own choice counts", "make one with `python -m eval.sweep`")
    from pmem.router import threshold_of

    try:
        threshold = threshold_of(settings)
    except UserError as error:
        return Check("threshold", "fail", str(error), "run `python -m eval.sweep` for this model")
    assert threshold is not None, "it is set, and so is a route"
    whose = "the model is verified when its server states its hash" if settings.route.model_hash is None else "for this model"
    return Check("threshold", "ok", f"{threshold.threshold:.3f}, certified, {whose}")


def _routes(settings: Settings, probe: bool) -> Iterator[Check]:
    for name, route in (("route", settings.route), ("chat route", settings.chat)):
        if route is None:
            continue
        key = route.api_key_file
        if key is not None and not os.access(key, os.R_OK):
            yield Check(name, "fail", f"api key file {key} cannot be read", "write the key into it, readable by you alone")
        elif probe:
            yield _probed(name, settings, route)
        else:
            yield Check(name, "ok", f"{route.model} at {route.url} (not asked)", "")


def _probed(name: str, settings: Settings, route: Any) -> Check:
    from pmem.cli_targets import probe_route

    found = probe_route(route, settings)
    if found["status"] == "ok":
        return Check(name, "ok", f"{route.model} at {route.url}: {found['detail']}")
    return Check(name, "fail", f"{route.model} at {route.url}: {found['detail']}", "start the server, or mend url and model")


def print_checks(checks: list[Check]) -> None:
    from rich.text import Text

    out = console()
    marks = {"ok": ("✓", "green"), "note": ("·", "dim"), "fail": ("✗", "bold red")}
    for check in checks:
        mark, style = marks[check.verdict]
        line = Text(f"{mark} ", style=style) + Text(f"{check.name:<13} {check.found}")
        if check.verdict == "fail" and check.mend:
            line.append(f"\n  mend: {check.mend}", style="yellow")
        out.print(line)
