"""Settings of the runtime: defaults, then one YAML file, then `PMEM_…` from the environment. An unknown key is an error.

settings = load_settings()                     # $PMEM_SETTINGS, else <config folder>/pmem/settings.yaml when it exists
PMEM_ENABLED=false  PMEM_CADENCE_TOOL_CALLS=5  PMEM_ROUTE__URL=http://127.0.0.1:8000/v1   # two underscores reach into a block
"""

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pmem.errors import UserError
from pmem.strict_yaml import load_yaml

PREFIX = "PMEM_"
MAX_CHARS = 1 << 16
"""Longest settings text: real ones are a page, and the YAML reader takes seconds for a mebibyte."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80
"""Shows a value in a few words, also one whose anchors make it endless (`str` would write all of it)."""
SETTINGS_VARIABLE = "PMEM_SETTINGS"
RESERVED_VARIABLES = frozenset({SETTINGS_VARIABLE})

RouteKind = Literal["auto", "vllm", "llama_cpp", "sglang", "lmstudio", "ollama", "gateway", "openai"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RouteSettings(_Strict):
    """One OpenAI-compatible endpoint and the model asked there."""

    url: str
    """Base address, `/v1` included: `http://127.0.0.1:8000/v1`."""
    model: str
    """Name of the model as the server lists it."""
    api_key_file: Path | None = None
    """File whose first line is the key. A key never stands in the settings themselves."""
    kind: RouteKind = "auto"
    """What serves there: decides the dialect of "thinking off" and the capacity assumed. `gateway`: unbounded, no dialect."""
    max_concurrent_requests: int | None = Field(default=None, ge=1)
    """Requests the endpoint takes at once; None: probed (docs/design/runtime.md section 8)."""
    always_thinking: bool = False
    """The model reasons whatever it is told: its output budget grows to max(2x, 4,000) within its cap."""
    model_max_output_tokens: int | None = Field(default=None, ge=1)
    """The model's own cap on output tokens, when it has one."""
    model_hash: str | None = None
    """Hash the threshold is bound to, for servers that cannot state one; rows then say `unverified`."""
    decision_prefix: str | None = None
    """Text shared by both answers before they differ, from `policy.json` (None: asked of the server or its tokenizer)."""
    decision_token_ids: dict[str, list[int]] | None = None
    """Token ids that begin either answer, from `policy.json`: `{speak: […], silent: […]}`."""
    trajectory_steps: int | None = Field(default=None, ge=1, le=64)
    """Steps the model was trained to see, from `policy.json`: the window then holds as many. None: not trained on one length."""
    plan_notes: bool = False
    """End lists with the plan note (pmem/plan_notes.py), from `policy.json`: the model was trained so. Scored steps only."""
    mode: Literal["scored", "completion"] = "scored"
    """`scored` reads the probability of speaking at the decision token; `completion` takes the answer as one text."""
    grammar: bool = False
    """Send the envelope as a grammar (servers with constrained decoding only)."""


class Settings(_Strict):
    """Everything the runtime can be told. With `route` unset the session runs the rules tier only: no model is ever asked."""

    enabled: bool = True
    """The kill switch: false stops observation, writes, model resolution, reminders, handoff and seeding."""
    cadence_tool_calls: int = Field(default=10, ge=1)
    """Completed tools since the last prompted step before an interval step is due. 1 is for research and replay."""
    trajectory_steps: int = Field(default=8, ge=1, le=64)
    """Completed steps in the window that the policy sees and in which a failure counts as repeated.

    Left out, it is what the model of `route` was trained to see, when that is stated; anything else than that is refused.
    """
    reminder_max_chars: int = Field(default=500, ge=40)
    """A longer reminder is dropped whole, never cut."""
    max_output_tokens: int = Field(default=2000, ge=16)
    """Output budget of one completion; four characters a token of it also bound the restore after a compaction."""
    timeout_ms: int = Field(default=60_000, ge=1)
    """Deadline of one prompted step, its one fallback included."""
    bank_budget_tokens: int = Field(default=400, ge=16)
    """Budget of the bank in the request, counted as ceil(chars / 4)."""
    max_knowledge: int = Field(default=20, ge=1)
    """Knowledge entries kept."""
    max_procedural: int = Field(default=30, ge=1)
    """Procedural entries kept."""
    route: RouteSettings | None = None
    """The dedicated memory route; None: rules only."""
    chat: RouteSettings | None = None
    """The active chat route, used when the dedicated one is known unavailable or answers with a client error."""
    threshold: Path | None = None
    """`threshold.json` from `python -m eval.sweep`; None: uncalibrated, the model's own choice counts."""
    lessons: bool = False
    """Propose what model reminders cited as lessons, and tell approved ones at a session's start (docs/lessons.md)."""
    telemetry: bool = True
    """Write content-free rows to `<state_dir>/memory/steps.jsonl`."""
    otel: bool = False
    """Also give OpenTelemetry spans and token metrics (extra `otel`)."""
    prometheus: bool = False
    """Also count in the Prometheus client's registry (extra `prometheus`)."""
    state_dir: Path = Field(default_factory=lambda: platformdirs.user_state_path("pmem"))
    """Telemetry, usage, probed capacities."""
    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("pmem"))
    """What outlives a session because a person asked for it: handoffs, lessons."""

    @model_validator(mode="before")
    @classmethod
    def _window_of_the_model(cls, values: Any) -> Any:
        """The training window travels with the model."""
        route = values.get("route") if isinstance(values, dict) else None
        trained = route.get("trajectory_steps") if isinstance(route, dict) else getattr(route, "trajectory_steps", None)
        return values if trained is None or "trajectory_steps" in values else {**values, "trajectory_steps": trained}

    @model_validator(mode="after")
    def _notes_are_scored(self) -> "Settings":
        if self.route and self.route.plan_notes and self.route.mode != "scored":
            raise ValueError(
                "route.plan_notes ends the list before the decision is read; set route.mode: scored, or leave plan_notes out"
            )
        return self

    @model_validator(mode="after")
    def _window_fits_the_model(self) -> "Settings":
        trained = self.route.trajectory_steps if self.route else None
        if trained is not None and trained != self.trajectory_steps:
            raise ValueError(
                f"trajectory_steps is {self.trajectory_steps}, but the model of the route was trained to see {trained}; leave it out"
            )
        return self

    @property
    def steps_file(self) -> Path:
        return self.state_dir / "memory" / "steps.jsonl"

    @property
    def usage_file(self) -> Path:
        return self.state_dir / "usage" / "out-of-turn.jsonl"

    @property
    def socket_file(self) -> Path:
        """Where the process that holds live sessions (the hook daemon) answers `pmem memory` and `pmem handoff`."""
        return self.state_dir / "live.sock"

    @property
    def handoff_dir(self) -> Path:
        return self.data_dir / "handoffs"


def default_settings_file() -> Path:
    """Where `load_settings` looks when neither an argument nor `PMEM_SETTINGS` names a file."""
    return platformdirs.user_config_path("pmem") / "settings.yaml"


def load_settings(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Defaults, then the YAML file, then the environment. Raises UserError naming file or variable, and the key.

    A file that is named (argument or `PMEM_SETTINGS`) must exist; the default one may be missing.
    """
    environ = os.environ if environ is None else environ
    named = path or (Path(environ[SETTINGS_VARIABLE]) if environ.get(SETTINGS_VARIABLE) else None)
    values = _read_file(named or default_settings_file(), must_exist=named is not None)
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in RESERVED_VARIABLES:
            _lay(values, name, environ[name])
    return _validate(values, str(named or default_settings_file()), environ)


def parse_settings(text: str, *, where: str = "settings") -> Settings:
    """Settings from YAML text alone. Total: any string gives settings or UserError."""
    return _validate(_mapping(text, where), where, {})


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARS + 1)
    except FileNotFoundError:
        if must_exist:
            raise UserError(f"settings file {path} does not exist; write it, or unset {SETTINGS_VARIABLE}") from None
        return {}
    except UnicodeDecodeError:
        raise UserError(f"settings file {path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"settings file {path} cannot be read: {error.strerror}; mend it or name another") from None
    return _mapping(text, str(path))


def _mapping(text: str, where: str) -> dict[str, Any]:
    if len(text) > MAX_CHARS:
        raise UserError(f"{where}: more than {MAX_CHARS:,} characters; settings are a page, name the right file")
    try:
        values = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid YAML: {' '.join(str(error).split())[:200]}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{where}: must hold a mapping of keys, not {type(values).__name__}")
    return values


def _lay(values: dict[str, Any], name: str, text: str) -> None:
    """Lay one `PMEM_A__B=text` over `values`; the text is read as YAML, so `false`, `5` and `null` mean what they say."""
    keys = name.removeprefix(PREFIX).lower().split("__")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = text
    for key in keys[:-1]:
        if not isinstance(values.get(key), dict):
            values[key] = {}
        values = values[key]
    values[keys[-1]] = value


def _validate(values: dict[str, Any], where: str, environ: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
    keys = [str(part) for part in first["loc"]]
    if not keys:
        raise UserError(f"{where}: {first['msg'].removeprefix('Value error, ')}")
    variable = PREFIX + "__".join(keys).upper()
    place = f"environment variable {variable}" if variable in environ else f"{where}: key {'.'.join(keys)!r}"
    if first["type"] == "extra_forbidden":
        known = RouteSettings.model_fields if len(keys) > 1 else Settings.model_fields
        raise UserError(f"{place} is unknown; known keys are {', '.join(sorted(known))}")
    raise UserError(f"{place}: {first['msg'].lower()} (got {_SHORT.repr(first.get('input'))})")
