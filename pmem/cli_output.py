"""What the commands share: the `--settings` and `--json` options, JSON on standard output, a console for people."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pmem.errors import UserError
from pmem.settings import Settings, load_settings

if TYPE_CHECKING:
    from rich.console import Console


class OneSentence(argparse.ArgumentParser):
    """A parser whose complaint is one sentence, like that of every other mistake."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}; `{self.prog} --help` says more")


def command_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser for `pmem NAME` with the options every command has."""
    first, _, rest = (doc or "").strip().partition("\n")
    parser = OneSentence(
        prog=f"pmem {name}", description=first, epilog=rest.strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("--settings", type=Path, default=None, metavar="FILE", help="settings file (default: see `pmem paths`)")
    return parser


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings a command runs with."""
    return load_settings(arguments.settings)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_json_line(value: Any) -> None:
    """One JSON line on standard output."""
    print(json.dumps(value, ensure_ascii=False, default=str))


def console() -> "Console":
    """Standard output for people; colours only on a terminal. Nothing printed through it is read as markup unless asked."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(highlight=False, soft_wrap=True)


def shown(value: float | int | None, unit: str = "", digits: int = 0) -> str:
    """A figure for people: `–` where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}{unit}"
