"""Which route serves a step: the dedicated one, or once the chat route; a place taken for the step; each attempt its own result.

    policy = build_policy(settings, notice=print)      # None: no route set, rules only
    result = policy.step(snapshot)                     # result.earlier: the attempt that failed before it, if any

Known unavailable (missing, down, model absent, loading): chat serves that step, said once. A client error of the dedicated route
permits one attempt on chat in the time that is left. Never after a timeout, a malformed answer, silence or a full endpoint; a
fallback never falls back (docs/design/runtime.md section 8). The object is a session's own routing snapshot: later settings do not
reach it.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pmem.abort import Abort
from pmem.capacity import Endpoint, ProbeStore, endpoint_at
from pmem.errors import UserError
from pmem.gates import RUNTIME, GateProfile
from pmem.outcomes import DECISION_OF, Reason
from pmem.policy import ModelPolicy
from pmem.prompt import PROMPT_VERSION, PromptLimits
from pmem.route import HttpBackend, ServerFacts
from pmem.settings import RouteSettings, Settings
from pmem.snapshot import Snapshot
from pmem.step import StepResult
from pmem.threshold import Threshold, read_threshold

FACTS_GOOD_FOR_S = 30.0
FACTS_BAD_FOR_S = 5.0
REMINDER_MAX_TOKENS = 512
"""Room for `reminder_max_chars` in any script; the closing tag ends it sooner."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What every route of a session shares: how a step is asked for and judged."""

    profile: GateProfile = RUNTIME
    limits: PromptLimits = field(default_factory=PromptLimits)
    max_output_tokens: int = 2000


class Route:
    """One endpoint with a model: what a probe found (kept 30 s, 5 s when bad), and the policy that speaks its dialect."""

    def __init__(
        self, settings: RouteSettings, *, endpoint: Endpoint, options: StepOptions, threshold: Threshold | None = None,
        client: str = "pmem",
    ) -> None:  # fmt: skip
        self.settings = settings
        self.endpoint = endpoint
        self.threshold = threshold
        self.backend = make_backend(settings, client=client)
        self._options = options
        self._facts: ServerFacts | None = None
        self._facts_until = 0.0
        self._policy: ModelPolicy | None = None
        self._lock = threading.Lock()

    @property
    def target(self) -> tuple[str, str]:
        """Endpoint and model: two routes with the same target are one."""
        return self.endpoint.key, self.settings.model

    @property
    def profile(self) -> GateProfile:
        """The gates of its steps."""
        return self._options.profile

    def problem(self, deadline: float) -> str | None:
        """Why this route cannot serve now, in words; None when nothing is known against it."""
        with self._lock:
            if self._facts is None or time.monotonic() >= self._facts_until:
                self._facts = self.backend.probe(deadline=deadline)
                good = self._facts.problem is None
                self._facts_until = time.monotonic() + (FACTS_GOOD_FOR_S if good else FACTS_BAD_FOR_S)
                self.endpoint.learn(self._facts.limit, self._facts.kind)
            return self._facts.problem or self._unfit(self._facts)

    def step(self, snapshot: Snapshot, *, step_id: str, deadline: float) -> StepResult:
        """One attempt, without any fallback."""
        if self._policy is None:
            self._policy = self._make_policy()
        result = self._policy.step(snapshot, step_id=step_id, deadline=deadline)
        stated = self._facts.model_hash if self._facts else None
        if self.threshold is not None and stated is None:
            result = replace(result, model=f"{result.model} (unverified)")
        return result

    def _unfit(self, facts: ServerFacts) -> str | None:
        """A threshold speaks for one model, one prompt and one way of deciding."""
        threshold = self.threshold
        if threshold is None:
            return None
        if facts.model_hash is None and self.settings.model_hash is None:
            return "it states no model hash to hold the threshold against; set route.model_hash"
        if facts.model_hash is not None and facts.model_hash != threshold.model_hash:
            return f"it serves model {facts.model_hash[:16]}, the threshold was made for {threshold.model_hash[:16]}"
        if facts.prompt_version is not None and facts.prompt_version != PROMPT_VERSION:
            return f"its model was made for prompt version {facts.prompt_version}, this runtime renders {PROMPT_VERSION}"
        if threshold.decision_mode == "scored" and not self.backend.can_score:
            return f"a {facts.kind} server gives no probability for the scored threshold"
        return None

    def _make_policy(self) -> ModelPolicy:
        scored = self.settings.mode == "scored" and self.backend.can_score
        return ModelPolicy(
            self.backend,
            name="llm",
            threshold=self.threshold,
            mode="scored" if scored else "completion",
            profile=self._options.profile,
            grammar=self.settings.grammar and self.backend.dialect.grammar_key is not None,
            limits=self._options.limits,
            plan_notes=self.settings.plan_notes and scored and self.backend.can_score,
            list_max_tokens=self._options.max_output_tokens,
            reminder_max_tokens=REMINDER_MAX_TOKENS,
            max_output_tokens=self._options.max_output_tokens,
        )


class RoutedPolicy:
    """The model tier of a session. `notice` hears why the chat route serves instead, each cause once."""

    name = "llm"
    takes_abort = True

    def __init__(
        self, dedicated: Route, chat: Route | None = None, *, timeout_ms: int = 60_000, notice: Notice | None = None
    ) -> None:
        self.dedicated = dedicated
        self.chat = chat if chat is not None and chat.target != dedicated.target else None
        self.timeout_ms = timeout_ms
        self._notice = notice or (lambda sentence: None)
        self._said: set[str] = set()

    @property
    def profile(self) -> GateProfile:
        """The gates of this session, for what is settled after the step."""
        return self.dedicated.profile

    @property
    def threshold_id(self) -> str | None:
        """Of the threshold that gates the dedicated route; the chat route has none."""
        return self.dedicated.threshold.threshold_id if self.dedicated.threshold else None

    def step(self, snapshot: Snapshot, *, abort: Abort | None = None) -> StepResult:
        """One step within `timeout_ms`, the fallback included. `abort`: set when nobody waits for it any more."""
        abort = abort or Abort()
        started = time.monotonic()
        deadline = started + self.timeout_ms / 1000
        if self.dedicated.endpoint.busy:
            return self._refused(self.dedicated, snapshot, "endpoint_busy")
        problem = self.dedicated.problem(deadline)
        if problem is None:
            return self._with_fallback(snapshot, deadline, abort)
        route = self.chat
        if route is None or route.problem(deadline) is not None:
            self._say(f"memory route {self.dedicated.backend.route}: {problem}; memory stays with its rules meanwhile")
            return self._refused(None, snapshot, "no_client")
        self._say(f"memory route {self.dedicated.backend.route}: {problem}; {route.backend.route} serves memory meanwhile")
        return self._attempt(route, snapshot, deadline, abort)

    def close(self) -> None:
        """Close idle connections."""
        for route in (self.dedicated, self.chat):
            if route is not None:
                route.backend.close()

    def _with_fallback(self, snapshot: Snapshot, deadline: float, abort: Abort) -> StepResult:
        first = self._attempt(self.dedicated, snapshot, deadline, abort)
        chat = self.chat
        if first.reason != "client_error" or chat is None or abort.is_set or time.monotonic() >= deadline:
            return first
        if chat.endpoint.busy or chat.problem(deadline) is not None:
            return first
        self._say(f"memory route {self.dedicated.backend.route} refused a step; {chat.backend.route} was asked once instead")
        second = self._attempt(chat, snapshot, deadline, abort)
        return first if second.decision == "dropped" else replace(second, earlier=(first,))

    def _attempt(self, route: Route, snapshot: Snapshot, deadline: float, abort: Abort) -> StepResult:
        """Take a place, run, give the place back when the transport has ended."""
        if abort.is_set:
            return self._refused(route, snapshot, "scope_changed")
        slot = route.endpoint.take()
        if slot is None:
            return self._refused(route, snapshot, "endpoint_busy")
        step_id = secrets.token_hex(8)
        abort.then(lambda: route.backend.abort_step(step_id))
        try:
            return route.step(snapshot, step_id=step_id, deadline=deadline)
        finally:
            route.backend.when_idle(step_id, slot.release)

    def _refused(self, route: Route | None, snapshot: Snapshot, reason: Reason) -> StepResult:
        """A step that ran no model and cost nothing."""
        return StepResult(
            decision=DECISION_OF[reason],
            reason=reason,
            bank_after=snapshot.bank,
            route=route.backend.route if route else None,
            model=route.settings.model if route else None,
        )

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._notice(sentence)


def make_backend(settings: RouteSettings, *, client: str = "pmem") -> HttpBackend:
    """The backend of one route. Raises UserError when its key file cannot be read."""
    return HttpBackend(
        settings.url,
        settings.model,
        kind=settings.kind,
        api_key=read_key(settings.api_key_file) if settings.api_key_file else None,
        model_hash=settings.model_hash,
        decision_prefix=settings.decision_prefix,
        decision_token_ids=settings.decision_token_ids,
        always_thinking=settings.always_thinking,
        model_max_output_tokens=settings.model_max_output_tokens,
        client=client,
    )


def build_policy(settings: Settings, *, notice: Notice | None = None, client: str | None = None) -> RoutedPolicy | None:
    """The policy the settings ask for; None when memory is disabled or no route is set. Touches no network.

    Raises UserError for an unreadable key file, and for a threshold that is uncertified or belongs to another model.
    """
    if not settings.enabled or settings.route is None:
        return None
    client = client or secrets.token_hex(4)
    options = StepOptions(
        profile=GateProfile(reminder_max_chars=settings.reminder_max_chars),
        limits=PromptLimits(trajectory_steps=settings.trajectory_steps, bank_budget_tokens=settings.bank_budget_tokens),
        max_output_tokens=settings.max_output_tokens,
    )
    store = ProbeStore(settings.state_dir / "memory" / "endpoint-slots.json")
    threshold = threshold_of(settings)
    dedicated = _route(settings.route, store, options, threshold, client)
    chat = _route(settings.chat, store, options, None, client) if settings.chat else None
    return RoutedPolicy(dedicated, chat, timeout_ms=settings.timeout_ms, notice=notice)


def read_key(path: Path) -> str:
    """First line of a key file."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"api_key_file {path} cannot be read; write the key into its first line") from None
    if not lines or not lines[0].strip():
        raise UserError(f"api_key_file {path} is empty; write the key into its first line")
    return lines[0].strip()


def _route(settings: RouteSettings, store: ProbeStore, options: StepOptions, threshold: Threshold | None, client: str) -> Route:
    endpoint = endpoint_at(settings.url, kind=settings.kind, store=store)
    endpoint.configure(settings.max_concurrent_requests)
    return Route(settings, endpoint=endpoint, options=options, threshold=threshold, client=client)


def threshold_of(settings: Settings) -> Threshold | None:
    """The threshold of these settings. Raises UserError when it is uncertified, or made for another model, prompt or mode."""
    if settings.threshold is None or settings.route is None:
        return None
    threshold = read_threshold(
        settings.threshold,
        model_hash=settings.route.model_hash,
        prompt_version=PROMPT_VERSION,
        require_certified=True,
        verify_later=settings.route.model_hash is None,
    )
    if threshold.decision_mode != settings.route.mode:
        raise UserError(
            f"{settings.threshold} was made for {threshold.decision_mode} decisions, route.mode is {settings.route.mode}; "
            "set route.mode to the same"
        )
    return threshold
