"""Memory for agents that run a command at each event: Claude Code, Codex.

pmem hook install --client claude [--project DIR] [--live]   register it; without --live it says nothing (shadow)
pmem hook install --client claude --uninstall                take it out again
pmem hook doctor                                             registrations, daemon, latency, what shadow would have said
pmem hook run --client claude                                one event on standard input (agents run the installed script)
pmem hook daemon                                             serve this project in the foreground

`run` exits with 0 whatever happens: another code may stop an agent.
"""

import argparse
import itertools
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pmem.cli_output import command_parser, console, print_json, settings_of
from pmem.errors import UserError

if TYPE_CHECKING:
    from pmem.integrations.hook.install import HookConfig

ACTIONS = ("run", "daemon", "install", "doctor")


def run(arguments: list[str]) -> int:
    action = arguments[0] if arguments and arguments[0] in ACTIONS else "run"
    if action == "run" and not {"-h", "--help"} & set(arguments):
        return _run(arguments)
    options = _parser().parse_args(arguments)
    if not hasattr(os, "fork") or not hasattr(socket, "AF_UNIX"):
        raise UserError("the hook needs Unix sockets; on Windows use it within WSL")
    if options.action == "daemon":
        return _daemon(options)
    if options.action == "doctor":
        from pmem.integrations.hook.doctor import run_doctor

        return run_doctor(options)
    return _install(options)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("hook", __doc__)
    parser.add_argument("action", choices=ACTIONS, nargs="?", default="run")
    parser.add_argument("--client", default="claude", help="claude (default) or codex")
    parser.add_argument("--project", type=Path, default=None, metavar="DIR", help="the settings of this project, not the user's")
    parser.add_argument("--live", action="store_true", help="speak; without it the hook only notes what it would have said")
    parser.add_argument("--deadline-ms", type=int, default=None, help="the agent never waits longer (default 500)")
    parser.add_argument("--idle-minutes", type=float, default=None, help="the daemon leaves after so long (default 240)")
    parser.add_argument("--uninstall", action="store_true", help="take the entries out again")
    return parser


def _run(arguments: list[str]) -> int:
    """One event, by the same client that is installed. Ends the process."""
    try:
        from pmem.integrations.hook.client import main
        from pmem.integrations.hook.install import HookConfig, client_config
        from pmem.settings import load_settings

        named = dict(itertools.pairwise(arguments))
        path = Path(named["--settings"]) if "--settings" in named else None
        settings = load_settings(path)
        if settings.enabled:
            settings.state_dir.mkdir(parents=True, exist_ok=True)
            config = HookConfig(live="--live" in arguments, settings_file=path)
            main(named.get("--client", "claude"), client_config(settings, config))
    except BaseException as error:
        if isinstance(error, UserError):
            print(f"error: {error}", file=sys.stderr)
    return 0


def _daemon(options: argparse.Namespace) -> int:
    from pmem.integrations.hook.client import project_folder, socket_name
    from pmem.integrations.hook.daemon import run as serve
    from pmem.integrations.hook.install import IDLE_S
    from pmem.live import ask_at

    settings = settings_of(options)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    project = os.fsencode(options.project.absolute()) if options.project else project_folder()
    place = settings.state_dir / socket_name(project)
    if ask_at(place, {"op": "status"}) is not None:
        raise UserError(f"a daemon already serves {os.fsdecode(project)}; stop it first (its process id: `pmem hook doctor`)")
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    listener.bind(str(place))
    os.umask(mask)
    listener.listen(128)
    print(f"serving {os.fsdecode(project)} at {place}; stop with Ctrl-C", file=sys.stderr)
    idle_s = IDLE_S if options.idle_minutes is None else options.idle_minutes * 60
    serve(listener, place, idle_s=idle_s, path=options.settings)
    return 0


def _install(options: argparse.Namespace) -> int:
    from pmem.integrations.hook import install

    settings = settings_of(options)
    dialect = install.dialect_named(options.client)
    if options.project is not None and not options.project.is_dir():
        raise UserError(f"--project {options.project} is not a folder; name the folder of the project")
    place = install.settings_place(dialect, project=options.project)
    if options.uninstall:
        changed, backup = install.edit(place, dialect, None)
    else:
        install.write_client(settings, _config(options))
        changed, backup = install.edit(place, dialect, install.hook_command(settings, dialect))
    found = {
        "client": dialect.name, "settings": str(place), "changed": changed, "backup": str(backup) if backup else None,
        "mode": None if options.uninstall else ("live" if options.live else "shadow"),
    }  # fmt: skip
    if options.json:
        print_json(found)
    else:
        _say_installed(found)
    return 0


def _config(options: argparse.Namespace) -> "HookConfig":
    from pmem.integrations.hook.install import DEADLINE_MS, IDLE_S, HookConfig

    deadline_ms = DEADLINE_MS if options.deadline_ms is None else options.deadline_ms
    if not 10 <= deadline_ms <= 4_000:
        raise UserError(f"--deadline-ms must lie between 10 and 4000 (got {deadline_ms})")
    idle_s = IDLE_S if options.idle_minutes is None else options.idle_minutes * 60
    if not idle_s > 0:
        raise UserError(f"--idle-minutes must be more than 0 (got {options.idle_minutes})")
    return HookConfig(live=options.live, deadline_ms=deadline_ms, idle_s=idle_s, settings_file=options.settings)


def _say_installed(found: dict[str, object]) -> None:
    out = console()
    state = "changed" if found["changed"] else "was already as it should be"
    out.print(f"{found['settings']} {state}", markup=False)
    if found["backup"]:
        out.print(f"before it: {found['backup']}", markup=False)
    if found["mode"] == "shadow":
        out.print("shadow: nothing is said; `pmem hook doctor` shows what would have been, --live lets it speak")
    if found["client"] == "codex" and found["mode"]:
        out.print("Codex runs a new hook only after you have trusted it: open /hooks there once")
