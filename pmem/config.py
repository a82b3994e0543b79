"""One YAML file and `key=value` overrides -> one dataclass a stage. Unknown keys and wrong types are errors that name the key.

config = load_config(SimulateConfig, Path("configs/simulate.yaml"), ["seed=3", "families=[git,sql]"])
"""

import argparse
import dataclasses
import math
import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from pmem.errors import UserError
from pmem.strict_yaml import load_yaml

Config = TypeVar("Config")
FILES = (".parquet", ".jsonl", ".json", ".html", ".md")
"""Suffixes of what stages write as single files."""


def load_config(kind: type[Config], path: Path | None, overrides: list[str]) -> Config:
    """Read `path` (may be None), lay `key=value` overrides (dotted keys reach into mappings) over it, validate into `kind`.

    Raises UserError naming the file and the key.
    """
    values = _read_yaml(path) if path else {}
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise UserError(f"override {override!r} is not of the form key=value")
        _set(values, key.split("."), read_value(override, text))
    return validate(kind, values, where=str(path or "command line"))


def validate(kind: type[Config], values: dict[str, Any], *, where: str) -> Config:
    """Validate a mapping into the dataclass `kind`; unknown keys are errors."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise UserError(f"{where}: unknown key {key!r}; known keys are {', '.join(sorted(known))}")
    try:
        config = TypeAdapter(kind, config=None).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, UserError):
            raise cause from None
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise UserError(f"{where}: {key} is not given; add {key}=…") from None
        wrong = f"write a list, such as {key}=[a,b]" if first["type"] == "tuple_type" else first["msg"]
        raise UserError(f"{where}: key {key!r}: {wrong} (got {first.get('input')!r})") from None
    for key in known:
        if not all(math.isfinite(number) for number in _numbers(getattr(config, key))):
            raise UserError(f"{where}: key {key!r}: {getattr(config, key)!r} is not finite; write a number")
    return config


def bounded(config: object, low: float, high: float, *names: str) -> None:
    """Raise UserError when a number of these fields, or of their mappings, lies outside `low` to `high`; None is left alone."""
    for name in names:
        for number in _numbers(getattr(config, name)):
            if not low <= number <= high:
                allowed = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
                raise UserError(f"{name} is {getattr(config, name)}; it must be {allowed}")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict | tuple):
        return [number for item in (value.values() if isinstance(value, dict) else value) for number in _numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def stage_parser(doc: str | None, default: Path) -> argparse.ArgumentParser:
    """The command line every stage has: a YAML file and overrides."""
    lines = (doc or "").strip().splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0] if lines else "", epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, nargs="?", default=default, help=f"YAML file of this stage (default {default})")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of single keys")
    return parser


def parse_stage(kind: type[Config], doc: str | None, default: Path, argv: list[str] | None = None) -> Config:
    """Parse the command line of a stage into its config. The YAML may be left out: `python -m data.label seed=3` works."""
    path, overrides = stage_arguments(doc, default, argv)
    config = load_config(kind, path, overrides)
    check_out(config, path)
    return config


def check_out(config: object, file: Path | None = None) -> None:
    """Raise UserError when what a stage writes, its `out`, is a file that it reads or cannot be written at all."""
    out = getattr(config, "out", None)
    if not isinstance(out, Path):
        return
    check_writable(out)
    for name, inputs in (("config", file), *((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))):  # type: ignore[arg-type]
        for given in inputs if isinstance(inputs, tuple) else (inputs,):
            read = Path(given) if name == "base" and given else given  # a hub id or a folder, so text
            if name != "out" and isinstance(read, Path) and read.exists() and out.exists() and read.samefile(out):
                raise UserError(f"out is {out}, which this command reads as {name}; name another one to write")


def check_writable(out: Path) -> None:
    """Raise UserError, before any work, when nothing can be written at `out`: a folder where a file goes, or no place for it."""
    if out.suffix in FILES and out.is_dir():
        raise UserError(f"out is {out}, which is a folder; name a file to write")
    place = next(parent for parent in out.absolute().parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"out is {out}, but {place} is no folder to write into; name another place")


def stage_arguments(doc: str | None, default: Path, argv: list[str] | None = None) -> tuple[Path, list[str]]:
    """The YAML file and the overrides of a command line. Raises UserError when the file does not exist."""
    arguments = stage_parser(doc, default).parse_args(argv)
    path, overrides = arguments.config, list(arguments.overrides)
    if "=" in str(path) and not path.exists():
        path, overrides = default, [str(path), *overrides]
    if not path.exists():
        raise UserError(f"config file {path} does not exist")
    return path, overrides


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = load_yaml(Path(path).read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        raise UserError(f"config file {path} does not exist") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: must hold a mapping of keys, not {type(values).__name__}")
    return values


def read_value(override: str, text: str) -> Any:
    """The value of an override. Raises UserError naming the override."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(
            f"override {override!r}: what stands behind = is not a YAML value; close its brackets and quotes"
        ) from None


def _set(values: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise UserError(f"override reaches into {key!r}, which is not a mapping")
    values[keys[-1]] = value


STRICT = ConfigDict(extra="forbid")
