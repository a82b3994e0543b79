"""Labels by a teacher model, marked so: asked over an OpenAI-compatible endpoint, or imported from recorded decisions.

    python -m data.teacher action=ask url=http://127.0.0.1:8000/v1 model=name snapshots=runs/snapshots.parquet out=…
    python -m data.teacher action=import decisions=decisions.jsonl runs=[a.json, b.json] snapshots_out=… out=…

Asked: the policy's own prompt under a longer instruction with a version of its own; `votes` samples, and the verdict is `need`
when most speak with a valid citation (`num_branches` = votes, `num_success` = votes that spoke). Opinions: no value is measured.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data.labels import write_labels
from data.memory_decisions import import_decisions
from data.progress import track
from data.snapshots import read_snapshots, to_policy_snapshot, write_snapshots
from data.splits import hash_fraction
from data.tables import Row
from pmem.backend import Backend, Completion, Request, RouteError
from pmem.config import parse_stage
from pmem.envelope import Malformed, citations, parse_envelope
from pmem.errors import UserError, exit_code
from pmem.prompt import PROMPT_VERSION, render_messages
from pmem.route import HttpBackend

DEFAULT = Path("configs/teacher.yaml")
INSTRUCTION = """\
You watch an agent at work and decide whether one short reminder from its memory bank would help it now.
You see the task, the memory bank and the agent's newest steps, with the plan it states.
Stay silent unless the agent is about to act against a fact in the bank: a requirement it has dropped, an environment fact it has
wrong, a failure it is about to repeat, a diagnosis it is about to make again, progress it has lost sight of. A reminder of
something the agent still respects costs it time and attention. When you speak: one or two sentences, the fact and its citation.
Answer with exactly two lines:
<operations>[]</operations>
then either <no_intervention/> or <context_for_action>the reminder [tm-k-1]</context_for_action>"""
TEACHER_VERSION = hashlib.sha256(f"{INSTRUCTION}\n{PROMPT_VERSION}".encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig:
    """Settings of the teacher labels."""

    action: Literal["ask", "import"] = "ask"
    """Ask a model, or import recorded decisions."""
    out: Path = Path("runs/teacher.parquet")
    """The labels file to write."""
    snapshots: Path = Path("runs/snapshots.parquet")
    """ask: snapshots to label."""
    splits: tuple[str, ...] = ("train",)
    """ask: splits to take them from."""
    limit: int = 200
    """ask: how many, chosen by hash."""
    url: str | None = None
    """ask: base address of the endpoint, `/v1` included."""
    model: str | None = None
    """ask: name of the model there."""
    api_key_file: Path | None = None
    """ask: file whose first line is the key."""
    votes: int = 5
    """ask: samples a snapshot (self-consistency)."""
    temperature: float = 0.7
    """ask: of the samples."""
    max_tokens: int = 400
    """ask: longest answer."""
    decisions: Path | None = None
    """import: the recorded decisions, JSON lines."""
    runs: tuple[Path, ...] = ()
    """import: the trajectories they were made on."""
    snapshots_out: Path = Path("runs/teacher_snapshots.parquet")
    """import: snapshots of those trajectories, with the bank the teacher itself wrote."""
    seed: int = 17
    """ask: seed of the samples."""

    def __post_init__(self) -> None:
        if self.votes < 1 or self.limit < 1:
            raise UserError("teacher: votes and limit must be at least 1")


def ask(config: TeacherConfig, backend: Backend) -> list[Row]:
    """Label snapshots by majority of the model's answers. Raises UserError when there is none or the endpoint fails."""
    rows = [row for row in read_snapshots(config.snapshots) if row["split"] in config.splits and row["bank_before"]["entries"]]
    if not rows:
        raise UserError(f"{config.snapshots} has no snapshot with a bank in the splits {', '.join(config.splits)}")
    rows.sort(key=lambda row: hash_fraction(f"teacher:{row['snapshot_id']}"))
    labels: list[Row] = []
    for row in track(rows[: config.limit], "asking", unit="snapshots"):
        try:
            answers = backend.complete(_requests(row, config))
        except (RouteError, TimeoutError) as error:
            raise UserError(f"{config.url}: the teacher does not answer ({error}); check url, model and key") from None
        labels += votes_to_labels(row, answers, backend.model)
    write_labels(config.out, labels)
    return labels


def votes_to_labels(row: Row, answers: Sequence[Completion], model: str) -> Iterator[Row]:
    """Label rows of one snapshot. Malformed answers are no vote; the shortest valid reminder stands for those that spoke."""
    bank = {entry["id"] for entry in row["bank_before"]["entries"]}
    read = [parse_envelope(answer.text, finish_reason=answer.finish_reason) for answer in answers]
    votes = [one.reminder for one in read if not isinstance(one, Malformed)]
    spoken = sorted((text for text in votes if text and set(citations(text)) & bank), key=lambda text: (len(text), text))
    verdict = (
        "unknown" if not votes or 2 * len(spoken) == len(votes) else "need" if 2 * len(spoken) > len(votes) else "not_needed"
    )
    label = {
        "snapshot_id": row["snapshot_id"],
        "label_kind": "teacher",
        "candidate_id": None,
        "cited_ids": [],
        "num_branches": len(votes),
        "num_success": len(spoken),
        "verdict": verdict,
        "continuation": f"teacher prompt {TEACHER_VERSION}",
        "agent": model,
        "divergence": False,
    }
    yield label
    if verdict == "need":
        cited = [name for name in citations(spoken[0]) if name in bank]
        yield {**label, "candidate_id": "teacher", "reminder_text": spoken[0], "cited_ids": cited}


def _requests(row: Row, config: TeacherConfig) -> list[Request]:
    _, user = render_messages(to_policy_snapshot(row))
    messages = ({"role": "system", "content": INSTRUCTION}, user)
    return [
        Request(messages=messages, max_tokens=config.max_tokens, temperature=config.temperature, seed=config.seed + vote)
        for vote in range(config.votes)
    ]


def _backend(config: TeacherConfig) -> HttpBackend:
    if not config.url or not config.model:
        raise UserError("teacher: action=ask needs url= and model= of an OpenAI-compatible endpoint")
    key = None
    if config.api_key_file is not None:
        if not config.api_key_file.exists():
            raise UserError(f"api_key_file {config.api_key_file} does not exist")
        key = config.api_key_file.read_text(encoding="utf-8").split("\n")[0].strip()
    return HttpBackend(config.url, config.model, api_key=key, concurrency=config.votes)


def run(config: TeacherConfig) -> list[Row]:
    """Run the chosen action; returns the label rows written."""
    if config.action == "ask":
        backend = _backend(config)
        try:
            return ask(config, backend)
        finally:
            backend.close()
    if config.decisions is None or not config.runs:
        raise UserError("teacher: action=import needs decisions= and runs=[…]")
    snapshots, labels = import_decisions(config.decisions, config.runs)
    write_snapshots(config.snapshots_out, snapshots)
    write_labels(config.out, labels)
    return labels


def main() -> int:
    """Entry point of `python -m data.teacher`."""
    config = parse_stage(TeacherConfig, __doc__, DEFAULT)
    labels = run(config)
    verdicts = Counter(row["verdict"] for row in labels if row["candidate_id"] is None)
    cited = sum(bool(row["cited_ids"]) for row in labels)
    shown = ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
    print(f"teacher labels for {sum(verdicts.values())} snapshots ({shown}; {cited} with a cited reminder) -> {config.out}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
