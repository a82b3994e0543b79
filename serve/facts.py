"""What a route is, as one JSON line for programs and as settings for the runtime."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from pmem.canonical import canonical_json
from pmem.policy_file import read_policy
from serve.model_folder import loading
from serve.route_config import RouteConfig
from serve.vllm_build import Build

FORMAT = "pmem.route/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One answering route. `decision`: prefix and token ids of the decision, as in `policy.json`."""

    url: str
    model: str
    names: tuple[str, ...]
    adapters: tuple[str, ...]
    model_hash: str
    prompt_version: str
    limit: int
    max_model_len: int
    engine: str
    decision: dict[str, Any]
    prob_speak_probe: float
    ready_s: float
    pid: int
    api_key_file: str | None = None
    trajectory_steps: int | None = None
    """Window the model was trained on, when `policy.json` says so."""
    plan_notes: bool = False
    """Whether it was trained with plan notes."""

    def line(self) -> str:
        """The facts as one canonical JSON line."""
        return canonical_json({"format": FORMAT, **asdict(self)})

    def settings_yaml(self) -> str:
        """The block that goes into the runtime's settings file."""
        route: dict[str, Any] = {"url": self.url, "model": self.model, "kind": "vllm", "max_concurrent_requests": self.limit}
        if self.api_key_file:
            route["api_key_file"] = self.api_key_file
        route |= {"model_hash": self.model_hash, **self.decision, "grammar": True}
        if self.trajectory_steps:
            route["trajectory_steps"] = self.trajectory_steps
        if self.plan_notes:
            route["plan_notes"] = True
        return yaml.safe_dump({"route": route}, sort_keys=False, default_flow_style=None, width=120)


def decision_config(folder: Path) -> dict[str, Any]:
    """Decision prefix and token ids: from `policy.json` when training wrote one, else from the folder's tokenizer."""
    if (folder / "policy.json").exists():
        config = read_policy(folder).config
        if "decision_token_ids" in config and "decision_prefix" in config:
            return {key: config[key] for key in ("decision_prefix", "decision_token_ids")}
    from transformers import AutoTokenizer

    from serve.decision_tokens import decision_tokens

    with loading(folder):
        return decision_tokens(AutoTokenizer.from_pretrained(folder)).as_config()


def trained_window(folder: Path) -> int | None:
    """`trajectory_steps` of the data the model was trained on, from `policy.json`; None when it says nothing."""
    return read_policy(folder).trajectory_steps if (folder / "policy.json").exists() else None


def engine_name(build: Build) -> str:
    """Distribution and version, as they stand in reports."""
    return f"{build.distribution} {build.version}"


def base_url(config: RouteConfig) -> str:
    """Where clients of this machine find the route."""
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::", "localhost") else config.host
    return f"http://[{host}]:{config.port}/v1" if ":" in host else f"http://{host}:{config.port}/v1"
