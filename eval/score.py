"""What an arm would do at every snapshot: probability, label mass, text, outcome, tokens, time -> decisions/<arm>.parquet.

Run:  python -m eval.score arm=rules                        (seconds)
      python -m eval.score arm=sft                          (configs/score.yaml; model in <run>/sft, in this process)
      python -m eval.score arm=sft trajectory_steps=1 bank_budget_tokens=150   (a variant beside it, an axis of eval.sweep)
      python -m eval.score arm=sft url=http://127.0.0.1:8077/v1
      python -m eval.score arm=sft splits=[train] samples=8 out=runs/quickstart/samples.parquet     (sampled answers for
      data.pivots)
Chunks are kept by the hash of their content under <run>/.cache, so a stopped run goes on where it stood, and a second one
costs nothing. Reminders are written only above `reminder_floor` (at most `max_reminder_share` of a chunk) and where the
label says one was needed.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from data.matching import match_candidate
from data.progress import track
from data.snapshots import read_snapshots, to_policy_snapshot, trajectory_steps
from data.splits import SPLITS
from eval.arms import TRAINED, WITHOUT_MODEL, BatchPolicy, WritingPolicy, make_arm
from eval.backends import model_folder, open_backend
from eval.decisions import ARMS, Decision, read_decisions, write_decisions
from eval.run_files import RunFiles
from eval.truth import Truth, read_truths
from pmem.backend import Backend
from pmem.bank import estimate_tokens
from pmem.canonical import content_id
from pmem.config import bounded, parse_stage
from pmem.errors import UserError, exit_code
from pmem.plan_notes import NOTES_VERSION
from pmem.policy import ModelPolicy
from pmem.policy_file import plan_notes_of
from pmem.prompt import PROMPT_VERSION, PromptLimits, render_messages
from pmem.snapshot import Snapshot
from pmem.step import StepResult

ALL_SPLITS = ("dev", "fit", "certify", "test", "heldout")
DERIVED = frozenset({"never", "always", "random", "oracle"})
"""Arms that `eval.promote` makes from the candidate's decisions; they need no scoring."""
TOKENS_OVER_ESTIMATE = 2
"""A kept prompt takes up to this many times the estimate: JSON has short tokens, and the list stands behind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreConfig:
    """Which arm over which snapshots."""

    arm: str = "rules"
    """rules, prompted, sft, sft_grpo, full_bank, retrieval, injection_only or advisor."""
    run: Path = Path("runs/quickstart")
    """Folder of the run."""
    snapshots: Path | None = None
    """Default <run>/snapshots.parquet."""
    labels: Path | None = None
    """Default <run>/labels.parquet; only labelled snapshots are scored, unless `only_labelled` is off."""
    only_labelled: bool = True
    """Score only snapshots that have labels."""
    only_known: bool = False
    """Score only snapshots whose label says need or not needed."""
    splits: tuple[str, ...] | None = None
    """Splits to score, absent ones passed over; null: all five, or `lean_splits` for the arms in `lean_arms`."""
    lean_arms: tuple[str, ...] = ("prompted", "sft")
    """Arms that are compared but do not stand for promotion: they need no certificate."""
    lean_splits: tuple[str, ...] = ("fit", "test", "heldout")
    """Splits of those arms."""
    split: str | None = None
    """Short for splits=[one]."""
    limit: int | None = None
    """At most so many snapshots of every split, chosen by the order of their ids (content hashes)."""
    limits: dict[str, int] = field(default_factory=dict)
    """The same for single splits."""
    quiet_per_episode: dict[str, int] = field(default_factory=dict)
    """In these splits only so many silence-is-right snapshots of an episode, drawn by seed: below 200 episodes the
    certificate uses one.
    """
    model: Path | None = None
    """Model folder; default <run>/sft, <run>/grpo or the cached base model."""
    url: str | None = None
    """Score over HTTP against an OpenAI-compatible server of that folder instead of in this process."""
    model_name: str = ""
    """Name of the model as the server lists it; default the folder's name."""
    concurrency: int = 8
    """Requests sent side by side to a server."""
    grammar: bool = False
    """Decode list and reminder under the grammar."""
    reminder_floor: float = 0.1
    """Raw probability from which a reminder is written; a later threshold must not lie below it."""
    max_reminder_share: float = 0.35
    """Largest share of a chunk for which reminders are written besides the needed ones, the likeliest first."""
    lists: bool | None = None
    """Let the model write its list before the decision is read; null: all arms but the untrained one (eval.arms.PlainPolicy)."""
    list_max_tokens: int = 96
    """Longest list of operations."""
    reminder_max_tokens: int = 64
    """Longest reminder."""
    trajectory_steps: int | None = None
    """Show only so many of the newest steps, at most what the snapshots hold; a variant for the sweep. null: all."""
    bank_budget_tokens: int | None = None
    """Show the bank within so many tokens; a variant for the sweep. null: the runtime's default."""
    plan_notes: bool = False
    """End an untrained model's lists with the plan note (pmem/plan_notes.py); for a trained one its `policy.json` says it."""
    samples: int = 0
    """Sampled answers a snapshot (for pivots) instead of the greedy one; 0: none."""
    temperature: float = 1.0
    """Of the sampled reminders."""
    chunk: int = 64
    """Snapshots a chunk, the unit of progress and of resuming; long prompts make chunks smaller, so that kept prefixes are found again."""
    max_batch_tokens: int = 16_384
    """Tokens of one batch in this process."""
    seed: int = 17
    """Of the samples."""
    out: Path | None = None
    """Default <run>/decisions/<arm>.parquet."""

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise UserError(f"unknown arm {self.arm!r}; known are {', '.join(ARMS)}")
        if self.arm in DERIVED:
            raise UserError(
                f"arm {self.arm} is made from the candidate's decisions by `python -m eval.promote`; score another arm"
            )
        if self.split and self.splits is not None:
            raise UserError("split and splits both say what to score; set one of them")
        if self.splits == ():
            raise UserError("splits is empty, so there is nothing to score; name some, or leave it out")
        if unknown := sorted({*self.wanted_splits, *self.limits} - set(SPLITS)):
            raise UserError(f"unknown split {unknown[0]!r}; known are {', '.join(SPLITS)}")
        if self.samples and self.arm not in TRAINED:
            raise UserError(f"arm {self.arm} cannot be sampled; use prompted, sft or sft_grpo")
        bounded(self, 0, math.inf, "limit", "limits", "quiet_per_episode", "samples", "temperature")
        bounded(self, 1, math.inf, "concurrency", "list_max_tokens", "reminder_max_tokens", "chunk", "max_batch_tokens")
        bounded(self, 0, 1, "reminder_floor", "max_reminder_share")
        if any(value < 1 for value in self.variant.values()):
            raise UserError("trajectory_steps and bank_budget_tokens must be at least 1")
        if self.variant and self.arm in WITHOUT_MODEL:
            raise UserError(
                f"arm {self.arm} sees no prompt, so trajectory_steps and bank_budget_tokens change nothing; leave them out"
            )

    @property
    def wanted_splits(self) -> tuple[str, ...]:
        """The splits this call scores."""
        if self.split:
            return (self.split,)
        return self.splits or (self.lean_splits if self.arm in self.lean_arms else ALL_SPLITS)

    @property
    def empty_lists(self) -> bool:
        """Whether the decision is read after an empty list."""
        return self.arm == "prompted" if self.lists is None else not self.lists

    @property
    def variant(self) -> dict[str, int]:
        """What is shown otherwise than usual."""
        shown = {"trajectory_steps": self.trajectory_steps, "bank_budget_tokens": self.bank_budget_tokens}
        return {name: value for name, value in shown.items() if value is not None}

    @property
    def target(self) -> Path:
        return self.out or RunFiles(self.run).variant(self.arm, self.variant)


def main(argv: list[str] | None = None) -> int:
    config = parse_stage(ScoreConfig, __doc__, Path("configs/score.yaml"), argv)
    started = time.perf_counter()
    snapshots, truths = load(config)
    backend, plan_notes = None, False
    if config.arm not in WITHOUT_MODEL:
        folder = model_folder(config.arm, config.run, config.model)
        backend = open_backend(
            folder,
            config.url,
            model_name=config.model_name,
            concurrency=config.concurrency,
            max_batch_tokens=config.max_batch_tokens,
        )
        plan_notes = plan_notes_of(folder, config.plan_notes)
    scorer = Scorer(config, backend, truths, plan_notes=plan_notes)
    decisions = [
        row for chunk in track(scorer.chunks(snapshots), f"scoring {config.arm}", unit="chunks") for row in scorer.rows(chunk)
    ]
    shown = {"plan_notes": NOTES_VERSION} if plan_notes else {}
    write_decisions(config.target, decisions, facts={name: str(value) for name, value in config.variant.items()} | shown)
    print(closing(config, decisions, time.perf_counter() - started))
    return 0


def load(config: ScoreConfig) -> tuple[list[Snapshot], dict[str, Truth]]:
    """Snapshots of the wanted splits in order of id, and what is known of them. Raises UserError when there is none."""
    splits, files = config.wanted_splits, RunFiles(config.run)
    files.check_out(config.target, files.variant(config.arm, config.variant))
    path, labels = config.snapshots or files.snapshots, config.labels or files.labels
    if (config.trajectory_steps or 0) > (held := trajectory_steps(path)):
        raise UserError(
            f"{path} holds windows of {held} steps, not {config.trajectory_steps}; run data.replay with a longer trajectory_steps"
        )
    truths = read_truths(path, labels, splits) if config.only_labelled or labels.exists() else {}
    drawn = drawn_quiet(truths, config.quiet_per_episode, config.seed)
    counts: Counter[str] = Counter()
    chosen = []
    for row in read_snapshots(path):
        name, split = row["snapshot_id"], row["split"]
        if (
            split not in splits
            or (config.only_labelled and name not in truths)
            or (config.only_known and not (name in truths and truths[name].known))
            or (split in config.quiet_per_episode and name not in drawn)
        ):
            continue
        if counts[split] >= min(config.limits.get(split, sys.maxsize), config.limit or sys.maxsize):
            continue
        if row["prompt_version"] != PROMPT_VERSION:
            raise UserError(f"{path} was made for prompt version {row['prompt_version']}, this is {PROMPT_VERSION}; replay again")
        counts[split] += 1
        chosen.append(to_policy_snapshot(row))
    if not chosen:
        raise UserError(f"{path}: no snapshot of split {', '.join(splits)} to score; simulate more, or name another split")
    return chosen, truths


def drawn_quiet(truths: dict[str, Truth], per_episode: dict[str, int], seed: int) -> set[str]:
    """Ids of the silence-is-right snapshots drawn for each episode of the splits in `per_episode`, by the hash of seed and id."""
    quiet: dict[tuple[str, str], list[str]] = {}
    for name, truth in truths.items():
        if truth.split in per_episode and truth.known and not truth.need:
            quiet.setdefault((truth.split, truth.episode), []).append(name)
    drawn: set[str] = set()
    for (split, _), names in quiet.items():
        drawn.update(sorted(names, key=lambda name: content_id([seed, name]))[: per_episode[split]])
    return drawn


class Scorer:
    """Asks one arm about chunks of snapshots, keeping each answered chunk on disk by the hash of what it was asked."""

    def __init__(
        self, config: ScoreConfig, backend: Backend | None, truths: dict[str, Truth], *, plan_notes: bool = False
    ) -> None:
        self.config = config
        self.limits, self.plan_notes = PromptLimits(**config.variant), plan_notes
        self.backend = backend
        self.truths = truths
        self.needed = frozenset(name for name, truth in truths.items() if truth.need)
        self.policy = self._policy()
        self.cache = config.run / ".cache" / "decisions"

    def _policy(self) -> BatchPolicy:
        config = self.config
        budget = (config.list_max_tokens, config.reminder_max_tokens)
        if config.arm not in TRAINED:
            return make_arm(
                config.arm,
                self.backend,
                grammar=config.grammar,
                max_tokens=budget,
                seed=config.seed,
                empty_lists=config.empty_lists,
                limits=self.limits,
                plan_notes=self.plan_notes,
            )
        assert self.backend is not None
        policy = WritingPolicy(
            self.backend, name=config.arm, grammar=config.grammar, list_max_tokens=budget[0], reminder_max_tokens=budget[1],
            timeout_ms=None, limits=self.limits, plan_notes=self.plan_notes,
        )  # fmt: skip
        policy.empty_lists = config.empty_lists
        policy.floor, policy.max_share, policy.needed = config.reminder_floor, config.max_reminder_share, self.needed
        return policy

    def chunks(self, snapshots: Sequence[Snapshot]) -> list[list[Snapshot]]:
        """Snapshots in order, at most `chunk` together and no more than whose prompts the backend keeps until they are asked again."""
        room, num_tokens = getattr(self.backend, "kept_tokens", math.inf), 0
        chunks: list[list[Snapshot]] = []
        for snapshot in snapshots:
            more = TOKENS_OVER_ESTIMATE * estimate_tokens(
                "".join(part["content"] for part in render_messages(snapshot, self.limits))
            )
            if not chunks or len(chunks[-1]) == self.config.chunk or num_tokens + more > room:
                chunks.append([])
                num_tokens = 0
            chunks[-1].append(snapshot)
            num_tokens += more
        return chunks

    def rows(self, chunk: Sequence[Snapshot]) -> Iterator[Decision]:
        """Decisions of a chunk, from the cache or the model, matched with the measured candidates."""
        path = self.cache / f"{self.key(chunk)}.parquet"
        if path.exists():
            rows = read_decisions(path)
        else:
            rows = self.ask(chunk)
            write_decisions(path, rows)
        for row in rows:
            truth = self.truths.get(row.snapshot_id)
            matched = match_candidate(row.reminder_text, row.cited_ids, truth.candidates) if truth else None
            yield replace(row, matched_candidate_id=matched)

    def key(self, chunk: Sequence[Snapshot]) -> str:
        """Hash of everything the answer depends on."""
        config = self.config
        settings = [config.arm, config.grammar, config.reminder_floor, config.max_reminder_share, config.list_max_tokens,
                    config.reminder_max_tokens, config.samples, config.temperature, config.seed, config.empty_lists]  # fmt: skip
        settings += [config.variant] if config.variant else []
        settings += [NOTES_VERSION] if self.plan_notes else []
        model = [getattr(self.backend, "model_hash", None), getattr(self.backend, "route", None), PROMPT_VERSION]
        asked = [[snapshot.model_dump(mode="json"), snapshot.snapshot_id in self.needed] for snapshot in chunk]
        return content_id([settings, model, asked])

    def ask(self, chunk: Sequence[Snapshot]) -> list[Decision]:
        """Put a chunk to the arm. The time of a row is its share of the chunk's wall time."""
        started = time.perf_counter()
        if self.config.samples:
            assert isinstance(self.policy, ModelPolicy)
            answers = self.policy.sample_many(
                chunk, num_samples=self.config.samples, temperature=self.config.temperature, seed=self.config.seed
            )
        else:
            answers = [[result] for result in self.policy.step_many(chunk)]
        share_ms = (time.perf_counter() - started) * 1000 / len(chunk) / max(1, self.config.samples)
        rows = []
        for snapshot, results in zip(chunk, answers):
            for index, result in enumerate(results):
                rows.append(self.decision(snapshot, result, index if self.config.samples else None, share_ms))
        return rows

    def decision(self, snapshot: Snapshot, result: StepResult, sample: int | None, share_ms: float) -> Decision:
        """A step's result as a row."""
        assert snapshot.snapshot_id is not None
        model = self.backend is not None
        return Decision(
            snapshot_id=snapshot.snapshot_id, arm=self.config.arm, decision=result.decision, reason=result.reason,
            model_hash=self.backend.model_hash if self.backend else None, prompt_version=PROMPT_VERSION,
            seed=self.config.seed if model else None, sample_index=sample, list_text=result.list_text or None,
            operations=[{"op": op.op, "content": op.content, "id": op.id} for op in result.operations],
            prob_raw=result.prob_raw, prob_calibrated=result.prob_calibrated, label_mass=result.label_mass,
            spoke=result.decision == "injected", threshold=result.threshold, reminder_text=result.reminder or None,
            cited_ids=list(result.cited), tokens_in=result.tokens_in, tokens_out=result.tokens_out,
            latency_ms=round(share_ms, 3) if model else 0.0, route=result.route,
        )  # fmt: skip


def closing(config: ScoreConfig, decisions: Sequence[Decision], seconds: float) -> str:
    """The stage's one line."""
    ends = Counter(row.decision for row in decisions)
    shares = ", ".join(f"{name} {count / len(decisions):.0%}" for name, count in ends.most_common())
    tokens = sum(row.tokens_in + row.tokens_out for row in decisions)
    return f"score: {config.arm}: {len(decisions)} rows in {seconds:.1f} s ({shares}; {tokens} tokens) in {config.target}"


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
