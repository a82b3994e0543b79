"""`pmem hook doctor`: is the hook registered once, does it answer in time, does it see anything, does it speak as it must.

One line a check, with its mend; exit code 1 when a check fails.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmem import __version__
from pmem.cli_doctor import Check, print_checks
from pmem.cli_output import print_json
from pmem.errors import UserError
from pmem.integrations.hook import install
from pmem.integrations.hook.dialects import DIALECTS, Dialect, answer
from pmem.integrations.hook.shadow import read_said
from pmem.live import ask_at, live_sockets
from pmem.settings import Settings, load_settings

RUNS = 9
BUDGET_MS = 15.0
ENOUGH_EVENTS = 8
"""Tool events after which a conversation must have observed something."""


def run_doctor(options: argparse.Namespace) -> int:
    checks = list(examine(options))
    if options.json:
        print_json([asdict(check) for check in checks])
    else:
        print_checks(checks)
    return int(any(check.verdict == "fail" for check in checks))


def examine(options: argparse.Namespace) -> Iterator[Check]:
    """All checks in order."""
    try:
        settings = load_settings(options.settings)
    except UserError as error:
        yield Check("settings", "fail", str(error), "mend the settings; the daemon cannot start meanwhile")
        return
    if not settings.enabled:
        yield Check(
            "settings", "note", "memory is disabled (enabled: false); the hook does nothing", "set enabled: true to use it"
        )
        return
    script = install.hook_folder(settings) / install.SCRIPT
    yield _installed(settings, script)
    yield from _registrations(settings, options.project)
    if script.exists():
        yield from _latency(script)
    yield from _daemons(settings)
    yield _answers()
    yield _shadow(settings)


def _installed(settings: Settings, script: Path) -> Check:
    client = script.with_name(install.CLIENT)
    if not script.exists() or not client.exists():
        return Check("script", "fail", f"{script} is not there", "run `pmem hook install --client claude` (or codex)")
    if client.read_text(encoding="utf-8") != install.client_text():
        return Check("script", "fail", f"{client} is of another version", "run `pmem hook install` again, with the same options")
    live = "'live': True" in script.read_text(encoding="utf-8")
    return Check("script", "ok", f"{script} ({'live' if live else 'shadow: says nothing'})")


def _registrations(settings: Settings, project: Path | None) -> Iterator[Check]:
    """Where each client would run it, and whether it would run it twice."""
    found = 0
    for dialect in DIALECTS.values():
        times: dict[str, int] = {}
        places = []
        for place in _places(dialect, project or Path.cwd()):
            try:
                entries = install.registered(install.read_settings(place))
            except UserError as error:
                yield Check(dialect.name, "fail", str(error), "mend the file; the client cannot read it either")
                continue
            places += [str(place)] if entries else []
            for event, hooks in entries.items():
                times[event] = times.get(event, 0) + len(hooks)
        if not places:
            continue
        found += 1
        yield _registration(dialect, times, places)
    if not found:
        yield Check("registered", "fail", "in no settings of the user or this project", "run `pmem hook install --client claude`")


def _registration(dialect: Dialect, times: dict[str, int], places: list[str]) -> Check:
    twice = sorted(event for event, number in times.items() if number > 1)
    missing = sorted(set(dialect.registered) - set(times))
    where = " and ".join(places)
    if missing:
        return Check(
            dialect.name, "fail", f"{where}: no {', '.join(missing)}", f"run `pmem hook install --client {dialect.name}`"
        )
    if twice:
        return Check(
            dialect.name, "note", f"registered twice for {', '.join(twice)} ({where}): one process speaks, each costs its time",
            "take one out with --uninstall",
        )  # fmt: skip
    return Check(dialect.name, "ok", f"registered once, in {where}")


def _places(dialect: Dialect, project: Path) -> list[Path]:
    places = [install.settings_place(dialect, project=None), install.settings_place(dialect, project=project)]
    if dialect.name == "claude":
        places.append(places[1].with_name("settings.local.json"))
    return list(dict.fromkeys(places))


def _latency(script: Path) -> Iterator[Check]:
    """What one call adds to the start of the bare interpreter, daemon warm; the first call may start the daemon."""
    python = str(Path(sys.executable).resolve())
    event = json.dumps({"hook_event_name": "Doctor", "session_id": "doctor"}).encode()
    call = [python, "-I", "-S", str(script), "claude"]
    for _ in range(2):
        _milliseconds(call, event)
    bare = sorted(_milliseconds([python, "-I", "-S", "-c", "pass"], b"")[0] for _ in range(RUNS))
    calls = [_milliseconds(call, event) for _ in range(RUNS)]
    hooked = sorted(ms for ms, _, _ in calls)
    if any(code or out for _, code, out in calls):
        yield Check("call", "fail", "the script printed something or did not exit with 0", "run `pmem hook install` again")
    added = hooked[RUNS // 2] - bare[RUNS // 2]
    found = f"{hooked[RUNS // 2]:.1f} ms a call, {added:.1f} ms over the bare interpreter (medians of {RUNS})"
    yield Check("latency", "ok" if added <= BUDGET_MS else "note", found)


def _milliseconds(command: list[str], event: bytes) -> tuple[float, int, bytes]:
    started = time.perf_counter()
    done = subprocess.run(command, input=event, capture_output=True, check=False)
    return (time.perf_counter() - started) * 1000, done.returncode, done.stdout


def _daemons(settings: Settings) -> Iterator[Check]:
    """Each live daemon: version, lost events, conversations that see nothing."""
    sockets = live_sockets(settings)
    if not sockets:
        yield Check("daemon", "fail", f"none answers in {settings.state_dir}", "see whether `pmem hook daemon` starts here")
    for place in sockets:
        status = ask_at(place, {"op": "status"})
        if status is None or "counts" not in status:
            yield Check("daemon", "note", f"{place.name} answers no more; the next event starts another")
            continue
        yield _daemon(status)
        yield from _observing(status)


def _daemon(status: dict[str, Any]) -> Check:
    counts = status["counts"]
    shown = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()) if not name.startswith("event_"))
    found = f"process {status['pid']}, {len(status['conversations'])} conversations, {shown or 'no events yet'}"
    if status["version"] != __version__:
        return Check(
            "daemon", "note", f"{found}; it is version {status['version']}, this is {__version__}", "it leaves when idle"
        )
    if counts.get("malformed", 0) + counts.get("faults", 0) > 0:
        return Check("daemon", "fail", found, "events that could not be read or failed within memory: report them")
    return Check("daemon", "ok", found)


def _observing(status: dict[str, Any]) -> Iterator[Check]:
    """A client whose events changed shape is observed as nothing at all: that must not pass for silence."""
    for held in status["conversations"]:
        if held["tool_events"] >= ENOUGH_EVENTS and not held["observed"]:
            yield Check(
                "observing", "fail", f"{held['tool_events']} tool events of {held['client']} gave no observation",
                "the client sends a shape this version does not know: update pmem",
            )  # fmt: skip


def _answers() -> Check:
    """Every answer holds exactly the two documented keys, and none comes where a client would refuse it."""
    for dialect in DIALECTS.values():
        for event in dialect.registered:
            spoken = answer(dialect, event, "x")
            if (spoken is not None) != (event in dialect.speaks):
                return Check("answers", "fail", f"{dialect.name} {event} is answered against its schema", "report this")
    return Check("answers", "ok", "as the clients' schemas say")


def _shadow(settings: Settings) -> Check:
    number, newest = read_said(settings, newest=1)
    if not number:
        return Check("shadow", "note", "nothing would have been said yet")
    text = " ".join(str(newest[0].get("text", "")).split())[:160]
    return Check("shadow", "note", f"{number} answers would have been given; the newest: {text}")
