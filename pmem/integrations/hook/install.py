"""Put the hook into a client's settings: a backup first, nothing twice, everything else as it stood.

Writes two files into `<data>/hook/` (the client and a script with its configuration) and one entry an event into the settings.
The command never changes with the configuration: Codex asks a person to trust a hook again whenever its text changes.
"""

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pmem
from pmem.atomic import write_text
from pmem.errors import UserError
from pmem.integrations.hook.dialects import CODEX, DIALECTS, Dialect
from pmem.settings import Settings, default_settings_file

SCRIPT = "pmem_hook.py"
CLIENT = "pmem_hook_client.py"
DEADLINE_MS = 500
IDLE_S = 4 * 3600.0
HOST_TIMEOUT_S = 5
"""The client's own limit, far above the deadline, for the day that the deadline fails."""


@dataclass(frozen=True, slots=True)
class HookConfig:
    """What the installed script is told."""

    live: bool = False
    """False: shadow, nothing is said."""
    deadline_ms: int = DEADLINE_MS
    """The agent never waits longer than this for one event."""
    idle_s: float = IDLE_S
    """The daemon leaves after so long without an event; banks of its sessions leave with it."""
    settings_file: Path | None = None
    """None: where `pmem paths` says."""


def hook_folder(settings: Settings) -> Path:
    return settings.data_dir / "hook"


def client_config(settings: Settings, config: HookConfig) -> dict[str, Any]:
    """The configuration as client.py reads it: plain values only."""
    return {
        "state": str(settings.state_dir.absolute()),
        "settings": str((config.settings_file or default_settings_file()).absolute()),
        "python": sys.executable,
        "root": str(Path(pmem.__file__).parent.parent),
        "deadline_ms": config.deadline_ms,
        "idle_s": config.idle_s,
        "live": config.live,
    }


def script_text(settings: Settings, config: HookConfig) -> str:
    """The script an agent runs. Bad luck of any kind is silence."""
    return (
        '"""Run by an agent for each hook event; written by `pmem hook install`."""\n'
        "import sys\n"
        f"sys.path.insert(0, {str(hook_folder(settings))!r})\n"
        "try:\n"
        "    from pmem_hook_client import main\n"
        f"    main(sys.argv[1], {client_config(settings, config)!r})\n"
        "except BaseException:\n"
        "    pass\n"
    )


def client_text() -> str:
    return (Path(__file__).parent / "client.py").read_text(encoding="utf-8")


def write_client(settings: Settings, config: HookConfig) -> Path:
    """Write the script and the client beside it; the script's path. The state folder must exist for the client."""
    folder = hook_folder(settings)
    write_text(folder / CLIENT, client_text())
    write_text(folder / SCRIPT, script_text(settings, config))
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    return folder / SCRIPT


def hook_command(settings: Settings, dialect: Dialect) -> str:
    """The shell command of the entries. Its exit code is 0 even when the script or the interpreter is gone."""
    python = os.path.realpath(sys.executable)
    words = [python, "-I", "-S", str(hook_folder(settings) / SCRIPT), dialect.name]
    return f"{shlex.join(words)} 2>/dev/null || true"


def settings_place(dialect: Dialect, *, project: Path | None) -> Path:
    """The client's settings file: of the user, or of a project."""
    if dialect is CODEX:
        base = project / ".codex" if project else Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
        return base / "hooks.json"
    base = project / ".claude" if project else Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    return base / "settings.json"


def edit(path: Path, dialect: Dialect, command: str | None) -> tuple[bool, Path | None]:
    """Set our entries in `path` (`command` None: take them out). Returns whether something changed, and the backup.

    Raises UserError for a file that is not a JSON object: it is left as it stands.
    """
    path = Path(os.path.realpath(path))  # a link to somebody's dotfiles stays a link
    before = read_settings(path)
    after = with_hooks(before, dialect, command)
    if after == before:
        return False, None
    backup = back_up(path) if path.exists() else None
    mode = path.stat().st_mode if path.exists() else None
    write_text(path, json.dumps(after, ensure_ascii=False, indent=2) + "\n")
    if mode is not None:
        path.chmod(mode)
    return True, backup


def read_settings(path: Path) -> dict[str, Any]:
    """The JSON object of a settings file; empty when there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); mend it, or add the hook by hand") from None
    if not isinstance(value, dict) or not isinstance(value.get("hooks", {}), dict):
        raise UserError(f"{path} does not hold a JSON object with an object under 'hooks'; mend it, or add the hook by hand")
    return value


def with_hooks(settings: dict[str, Any], dialect: Dialect, command: str | None) -> dict[str, Any]:
    """`settings` with our entries and nobody else's touched; the same object when they stand there already."""
    entry = {"type": "command", "command": command, "timeout": HOST_TIMEOUT_S}
    wanted = dialect.registered if command else ()
    if registered(settings) == {event: [entry] for event in wanted}:
        return settings
    hooks = {event: _without_ours(groups) for event, groups in settings.get("hooks", {}).items()}
    for event in wanted:
        hooks[event] = [*hooks.get(event, []), {"hooks": [entry]}]
    hooks = {event: groups for event, groups in hooks.items() if groups or groups == settings["hooks"].get(event)}
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    return {**settings, "hooks": hooks} if hooks else rest


def registered(settings: dict[str, Any]) -> dict[str, list[Any]]:
    """Entries of ours by event."""
    found: dict[str, list[Any]] = {}
    for event, groups in settings.get("hooks", {}).items():
        for group in groups if isinstance(groups, list) else []:
            found.setdefault(event, []).extend(filter(is_ours, _hooks(group)))
    return {event: entries for event, entries in found.items() if entries}


def is_ours(hook: Any) -> bool:
    return isinstance(hook, dict) and (SCRIPT in str(hook.get("command", "")) or "pmem hook" in str(hook.get("command", "")))


def back_up(path: Path) -> Path:
    """Copy beside the file, never over an earlier copy."""
    number = 1
    while (copy := path.with_name(f"{path.name}.before-pmem-{number}")).exists():
        number += 1
    shutil.copy2(path, copy)
    return copy


def dialect_named(name: str) -> Dialect:
    if name not in DIALECTS:
        raise UserError(f"unknown client {name!r}; known are {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _hooks(group: Any) -> list[Any]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _without_ours(groups: Any) -> Any:
    """The groups of one event without hooks of ours; a group that held nothing else goes."""
    if not isinstance(groups, list):
        return groups
    kept = []
    for group in groups:
        if not any(map(is_ours, _hooks(group))):
            kept.append(group)
        elif others := [hook for hook in _hooks(group) if not is_ours(hook)]:
            kept.append({**group, "hooks": others})
    return kept
