"""Where settings, state and data stand.

pmem paths --json
"""

from typing import Any

from pmem.cli_output import command_parser, console, print_json, settings_of
from pmem.settings import Settings, default_settings_file


def paths(settings: Settings) -> dict[str, str]:
    """Every place pmem may read or write."""
    return {
        "settings": str(default_settings_file()),
        "state": str(settings.state_dir),
        "data": str(settings.data_dir),
        "steps": str(settings.steps_file),
        "usage": str(settings.usage_file),
        "handoffs": str(settings.handoff_dir),
        "socket": str(settings.socket_file),
    }


def run(arguments: list[str]) -> int:
    options = command_parser("paths", __doc__).parse_args(arguments)
    found: dict[str, Any] = paths(settings_of(options))
    if options.settings is not None:
        found["settings"] = str(options.settings)
    if options.json:
        print_json(found)
        return 0
    out = console()
    for name, path in found.items():
        out.print(f"{name:<9} {path}", markup=False)
    return 0
