"""What a training run must remember beside weights: time spent, the plan of steps, the best dev score.

It stands in every checkpoint; `pmem_run.json` is written last there, so a folder that holds it is whole (`train.checkpoints`).
"""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pmem.atomic import write_text

RUN_STATE_NAME = "pmem_run.json"
DECAY_SHARE = 0.3
"""Last part of the plan over which the learning rate falls: the skill sets in late and abruptly, and needs the peak until then."""
RECENT_BATCHES = 24
"""Batches of a lesson over which its decision loss is averaged (`train.course`)."""
MEASURE_STEPS = 6
"""Steps before the first projection; the very first ones warm caches and are slow."""


@dataclass
class RunState:
    """`num_steps` is the plan as it stands: what `max_minutes` allows at the speed so far, at most the `most_steps` it began with."""

    num_steps: int
    most_steps: int = 0
    max_minutes: float | None = None
    elapsed_s: float = 0.0
    tokens_seen: int = 0
    rows_seen: int = 0
    batches_seen: int = 0
    num_lessons: int = 0
    lesson_ends: list[int] = field(default_factory=list)
    """After how many batches each lesson of a course was over."""
    recent_decisions: list[float] = field(default_factory=list)
    """Decision losses of the newest batches of the lesson under way."""
    best_score: float = -math.inf
    best_step: int = 0
    num_stale: int = 0
    stop_reason: str = "plan done"
    last: dict[str, float] = field(default_factory=dict)
    _resumed_at: float = field(default_factory=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self.most_steps = self.most_steps or self.num_steps

    def seconds(self) -> float:
        """Seconds of training so far, earlier sessions included."""
        return self.elapsed_s + time.monotonic() - self._resumed_at

    @property
    def in_course(self) -> bool:
        """Whether the rows trained now are still those of a lesson."""
        return len(self.lesson_ends) < self.num_lessons

    def saw_batch(self, num_rows: int, decision_nll: float) -> None:
        """Count one batch that was trained on."""
        self.rows_seen += num_rows
        self.batches_seen += 1
        if self.in_course:
            self.recent_decisions = [*self.recent_decisions, decision_nll][-RECENT_BATCHES:]

    def lesson_learned(self, until: float) -> bool:
        """Whether the newest batches of the lesson went well enough to end it."""
        recent = self.recent_decisions
        return len(recent) == RECENT_BATCHES and sum(recent) < until * RECENT_BATCHES

    def end_lesson(self, level: int, num_batches: int) -> None:
        """Record that lesson `level` is over after `num_batches` batches of the run; again in a resumed run: nothing happens."""
        if level == len(self.lesson_ends):
            self.lesson_ends.append(num_batches)
            self.recent_decisions = []

    def fit_plan(self, step: int, session_steps: int) -> None:
        """Fit the plan to what the rest of `max_minutes` allows at the speed of this session; a slow beginning is made good later."""
        if self.max_minutes is None or session_steps < 1:
            return
        if (
            session_steps < MEASURE_STEPS and self.seconds() < 15 * self.max_minutes
        ):  # a quarter of the time: slow steps are known sooner
            return
        per_step = (time.monotonic() - self._resumed_at) / session_steps
        affordable = step + math.floor((self.max_minutes * 60 - self.seconds()) / per_step)
        self.num_steps = max(step, min(self.most_steps, affordable))

    def seconds_left(self, step: int) -> float:
        """Projection from the mean speed so far."""
        return self.seconds() / max(step, 1) * max(self.num_steps - step, 0)

    def lr_factor(self, step: int, *, warmup_steps: int, final_share: float) -> float:
        """Linear warm-up, the peak, then linear decay to `final_share` over the last part of the plan as it stands now."""
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        decay_steps = max(1.0, DECAY_SHARE * self.num_steps)
        done = min(1.0, max(0.0, 1.0 - (self.num_steps - step) / decay_steps))
        return 1.0 - (1.0 - final_share) * done

    def save(self, folder: Path) -> None:
        """Write into a checkpoint folder."""
        values: dict[str, Any] = {key: value for key, value in asdict(self).items() if not key.startswith("_")}
        values["elapsed_s"] = self.seconds()
        values["best_score"] = None if math.isinf(self.best_score) else self.best_score
        write_text(Path(folder) / RUN_STATE_NAME, json.dumps(values) + "\n")

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint folder; the time limit stays the one of this run."""
        values = json.loads((Path(folder) / RUN_STATE_NAME).read_text(encoding="utf-8"))
        values["best_score"] = -math.inf if values["best_score"] is None else values["best_score"]
        values.pop("max_minutes")
        for key, value in values.items():
            setattr(self, key, value)
