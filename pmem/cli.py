"""`pmem COMMAND …`: the commands, one table. A command's module is imported when it is called: `pmem --help` costs nothing.

    pmem replay rollouts.jsonl        what memory would have said, step by step, and why it was silent otherwise
    pmem memory                       tier, last decision, last twenty steps, spend, live banks
    pmem usage report --json          every command prints JSON for machines with --json

Exit code 2 with one sentence for a user's mistake, 0 otherwise; `pmem doctor` answers 1 when a check fails.
"""

import importlib
import os
import sys
from collections.abc import Callable

from pmem import __version__
from pmem.errors import UserError, exit_code

COMMANDS: dict[str, tuple[str, str]] = {
    "parse": ("pmem.parse_command:run", "read model answers as the runtime would (JSON lines on standard input)"),
    "replay": ("pmem.cli_replay:run", "run a session over recorded rollouts: what it would have said, where and why"),
    "memory": ("pmem.cli_memory:run", "tier, last decision, last twenty steps, spend, live banks"),
    "handoff": ("pmem.cli_handoff:run", "export a redacted snapshot of the live bank, or seed one"),
    "lessons": ("pmem.lessons.command:run", "lessons that outlive a session: review, edit, link, merge, undo, serve"),
    "hook": ("pmem.integrations.hook.command:run", "memory for Claude Code and Codex: install, doctor, run, daemon"),
    "paths": ("pmem.cli_paths:run", "where settings, state and data stand"),
    "usage": ("pmem.cli_usage:run", "report of steps, tokens, model time, hit rate and cost per injection"),
    "targets": ("pmem.cli_targets:run", "the configured routes; --probe asks them"),
    "doctor": ("pmem.cli_doctor:run", "check settings, folders, telemetry, threshold and routes"),
}
"""Name -> where its `run(arguments) -> exit code` stands, and what it does."""


def main(argv: list[str] | None = None) -> int:
    """Run one command. The console script of the package."""
    arguments = sys.argv[1:] if argv is None else argv
    return exit_code(lambda: _until_the_pipe_closes(arguments))


def _until_the_pipe_closes(arguments: list[str]) -> int:
    """Whoever reads our output may have enough of it (`| head`): that is no error."""
    try:
        try:
            return _dispatch(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at the end of the process is quiet
        return 0


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"pmem {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}; commands are {', '.join(COMMANDS)}")
    return _command(COMMANDS[name][0])(arguments[1:]) or 0


def _command(place: str) -> Callable[[list[str]], int | None]:
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)


def _usage() -> str:
    lines = ["usage: pmem COMMAND [options]        (pmem COMMAND --help says more)", ""]
    lines += [f"  {name:<8}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
