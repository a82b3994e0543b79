"""One YAML, one function, one command line: the server as it will be started (kept by a golden file in the tests)."""

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pmem.errors import UserError
from pmem.policy_file import model_hash
from pmem.prompt import PROMPT_VERSION
from serve.capacity_settings import BodyLimits, CapacitySettings
from serve.route_config import RouteConfig
from serve.slots import SlotLimits
from serve.vllm_build import MODULE, RANGE, Build

MIDDLEWARE = "serve.capacity.CapacityLimit"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM takes as its upper limit."""
CPU_BLOCK_TOKENS = "32"
"""Tokens of a block of the prefix cache. The CPU build's own 128 would have decision and reminder compute up to 127 tokens again."""
REQUIRED = frozenset({"--model", "--host", "--port", "--served-model-name", "--middleware"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`arguments` of the process, the `environment` added to it, and what was left out, in sentences."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the server calls its model (first name first) and adapters, and the hash that thresholds are bound to."""

    model_hash: str
    model: tuple[str, ...]
    adapters: tuple[tuple[str, Path], ...] = ()
    max_rank: int = LORA_RANKS[0]


def names_of(config: RouteConfig) -> Names:
    """Names made of content hashes: a changed model can never answer under an old name."""
    rank = max([adapter_rank(folder) for folder in config.adapters], default=LORA_RANKS[0])
    full = model_hash(config.model)
    return Names(
        model_hash=full,
        model=(config.name,) if config.name else (f"pmem-{full[:8]}", config.model.resolve().name),
        adapters=tuple((f"pmem-{model_hash(folder)[:8]}", folder) for folder in config.adapters),
        max_rank=next((allowed for allowed in LORA_RANKS if allowed >= rank), rank),
    )


def adapter_rank(folder: Path) -> int:
    """Rank of a LoRA adapter folder. Raises UserError when it is none."""
    path = folder / "adapter_config.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["r"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} does not state the rank of an adapter; name the adapter folder that training wrote") from None


def server_command(config: RouteConfig, build: Build, names: Names, known: frozenset[str] | None) -> Command:
    """The command of a configuration. Flags that the installed version lacks (`known`; None: unknown) are left out and said."""
    flags = _flags(config, build, names)
    notices = [] if build.is_supported else [f"vLLM {build.version} is outside the tested range {RANGE}"]
    if build.cpu:
        notices.append("seeds of requests are dropped: the engine of the CPU build ends on a seeded sample")
    arguments = [sys.executable, "-m", MODULE]
    for flag, values in flags:
        if known is None or flag.split(".")[0] in known or flag in REQUIRED:
            arguments += [flag, *values]
        else:
            notices.append(f"vLLM {build.version} has no {flag}; left out")
    return Command(
        arguments=(*arguments, *config.extra_args), environment=_environment(config, build, names), notices=tuple(notices)
    )


def _flags(config: RouteConfig, build: Build, names: Names) -> list[tuple[str, tuple[str, ...]]]:
    flags: list[tuple[str, tuple[str, ...]]] = [
        ("--model", (str(config.model),)),
        ("--served-model-name", names.model),
        ("--host", (config.host,)),
        ("--port", (str(config.port),)),
        ("--dtype", (config.dtype,)),
        ("--seed", (str(config.seed),)),
        ("--max-model-len", (str(config.max_model_len),)),
        ("--max-num-seqs", (str(config.max_num_seqs or config.limit),)),
        ("--max-num-queued-reqs", (str(config.num_queued_reqs),)),
        ("--max-num-queued-tokens", (str(config.num_queued_tokens),)),
        ("--enable-prefix-caching", ()),
        ("--generation-config", ("vllm",)),
        ("--logprobs-mode", ("raw_logprobs",)),
        ("--max-logprobs", ("128",)),
        ("--default-chat-template-kwargs", ('{"enable_thinking": false}',)),
        ("--structured-outputs-config.backend", (config.grammar_backend,)),
        ("--enable-request-id-headers", ()),
        ("--enable-server-load-tracking", ()),
        ("--disable-uvicorn-access-log", ()),
        ("--no-enable-log-requests", ()),
        ("--allowed-origins", ("[]",)),
        ("--middleware", (MIDDLEWARE,)),
    ]
    flags += _optional(config, build, names)
    return flags


def _optional(config: RouteConfig, build: Build, names: Names) -> list[tuple[str, tuple[str, ...]]]:
    flags: list[tuple[str, tuple[str, ...]]] = []
    if config.max_num_batched_tokens:
        flags.append(("--max-num-batched-tokens", (str(config.max_num_batched_tokens),)))
    if build.cpu:
        flags.append(("--block-size", (CPU_BLOCK_TOKENS,)))
    else:
        flags.append(("--kv-cache-memory-bytes", (str(int(config.kv_cache_gib * 2**30)),)))
    if build.cpu if config.enforce_eager is None else config.enforce_eager:
        flags.append(("--enforce-eager", ()))
    if config.priority_scoring:
        flags.append(("--scheduling-policy", ("priority",)))
    if config.data_parallel_size > 1:
        flags += [("--data-parallel-size", (str(config.data_parallel_size),)), ("--api-server-count", ("1",))]
    if names.adapters:
        modules = tuple(json.dumps({"name": name, "path": str(path)}) for name, path in names.adapters)
        flags += [
            ("--enable-lora", ()),
            ("--max-loras", (str(len(modules)),)),
            ("--max-lora-rank", (str(names.max_rank),)),
            ("--lora-modules", modules),
        ]
    return flags


def _environment(config: RouteConfig, build: Build, names: Names) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if build.cpu:
        variables |= {
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, math.ceil(config.kv_cache_gib))),
            "VLLM_CPU_OMP_THREADS_BIND": config.cpu_threads,
        }
    return variables | capacity_settings(config, build, names).environment() | config.environment


def capacity_settings(config: RouteConfig, build: Build, names: Names) -> CapacitySettings:
    """What the middleware inside the server is told."""
    return CapacitySettings(
        slots=SlotLimits(
            limit=config.limit,
            client_share=config.client_share,
            hold_idle_s=config.hold_idle_s,
            hold_after_decision_s=config.hold_after_decision_s,
        ),
        body=BodyLimits(max_bytes=config.max_body_bytes, timeout_s=config.body_timeout_s),
        api_key_file=config.api_key_file.resolve() if config.api_key_file else None,
        model_hash=names.model_hash,
        prompt_version=PROMPT_VERSION,
        max_deadline_ms=config.max_deadline_ms,
        priority_scoring=config.priority_scoring,
        drop_seed=build.cpu,
    )
