"""Snapshots + labels -> `sft.parquet`: the prompt as the runtime renders it, the target from the best measured branch.

    python -m data.build snapshots=runs/snapshots.parquet labels=[runs/labels.parquet] out=runs/sft.parquet

need -> the best candidate's reminder; not needed -> silence; unknown -> its measured best at a lower weight, ties are silence.
Operations are the scripted writer's at that boundary, without its misses and errors: what task text and window truly contain.
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from data.card import card_text
from data.easier import easier
from data.labels import LABEL_KINDS, SnapshotLabels, group_labels, read_labels
from data.progress import track
from data.renaming import Names, names_of
from data.rows import REMINDER, SILENCE, WOULD_SAY, lesson_file, remove_lessons, write_lesson, write_sft
from data.snapshots import read_snapshots, to_policy_snapshot, trajectory_steps
from data.splits import SPLITS, hash_fraction
from data.tables import Row
from data.taught import taught_operations
from data.twins import twin_of
from data.would_say import would_say
from pmem.atomic import write_text
from pmem.canonical import content_id
from pmem.config import bounded, check_writable, parse_stage
from pmem.envelope import Operation, citations, render_envelope
from pmem.errors import UserError, exit_code
from pmem.plan_notes import NOTES_VERSION, clauses_with_entries, plan_note
from pmem.prompt import PROMPT_VERSION, render_messages
from pmem.settings import Settings
from pmem.snapshot import Snapshot

DEFAULT = Path("configs/build.yaml")
MAX_REMINDER_CHARS = Settings().reminder_max_chars


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """Settings of the build stage."""

    snapshots: Path = Path("runs/snapshots.parquet")
    """Snapshots file of `data.replay`."""
    labels: tuple[Path, ...] = (Path("runs/labels.parquet"),)
    """Labels files; rows of several kinds may be mixed."""
    out: Path = Path("runs/sft.parquet")
    """The SFT rows to write; `card.md` is written beside it."""
    rollouts: tuple[Path, ...] = ()
    """Rollout files, read for the licences in the card only."""
    splits: tuple[str, ...] = ("train", "dev")
    """Splits that get rows."""
    kinds: dict[str, float] = field(
        default_factory=lambda: {"counterfactual": 1.0, "human": 1.0, "teacher": 0.5, "hindsight": 0.3}
    )
    """Weight of a row by the kind of its label, best kind first: a snapshot with several kinds takes the first listed."""
    unknown_weight: float = 0.3
    """Factor on the weight of a snapshot whose measured verdict is unknown; 0 leaves it out."""
    share_speak: float | None = 0.4
    """Share of the train rows (or of their weight) whose target is a reminder; null keeps the natural one."""
    balance: Literal["leave_out", "weight"] = "leave_out"
    """How that share is reached: leave out rows of the commoner decision, or keep all rows and shift their weights."""
    max_train_rows: int | None = None
    """Upper bound on train rows; those with the surest labels stay."""
    max_prompt_chars: int = 4_500
    """Rows with a longer prompt are left out and counted: training never cuts a row."""
    would_say: bool = True
    """Give the silent train rows a second row with what they would have said (data/would_say.py)."""
    lists: bool = True
    """Teach the operations; off, every list is empty: an ablation in which the decision comes before anything is written."""
    plan_notes: bool = False
    """End every list with the plan note (pmem/plan_notes.py); the model is then served so."""
    course: tuple[int, ...] = ()
    """Bank sizes of easier views of the train rows (data/easier.py), each in a file of its own beside `out`, for `train.sft`."""
    renamed: float = 0.0
    """Share of the train snapshots that are told in other names (data/renaming.py)."""
    probes: bool = True
    """Run the leakage probes of the card (needs scikit-learn)."""

    def __post_init__(self) -> None:
        if not self.kinds or not self.splits:
            raise UserError(
                f"{'splits' if self.kinds else 'kinds'} is empty, so no row would be built; name some, or leave it out"
            )
        if unknown := sorted(set(self.kinds) - set(LABEL_KINDS)):
            raise UserError(f"kinds: unknown label kind {unknown[0]!r}; known are {', '.join(LABEL_KINDS)}")
        if self.share_speak is not None and not 0 < self.share_speak < 1:
            raise UserError(f"share_speak must lie between 0 and 1, not {self.share_speak}")
        bounded(self, 0, math.inf, "unknown_weight", "kinds")
        bounded(self, 0, 1, "renamed")
        if self.plan_notes and not self.lists:
            raise UserError("plan_notes=true ends the list with a note, which lists=false leaves empty; set one of them")
        bounded(self, 1, math.inf, "max_train_rows", "max_prompt_chars", "course")
        if list(self.course) != sorted(set(self.course)):
            raise UserError(f"course is {list(self.course)}; write each bank size once, the smallest first")
        for given in (self.snapshots, *self.labels):
            if given.parent == self.out.parent and given.match(f"{self.out.stem}.bank*{self.out.suffix}"):
                raise UserError(f"{given} has the name of a lesson of out, which this command writes; name another out")
        if self.out.name == "card.md":
            raise UserError("out is card.md, where the card of the build goes; choose a name that ends in .parquet")
        if unknown := sorted(set(self.splits) - set(SPLITS)):
            raise UserError(f"splits: unknown split {unknown[0]!r}; known are {', '.join(SPLITS)}")


@dataclass(frozen=True, slots=True)
class Target:
    """What one labelled snapshot teaches. `reminder` None = silence."""

    snapshot: Row
    labels: SnapshotLabels
    reminder: str | None
    weight: float

    @property
    def decision(self) -> str:
        return SILENCE if self.reminder is None else REMINDER


def choose_labels(groups: Sequence[SnapshotLabels], kinds: Iterable[str]) -> SnapshotLabels | None:
    """The labels of the best kind that were not voided."""
    for kind in kinds:
        for group in groups:
            if group.label_kind == kind and not group.voided:
                return group
    return None


def target_of(snapshot: Row, labels: SnapshotLabels, config: BuildConfig) -> Target | None:
    """The target of one snapshot, or None when its labels teach nothing."""
    weight = config.kinds[labels.label_kind]
    best, advantage = labels.best()
    if labels.verdict == "unknown":
        if advantage is None:
            return None
        weight *= config.unknown_weight
        speaks = advantage > 0
    else:
        speaks = labels.verdict == "need"
    if not weight or (speaks and (best is None or not _deliverable(best))):
        return None
    return Target(snapshot, labels, best["reminder_text"] if speaks and best else None, weight)


def _deliverable(candidate: Row) -> bool:
    """Whether the runtime would let this reminder through: it cites something and keeps to the length."""
    return bool(candidate["reminder_text"] and candidate["cited_ids"]) and len(candidate["reminder_text"]) <= MAX_REMINDER_CHARS


def balance(targets: Sequence[Target], share_speak: float, limit: int | None = None) -> list[Target]:
    """Leave out rows of the commoner decision until reminders have their share, then cut to `limit`; the surest labels stay."""
    speaking, silent = _by_decision(targets)
    if speaking and silent:
        num_speaking = min(len(speaking), round(len(silent) * share_speak / (1 - share_speak)))
        num_silent = min(len(silent), round(len(speaking) * (1 - share_speak) / share_speak))
        speaking, silent = speaking[: max(1, num_speaking)], silent[: max(1, num_silent)]
    return _cut(speaking, silent, limit)


def reweight(targets: Sequence[Target], share_speak: float, limit: int | None = None) -> list[Target]:
    """Keep all rows (up to `limit`) and shift weights so that reminders carry their share of an unchanged total."""
    kept = _cut(*_by_decision(targets), limit)
    total = sum(target.weight for target in kept)
    speaks = sum(target.weight for target in kept if target.reminder is not None)
    if not 0 < speaks < total:
        return kept
    factors = {REMINDER: share_speak * total / speaks, SILENCE: (1 - share_speak) * total / (total - speaks)}
    return [replace(target, weight=round(target.weight * factors[target.decision], 6)) for target in kept]


def _by_decision(targets: Sequence[Target]) -> tuple[list[Target], list[Target]]:
    """Reminders and silences, the surest first; among silences those that differ from a reminder in little but the plan."""
    spoken_at = {_situation(one) for one in targets if one.reminder is not None}
    spoken_in = {one.snapshot["task_id"] for one in targets if one.reminder is not None}
    twins = _twins(targets)

    def rank(one: Target) -> tuple[float, bool, bool, bool, float]:
        name, alone = one.snapshot["snapshot_id"], one.snapshot["task_id"] not in spoken_in
        return -one.weight, name not in twins, alone, _situation(one) not in spoken_at, hash_fraction(f"balance:{name}")

    ordered = sorted(targets, key=rank)
    return [one for one in ordered if one.reminder is not None], [one for one in ordered if one.reminder is None]


def _twins(targets: Sequence[Target]) -> set[str]:
    """Ids of the silent snapshots that are the twin of a speaking one."""
    silent: dict[str, list[Row]] = defaultdict(list)
    for one in targets:
        if one.reminder is None:
            silent[one.snapshot["task_id"]].append(one.snapshot)
    found = [twin_of(one.snapshot, silent[one.snapshot["task_id"]]) for one in targets if one.reminder is not None]
    return {twin["snapshot_id"] for twin in found if twin}


def _situation(target: Target) -> tuple[str, ...]:
    """Task and bank as the prompt shows them."""
    snapshot = target.snapshot
    return (
        snapshot["rollout_id"],
        *snapshot["task_messages"],
        *(entry["content"] for entry in snapshot["bank_before"]["entries"]),
    )


def _cut(speaking: list[Target], silent: list[Target], limit: int | None) -> list[Target]:
    """Both decisions in the shares they have, at most `limit` together."""
    total = len(speaking) + len(silent)
    if limit is None or total <= limit:
        return speaking + silent
    num_speaking = round(limit * len(speaking) / total)
    return speaking[:num_speaking] + silent[: limit - num_speaking]


@dataclass(frozen=True, slots=True)
class Told:
    """A target as its rows tell it: in its own names, or in exchanged ones."""

    target: Target
    snapshot: Snapshot
    operations: tuple[Operation, ...]
    reminder: str | None


def told(target: Target, operations: Sequence[Operation], names: Names | None, config: BuildConfig) -> Told:
    """`operations` are what a writer without misses and errors does at that boundary; with `names` some train targets change theirs."""
    snapshot = to_policy_snapshot(target.snapshot)
    name, reminder = target.snapshot["snapshot_id"], target.reminder
    operations = operations if config.lists else ()
    if names is not None and _in_train(target) and hash_fraction(f"renamed:{name}") < config.renamed:
        return Told(target, *names.exchanged(snapshot, operations, reminder))
    return Told(target, snapshot, tuple(operations), reminder)


def sft_rows(one: Told, config: BuildConfig) -> Iterator[Row]:
    """The row of a target, and with what its silence would have said the second one (train rows only)."""
    wanted = config.would_say and one.reminder is None and _in_train(one.target)
    note = plan_note(one.snapshot) if config.plan_notes else None
    yield from _rows(one, one.snapshot, one.operations, note, would_say(one.snapshot) if wanted else None)


def lesson_rows(one: Told, num_entries: int, config: BuildConfig) -> Iterator[Row]:
    """The rows of a train target seen with a bank of `num_entries`; none where it is not known which entry bears on the plan.

    With plan notes those are the entries that the note names, and a reminder must cite one of them.
    """
    sentence = would_say(one.snapshot) if one.reminder is None else None
    bears = set(citations(one.reminder or sentence or ""))
    note = plan_note(one.snapshot) if config.plan_notes else None
    if note is not None:
        noted = {entry.id for _, entry in clauses_with_entries(one.snapshot) if entry is not None}
        if one.reminder is not None and not bears <= noted:
            return
        sentence, bears = sentence if bears <= noted else None, noted
    view = easier(one.snapshot, bears, num_entries)
    if view is not None:
        yield from _rows(one, view, (), note, sentence if config.would_say else None)


def _rows(
    one: Told, snapshot: Snapshot, operations: Sequence[Operation], note: Operation | None, would_have_said: str | None
) -> Iterator[Row]:
    target = one.target
    written = operations if note is None else (*(other for other in operations if other.op != note.op), note)
    answers = [(target.decision, one.reminder)] + ([] if would_have_said is None else [(WOULD_SAY, would_have_said)])
    for decision, reminder in answers:
        row = {
            "snapshot_id": target.snapshot["snapshot_id"],
            "split": target.snapshot["split"],
            "prompt_messages": list(render_messages(snapshot)),
            "completion": render_envelope(written, reminder),
            "decision": decision,
            "weight": target.weight,
        }
        yield {"row_id": content_id(row), **row}


def build(config: BuildConfig) -> list[Row]:
    """Run the stage; returns the rows written. Raises UserError when no label is usable."""
    if not config.labels:
        raise UserError("no labels given; add labels=[path, …]")
    for path in config.rollouts:
        if not path.is_file():
            raise UserError(f"rollouts: {path} does not exist; name a rollouts file, or none")
    check_writable(config.out.parent / "card.md")
    groups = group_labels(row for path in config.labels for row in read_labels(path))
    snapshots = list(_labelled(config.snapshots, groups))
    chosen = _chosen(snapshots, groups, config)
    targets = list(_targets(snapshots, chosen, config))
    in_train = Counter(target.decision for target in targets if target.snapshot["split"] == "train")
    if not in_train:
        raise UserError(_nothing_usable(config, groups, snapshots))
    kept = [target for split in config.splits for target in _of_split(targets, split, config)]
    operations = taught_operations(config.snapshots, {target.snapshot["snapshot_id"] for target in kept})
    names = _names(kept) if config.renamed else None
    all_told = [
        told(target, operations[target.snapshot["snapshot_id"]], names, config) for target in track(kept, "building", unit="rows")
    ]
    rows = [row for one in all_told for row in sft_rows(one, config)]
    card = card_text(
        snapshots_file=config.snapshots,
        snapshots=snapshots,
        groups=groups,
        chosen=chosen,
        rows=rows,
        decisions_before=in_train,
        weights=config.kinds,
        rollouts=config.rollouts,
        probes=config.probes,
    )
    remove_lessons(config.out)
    shown = {"plan_notes": NOTES_VERSION} if config.plan_notes else {}
    write_sft(config.out, rows, trajectory_steps=trajectory_steps(config.snapshots), facts=shown)
    write_text(config.out.parent / "card.md", card)
    for size in config.course:
        lesson = [row for one in all_told if _teaches_lesson(one.target) for row in lesson_rows(one, size, config)]
        write_lesson(config.out, size, lesson)
    return rows


def _in_train(target: Target) -> bool:
    return bool(target.snapshot["split"] == "train")


def _teaches_lesson(target: Target) -> bool:
    return _in_train(target) and target.labels.verdict != "unknown"


def _names(targets: Sequence[Target]) -> Names:
    """The names of the train snapshots; those of other splits stay unknown to training."""
    return names_of((target.snapshot["task_id"], to_policy_snapshot(target.snapshot)) for target in targets if _in_train(target))


def _chosen(snapshots: Sequence[Row], groups: dict[str, list[SnapshotLabels]], config: BuildConfig) -> dict[str, SnapshotLabels]:
    names = (row["snapshot_id"] for row in snapshots)
    return {name: labels for name in names if (labels := choose_labels(groups[name], config.kinds))}


def _labelled(path: Path, groups: dict[str, list[SnapshotLabels]]) -> Iterator[Row]:
    for row in read_snapshots(path):
        if row["snapshot_id"] in groups:
            if row["prompt_version"] != PROMPT_VERSION:
                raise UserError(
                    f"{path} was made for prompt version {row['prompt_version']}, this is {PROMPT_VERSION}; "
                    "run data.replay and data.label again"
                )
            yield row


def _targets(snapshots: Sequence[Row], chosen: dict[str, SnapshotLabels], config: BuildConfig) -> Iterator[Target]:
    for row in snapshots:
        labels = chosen.get(row["snapshot_id"])
        if labels is None or row["split"] not in config.splits:
            continue
        target = target_of(row, labels, config)
        if target is not None and prompt_chars(row) <= config.max_prompt_chars:
            yield target


def prompt_chars(row: Row) -> int:
    """Characters of system and user message of a snapshot's prompt."""
    return sum(len(message["content"]) for message in render_messages(to_policy_snapshot(row)))


def _of_split(targets: Sequence[Target], split: str, config: BuildConfig) -> list[Target]:
    """Only train is balanced and mixed: other splits keep the rate of need as it is, and only their best kind of label."""
    members = [target for target in targets if target.snapshot["split"] == split]
    if split != "train":
        best = next((kind for kind in config.kinds if any(one.labels.label_kind == kind for one in members)), None)
        return [one for one in members if one.labels.label_kind == best]
    if config.share_speak is None:
        return _cut(*_by_decision(members), config.max_train_rows)
    spread = balance if config.balance == "leave_out" else reweight
    return spread(members, config.share_speak, config.max_train_rows)


def _nothing_usable(config: BuildConfig, groups: dict[str, list[SnapshotLabels]], snapshots: Sequence[Row]) -> str:
    files = ", ".join(str(path) for path in config.labels)
    if not groups:
        return f"zero usable labels: {files} holds none; run data.label (or import labels) first"
    if not snapshots:
        return f"zero usable labels: {files} and {config.snapshots} share no snapshot; label this snapshots file"
    in_train = sum(row["split"] == "train" for row in snapshots)
    return (
        f"zero usable labels for the train split: {len(groups)} labelled snapshots, {in_train} of them in train, none with a "
        f"usable verdict of kinds {', '.join(config.kinds)}; label more train snapshots or list other kinds"
    )


def main() -> int:
    """Entry point of `python -m data.build`."""
    config = parse_stage(BuildConfig, __doc__, DEFAULT)
    rows = build(config)
    count = Counter(row["decision"] for row in rows)
    written = [config.out, *(lesson_file(config.out, size) for size in config.course), config.out.parent / "card.md"]
    chars = [sum(len(message["content"]) for message in row["prompt_messages"]) for row in rows]
    print(
        f"built {count[REMINDER] + count[SILENCE]} rows ({count[REMINDER]} reminders, {count[WOULD_SAY]} of the silent ones with what "
        f"they would have said), prompts of {sum(chars) / len(chars):.0f} characters in the mean, "
        f"{max(chars)} at most -> {', '.join(map(str, written))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
