"""What the launcher tells the middleware inside the server: one JSON value in the environment, since vLLM passes no arguments."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pmem.errors import UserError
from serve.slots import SlotLimits

VARIABLE = "SERVE_CAPACITY"


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyLimits:
    """What a request body may be before anything of it is looked at by the server behind."""

    max_bytes: int = 262_144
    """Longest body; longer ones get 413."""
    max_depth: int = 32
    """Deepest nesting of arrays and objects; deeper ones get 400."""
    timeout_s: float = 5.0
    """Time in which a body must have arrived; slower ones get 408."""
    max_reading: int = 64
    """Bodies being read at once, so that slow clients cannot pile up; further ones get 429."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacitySettings:
    """`api_key_file`: first line is the key that every path but the health checks asks for; None: loopback, no key."""

    slots: SlotLimits = field(default_factory=SlotLimits)
    body: BodyLimits = field(default_factory=BodyLimits)
    api_key_file: Path | None = None
    model_hash: str | None = None
    prompt_version: str | None = None
    max_deadline_ms: int = 120_000
    """Longest time a request may run, whatever deadline it states."""
    priority_scoring: bool = False
    """Give decision reads the server's `priority` before generations (needs `--scheduling-policy priority`)."""
    drop_seed: bool = False
    """Take seeds out of requests: vLLM's CPU build ends its engine on a seeded sample ("CPU Generator does not use offset")."""
    log_requests: bool = True
    """One line a request on the logger `pmem.serve`: ids, sizes, times and outcome, never content."""

    def environment(self) -> dict[str, str]:
        """The variable that carries these settings to the server process."""
        return {VARIABLE: TypeAdapter(CapacitySettings).dump_json(self).decode()}

    def read_key(self) -> str | None:
        """The key, or None without a file. Raises UserError when the file is missing or empty."""
        return None if self.api_key_file is None else read_key(self.api_key_file)


def from_environment(environ: Mapping[str, str] = os.environ) -> CapacitySettings:
    """The settings of this process; defaults when the variable is not set. Raises UserError when it cannot be read."""
    text = environ.get(VARIABLE)
    if not text:
        return CapacitySettings()
    try:
        return TypeAdapter(CapacitySettings).validate_json(text)
    except ValidationError as error:
        raise UserError(f"{VARIABLE}: {error.errors()[0]['msg']}; let `python -m serve.route` set it") from None


def read_key(path: Path) -> str:
    """The first line of a key file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise UserError(f"key file {path} cannot be read ({type(error).__name__}); write the key on its first line") from None
    if not lines or not lines[0].strip():
        raise UserError(f"key file {path} is empty; write the key on its first line")
    return lines[0].strip()
