"""When GRPO must stop: the policy collapses to always or never speaking, stops exploring, breaks its form, or gets noisy on dev.

Each rule looks at the mean over the last `window` logs. A stop is not a failure: the weights of the last scoring without a breach
are the result, and the rule that stopped it stands in `policy.json`.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from pmem.config import STRICT


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRules:
    """Bounds; an empty one is off."""

    __pydantic_config__ = STRICT

    window: int = 8
    """Logs over which a figure is averaged."""
    rate_band: tuple[float, float] = (0.3, 3.0)
    """The rate of speaking may move between these multiples of its first mean."""
    entropy_floor: float | None = 0.002
    """Least mean entropy of a token, in nats."""
    max_dead_groups: float | None = 0.95
    """Largest share of groups whose answers all got the same reward."""
    max_malformed: float | None = 0.10
    """Largest share of malformed answers, once the first mean is below it."""
    max_dev_false_rate_rise: float | None = 0.10
    """Largest rise of the share of dev rows with silence right at which P(speak) exceeds one half."""


@dataclass
class StopWatch:
    """Feeds on logs and says which rule is broken, or None."""

    rules: StopRules
    first: dict[str, float] = field(default_factory=dict)
    _recent: dict[str, deque[float]] = field(default_factory=dict)

    def broken_by_log(self, logs: Mapping[str, float]) -> str | None:
        """`logs`: rate_speak, entropy, frac_reward_zero_std, share_malformed of one step."""
        means = {name: mean for name in logs if (mean := self._mean(name, logs[name])) is not None}
        for name, mean in means.items():
            self.first.setdefault(name, mean)
        return self._rate(means) or self._bounds(means)

    def broken_by_dev(self, false_rate: float) -> str | None:
        """`false_rate`: share of dev rows with silence right at which the policy would speak."""
        start = self.first.setdefault("dev_false_rate", false_rate)
        limit = self.rules.max_dev_false_rate_rise
        if limit is not None and false_rate > start + limit:
            return f"dev false interventions rose from {start:.0%} to {false_rate:.0%}"
        return None

    def _mean(self, name: str, value: float) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        recent = self._recent.setdefault(name, deque(maxlen=self.rules.window))
        recent.append(value)
        return sum(recent) / len(recent) if len(recent) == self.rules.window else None

    def _rate(self, means: Mapping[str, float]) -> str | None:
        rate, start = means.get("rate_speak"), self.first.get("rate_speak")
        if rate is None or not start:
            return None
        low, high = self.rules.rate_band
        if low * start <= rate <= max(high * start, start + 0.2):
            return None
        return f"the rate of speaking left its band: {rate:.0%}, at the start {start:.0%}"

    def _bounds(self, means: Mapping[str, float]) -> str | None:
        rules = self.rules
        if rules.entropy_floor is not None and means.get("entropy", math.inf) < rules.entropy_floor:
            return f"the entropy fell to {means['entropy']:.4f}"
        if rules.max_dead_groups is not None and means.get("frac_reward_zero_std", 0.0) > rules.max_dead_groups:
            return f"{means['frac_reward_zero_std']:.0%} of the groups have no differing rewards left"
        malformed = means.get("share_malformed", 0.0)
        if rules.max_malformed is not None and self.first.get("share_malformed", 1.0) <= rules.max_malformed < malformed:
            return f"{malformed:.0%} of the answers are malformed"
        return None
