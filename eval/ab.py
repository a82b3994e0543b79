"""Matched live trials: the same tasks, agents and seeds under every arm; who passes the real check more often?

Run:  python -m eval.ab                                     (configs/ab.yaml, about 4 minutes on 2 cores)
      python -m eval.ab arms=[never,rules,sft] num_tasks=100 agents=[weak]
      python -m eval.ab arms=[never,rules] agents=[llm] llm.url=http://127.0.0.1:8000/v1 llm.model=qwen
Writes ab.json: pass rate, reminders a task, tokens and seconds an injection with intervals clustered by task, paired
differences against never and rules with exact McNemar, power, and one row a trial. Finished arms are kept under
<run>/.cache/ab, so a stopped run goes on.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from data.llm_agent import LlmConfig
from data.progress import track
from data.simulate import LLM
from data.snapshots import trajectory_steps
from eval.arms import WITHOUT_MODEL, make_arm
from eval.backends import model_folder, open_backend
from eval.decisions import ARMS
from eval.live import LiveArm, TrialResult, TrialSpec, run_trials
from eval.run_files import RunFiles
from eval.runner import SIMULATED, Runner, open_runner
from eval.trials import arm_json, power_json
from pmem.atomic import write_text
from pmem.backend import Backend
from pmem.canonical import content_id
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.plan_notes import NOTES_VERSION
from pmem.policy_file import model_hash, plan_notes_of
from pmem.prompt import PROMPT_VERSION
from pmem.settings import Settings
from pmem.threshold import Threshold, read_threshold

MODEL_OF = {"prompted": "prompted", "sft": "sft", "sft_grpo": "sft_grpo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AbConfig:
    """Which arms, over which tasks and agents."""

    run: Path = Path("runs/quickstart")
    """Folder of the run."""
    arms: tuple[str, ...] = ("never", "rules", "oracle", "prompted", "sft", "sft_grpo", "random", "always")
    """Arms, any of docs/design/files.md; never is added when it is missing."""
    candidate: str = "sft_grpo"
    """Arm whose model speaks for random, always and the other ablations, and whose power is stated."""
    families: tuple[str, ...] = ()
    """Task families; empty: all that the environments know."""
    agents: tuple[str, ...] = ("weak", "medium")
    """Strengths of the simulated agent, or llm for the model behind `llm`; tasks are dealt to them in turn."""
    llm: LlmConfig = field(default_factory=LlmConfig)
    """The acting model of agent llm."""
    runner: str = SIMULATED
    """simulated, or module:function of your own tasks (eval.runner); eval.tau2:runner for tau2-bench."""
    runner_options: dict[str, Any] = field(default_factory=dict)
    """What that function wants to know."""
    threads: int = 8
    """Episodes that act side by side when the acting agent is a model behind a server."""
    num_tasks: int = 32
    """Tasks, dealt to families and agents in turn; seeds lie beyond those of data.simulate."""
    other_tasks: int | None = 10
    """The first so many of them for the dear arms that are not the candidate (prompted, always, …); null: all."""
    first_seed: int = 1_000_000
    """Seed of the first task: no task of training, calibration or test has one this high."""
    num_acts: int = 16
    """Acts of a task's script."""
    cadence: int = 2
    """Tool steps between two looks of the policy; explicit triggers come at once."""
    width: int = 40
    """Episodes that run in lockstep, so that their model calls form one batch."""
    bank_writer: str = "scripted"
    """`scripted`: the bank is written as in replay, the same for every arm; `policy`: by each arm's own operations."""
    expected_difference: float = 0.1
    """Difference of pass rates, fixed beforehand, for which power is stated."""
    models: dict[str, Path] | None = None
    """Model folders an arm, where they are not the run's own."""
    url: str | None = None
    """Ask the candidate's model over HTTP instead of in this process."""
    grammar: bool = False
    """Decode under the grammar."""
    list_max_tokens: int = 96
    """Longest list of operations."""
    reminder_max_tokens: int = 64
    """Longest reminder."""
    plan_notes: bool = False
    """End an untrained model's lists with the plan note; for a trained one its `policy.json` says it."""
    seed: int = 17
    """Of the agents, the coin and the bootstrap."""
    out: Path | None = None
    """Default <run>/ab.json."""

    def __post_init__(self) -> None:
        if min(self.num_tasks, self.cadence, self.width, self.threads, 1 if self.other_tasks is None else self.other_tasks) < 1:
            raise UserError("zero trials: num_tasks, other_tasks, cadence, width and threads must be at least 1")
        bounded(self, 1, 80, "num_acts")
        bounded(self, 0, 1, "expected_difference")
        bounded(self, 0, math.inf, "seed", "first_seed")
        for arm in (*self.arms, self.candidate):
            if arm not in ARMS:
                raise UserError(f"unknown arm {arm!r}; known are {', '.join(ARMS)}")
        if not self.agents:
            raise UserError("agents is empty; name at least one strength, such as weak")
        if self.bank_writer not in {"scripted", "policy"}:
            raise UserError(f"bank_writer is {self.bank_writer!r}; use scripted or policy")


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(AbConfig, __doc__, Path("configs/ab.yaml"), argv)
    files = RunFiles(config.run)
    files.check_out(config.out or files.ab, files.ab)
    started = time.perf_counter()
    harness = Harness(config, open_runner(config))
    results = harness.run()
    content = summary(config, results)
    write_text(config.out or files.ab, json.dumps(content, indent=1) + "\n")
    rates = ", ".join(f"{arm} {entry['figures']['pass_rate']['value']:.2f}" for arm, entry in content["arms"].items())
    power = content["power"]["power"]
    stated = f"power {power:.0%}" if power is not None else "no power stated"
    print(f"ab: {config.num_tasks} matched tasks in {time.perf_counter() - started:.0f} s; pass rate {rates}; "
          f"{stated} for a difference of {config.expected_difference:.0%}")  # fmt: skip
    return 0


class Harness:
    """Runs the arms one after another over the same specs, each finished arm kept on disk."""

    def __init__(self, config: AbConfig, runner: Runner) -> None:
        self.config = config
        self.runner = runner
        self.files = RunFiles(config.run)
        self.cache = config.run / ".cache" / "ab"
        self.results: dict[str, list[TrialResult]] = {}
        self._backends: dict[str, Backend] = {}

    def run(self) -> dict[str, list[TrialResult]]:
        """Results by arm. `never` first: it is everybody's baseline; random after the candidate, whose rate it takes."""
        wanted = list(dict.fromkeys(("never", *self.config.arms)))
        if "random" in wanted and self.config.candidate in wanted:
            wanted.remove("random")
            wanted.insert(wanted.index(self.config.candidate) + 1, "random")
        for arm in wanted:
            self.check(arm)
        for arm in wanted:
            self.results[arm] = self.trials(arm)
        return self.results

    def check(self, arm: str) -> None:
        """Refuse at once what an arm would miss after minutes of other arms' trials. No model is loaded."""
        if arm not in WITHOUT_MODEL:
            self.folder(arm)
        if arm in MODEL_OF:
            read_threshold(self.threshold_file(arm), model_hash=None, prompt_version=PROMPT_VERSION, verify_later=True)

    def trials(self, arm: str) -> list[TrialResult]:
        """The trials of one arm, from the cache when they ran before."""
        path = self.cache / f"{self.key(arm)}.json"
        if path.exists():
            return [TrialResult(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
        config, specs = self.config, self.specs_of(arm)
        settings = Settings(cadence_tool_calls=1, trajectory_steps=trajectory_steps(self.files.snapshots), telemetry=False)
        running = run_trials(
            self.live_arm(arm), specs, self.runner.open_episode, width=config.width, cadence=config.cadence, settings=settings,
            writer_for=self.runner.writer_for if config.bank_writer == "scripted" else None, threads=self.runner.threads,
        )  # fmt: skip
        results = list(track(running, f"trials of {arm}", total=len(specs), unit="trials"))
        if arm == "never" and any(trial.num_rows for trial in results):
            raise AssertionError("the baseline wrote telemetry rows")
        write_text(path, json.dumps([asdict(trial) for trial in results]))
        return results

    def specs_of(self, arm: str) -> Sequence[TrialSpec]:
        """All specs for the candidate, for random at its rate, and for arms that cost no model; fewer for the dear ones."""
        cheap = {*WITHOUT_MODEL, "random", self.config.candidate}
        return self.runner.specs if arm in cheap else self.runner.specs[: self.config.other_tasks]

    def live_arm(self, arm: str) -> LiveArm:
        """Policy and session of an arm."""
        if arm in {"never", "oracle"}:
            return LiveArm(name=arm, memory=False, oracle=arm == "oracle")
        if arm == "rules":
            return LiveArm(name=arm)
        needs_model = arm not in {"full_bank", "retrieval"}
        policy = make_arm(
            arm, self.backend(arm) if needs_model else None, threshold=self.threshold(arm) if arm in MODEL_OF else None,
            grammar=self.config.grammar, rate=self.rate(), seed=self.config.seed,
            max_tokens=(self.config.list_max_tokens, self.config.reminder_max_tokens), empty_lists=arm == "prompted",
            plan_notes=needs_model and self.plan_notes(arm),
        )  # fmt: skip
        return LiveArm(name=arm, policy=policy)

    def rate(self) -> float:
        """Share of its steps at which the candidate spoke in this very run (0.1 when it did not run)."""
        trials = self.results.get(self.config.candidate, [])
        steps = sum(sum(trial.outcomes.values()) for trial in trials)
        spoken = sum(trial.num_reminders - trial.num_annotations for trial in trials)
        return spoken / steps if steps else 0.1

    def speaker(self, arm: str) -> str:
        """The arm whose model an arm uses."""
        return MODEL_OF.get(arm, self.config.candidate)

    def folder(self, arm: str) -> Path:
        """The model folder behind an arm."""
        speaker = self.speaker(arm)
        return model_folder(speaker, self.config.run, (self.config.models or {}).get(speaker))

    def plan_notes(self, arm: str) -> bool:
        """Whether the lists of an arm's model end with plan notes."""
        return plan_notes_of(self.folder(arm), self.config.plan_notes)

    def backend(self, arm: str) -> Backend:
        """One backend a model, opened once."""
        speaker = self.speaker(arm)
        if speaker not in self._backends:
            url = self.config.url if speaker == self.config.candidate else None
            self._backends = {speaker: open_backend(self.folder(arm), url)}
        return self._backends[speaker]

    def threshold_file(self, arm: str) -> Path:
        """Where `eval.sweep` left the threshold of an arm."""
        return self.files.threshold if arm == self.config.candidate else self.files.arm_threshold(arm)

    def threshold(self, arm: str) -> Threshold:
        """The arm's own threshold from eval.sweep; refused when it was made for another model or prompt."""
        return read_threshold(self.threshold_file(arm), model_hash=self.backend(arm).model_hash, prompt_version=PROMPT_VERSION)

    def key(self, arm: str) -> str:
        """Hash of everything the trials of an arm depend on."""
        config = self.config
        specs = [asdict(spec) for spec in self.specs_of(arm)]
        common: list[Any] = [arm, specs, config.cadence, config.num_acts, config.bank_writer, PROMPT_VERSION,
                             trajectory_steps(self.files.snapshots)]  # fmt: skip
        if config.runner != SIMULATED or LLM in config.agents:
            common += [config.runner, config.runner_options, asdict(replace(config.llm, api_key_file=None))]
        if arm in WITHOUT_MODEL:
            return content_id(common)
        threshold = self.threshold(arm).threshold_id if arm in MODEL_OF else None
        budget = [config.grammar, config.list_max_tokens, config.reminder_max_tokens, config.url]
        budget += [NOTES_VERSION] if self.plan_notes(arm) else []
        return content_id([*common, budget, model_hash(self.folder(arm)), threshold, self.rate() if arm == "random" else None])


def summary(config: AbConfig, results: dict[str, list[TrialResult]]) -> dict[str, Any]:
    """The content of ab.json."""
    settings: dict[str, Any] = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(config).items()}
    settings["llm"].pop("api_key_file")
    settings["models"] = {arm: str(path) for arm, path in (config.models or {}).items()}
    return {
        "format": "pmem.ab/1",
        "config": settings,
        "arms": {arm: arm_json(arm, results, seed=config.seed) for arm in results},
        "power": power_json(results, config.candidate, config.expected_difference),
        "trials": {arm: [asdict(trial) for trial in trials] for arm, trials in results.items()},
    }


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
