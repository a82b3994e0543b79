"""The one configuration of a served route; `serve.command` turns it into a command line, `serve.route` runs it."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from pmem.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteConfig:
    """A vLLM server for one merged model, or a base with adapters, behind our capacity limit."""

    model: Path = Path("runs/quickstart/grpo")
    """Model folder, as training wrote it: merged weights, tokenizer, chat template, `policy.json`."""
    name: str | None = None
    """Name the server lists. None: `pmem-<first 8 of the model hash>`, with the folder's name as a second name."""
    adapters: tuple[Path, ...] = ()
    """LoRA adapter folders served beside the model, each under `pmem-<first 8 of its own hash>`."""
    host: str = "127.0.0.1"
    """Address to bind. Anything beyond loopback needs `api_key_file`."""
    port: int = 8077
    """Port to bind; 0 takes a free one."""
    api_key_file: Path | None = None
    """File whose first line is the key. The key itself never stands in a command line or a log."""
    limit: int = 4
    """Memory steps (or single requests) in flight; the rest is answered 429 at once."""
    client_share: float = 0.5
    """Part of the slots that one client may hold while others come."""
    hold_idle_s: float = 0.25
    """How long a step keeps its slot between list and decision; above the clients' round trip."""
    hold_after_decision_s: float = 0.05
    """How long a step keeps its slot after the decision, from which most steps end silent."""
    max_body_bytes: int = 262_144
    """Longest request body."""
    body_timeout_s: float = 5.0
    """Time in which a body must have arrived."""
    max_deadline_ms: int = 120_000
    """Longest time one request may run."""
    max_model_len: int = 2048
    """Context in tokens: prompt and answer of one request."""
    max_num_seqs: int | None = None
    """Sequences the engine runs at once; None: `limit`."""
    max_num_queued_reqs: int | None = None
    """vLLM's own limit beneath ours, running and waiting together; None: twice `limit`."""
    max_num_queued_tokens: int | None = None
    """vLLM's own limit on the tokens waiting for prefill; None: `max_num_queued_reqs * max_model_len`."""
    max_num_batched_tokens: int | None = None
    """Tokens of one engine pass; None: vLLM's default."""
    kv_cache_gib: float = 1.0
    """Memory for keys and values (GPU: of each card; CPU: rounded up to whole GiB)."""
    dtype: str = "bfloat16"
    """Number type of weights and activations."""
    seed: int = 17
    """Seed of the engine."""
    enforce_eager: bool | None = None
    """Run without compiling the model; None: yes on the CPU build, no on a GPU."""
    grammar_backend: str = "xgrammar"
    """What enforces grammars in the server."""
    data_parallel_size: int = 1
    """Engine replicas behind one address; `limit` is for all of them together."""
    priority_scoring: bool = True
    """Let decision reads go before generations in the engine's schedule."""
    cpu_threads: str = "auto"
    """Cores of the CPU build, as in VLLM_CPU_OMP_THREADS_BIND: `auto`, `0-7`, `nobind`."""
    any_version: bool = False
    """Also start versions of vLLM outside the tested range."""
    extra_args: tuple[str, ...] = ()
    """Further flags for the server as they stand."""
    ready_timeout_s: float = 600.0
    """Time in which the first real decision must have been answered."""
    restart_limit: int = 5
    """Restarts after a crash until the launcher gives up; ten healthy minutes start the count anew."""
    restart_backoff_s: float = 1.0
    """Wait before the first restart; doubles up to 30 s."""
    stop_timeout_s: float = 15.0
    """Time for a clean stop; what is left then is killed."""
    facts_file: Path | None = None
    """Where the JSON line of facts is also written once the route answers; removed when it stops."""
    log_file: Path | None = None
    """Where the server's own output goes; None: standard error."""
    environment: dict[str, str] = field(default_factory=dict)
    """Further environment variables of the server process."""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UserError(f"key 'limit': {self.limit} is no number of slots; set at least 1")
        if not 0 < self.client_share <= 1:
            raise UserError(f"key 'client_share': {self.client_share} is not in (0, 1]")
        if not 0 <= self.port < 65536:
            raise UserError(f"key 'port': {self.port} is no port; set 0 to 65535 (0: any free one)")
        if self.data_parallel_size < 1:
            raise UserError(f"key 'data_parallel_size': {self.data_parallel_size} is no number of replicas; set at least 1")
        if not self.is_loopback and self.api_key_file is None:
            raise UserError(f"host {self.host} is beyond loopback; set api_key_file to a file with a key, or host=127.0.0.1")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the route."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def num_queued_reqs(self) -> int:
        """vLLM's own limit on requests running and waiting."""
        return self.max_num_queued_reqs or 2 * self.limit

    @property
    def num_queued_tokens(self) -> int:
        """vLLM's own limit on waiting prompt tokens."""
        return self.max_num_queued_tokens or self.num_queued_reqs * self.max_model_len
