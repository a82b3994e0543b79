"""`card.md`, written at every build: counts, base rates, families, label kinds, noise, leakage checks, licences.

A person must be able to judge from this page what a policy trained on these rows can have learned. Same rows, same page.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from data import leakage
from data.labels import LABEL_KINDS, VERDICTS, SnapshotLabels
from data.rows import REMINDER, WOULD_SAY
from data.splits import SPLITS
from data.tables import Row, metadata
from pmem.prompt import PROMPT_VERSION
from pmem.rollout import read_rollouts

Chosen = dict[str, SnapshotLabels]
"""The labels a snapshot is counted by, by snapshot id."""


def card_text(
    *,
    snapshots_file: Path,
    snapshots: Sequence[Row],
    groups: dict[str, list[SnapshotLabels]],
    chosen: Chosen,
    rows: Sequence[Row],
    decisions_before: Counter[str],
    weights: dict[str, float],
    rollouts: Sequence[Path],
    probes: bool,
) -> str:
    """The page. Raises UserError when a file of `rollouts` cannot be read."""
    sections = [
        "# Data card",
        f"Prompt version `{PROMPT_VERSION}`. A base rate is need / (need + not needed); an episode is quiet when silence is "
        "right somewhere in it.",
        "## Splits",
        _table(("split", *COUNT_HEAD), _counts(snapshots, chosen, "split", SPLITS)),
        "## Families",
        _table(("family", *COUNT_HEAD), _counts(snapshots, chosen, "family", _values(snapshots, "family"))),
        "## Labels",
        _labels(groups, weights),
        "## Noise",
        _noise(snapshots_file, chosen),
        "## SFT rows",
        _sft(rows, decisions_before),
        "## Leakage checks",
        _leakage(snapshots, chosen, rows, probes),
        "## Licences",
        _licences(rollouts),
    ]
    return "\n\n".join(sections) + "\n"


COUNT_HEAD = ("label", "tasks", "episodes", "labelled", "need", "not needed", "unknown", "base rate", "quiet episodes", "mean SE")


def _counts(snapshots: Sequence[Row], chosen: Chosen, key: str, values: Iterable[str]) -> list[tuple[str, ...]]:
    """One line a value of `key` and label kind; an episode is quiet when silence is right in it (a unit of the certificate)."""
    lines: list[tuple[str, ...]] = []
    for value in values:
        for kind in LABEL_KINDS:
            members = [row for row in snapshots if row[key] == value and _kind(chosen, row) == kind]
            if members:
                lines.append((value, kind, *_count(members, chosen)))
    return lines


def _count(members: Sequence[Row], chosen: Chosen) -> tuple[str, ...]:
    verdicts = Counter(chosen[row["snapshot_id"]].verdict for row in members)
    quiet = {row["rollout_id"] for row in members if chosen[row["snapshot_id"]].verdict == "not_needed"}
    known = verdicts["need"] + verdicts["not_needed"]
    numbers = (
        len({row["task_id"] for row in members}),
        len({row["rollout_id"] for row in members}),
        len(members),
        *(verdicts[name] for name in VERDICTS),
    )
    rate = f"{verdicts['need'] / known:.3f}" if known else "-"
    return (*map(str, numbers), rate, str(len(quiet)), _mean(errors_of(chosen[row["snapshot_id"]] for row in members)))


def _kind(chosen: Chosen, row: Row) -> str | None:
    labels = chosen.get(row["snapshot_id"])
    return labels.label_kind if labels else None


def errors_of(labels: Iterable[SnapshotLabels]) -> list[float]:
    """Standard errors of the paired differences."""
    return [row["paired_std_error"] for group in labels for row in group.candidates if row["paired_std_error"] is not None]


def _labels(groups: dict[str, list[SnapshotLabels]], weights: dict[str, float]) -> str:
    kinds: Counter[str] = Counter()
    voided: Counter[str] = Counter()
    candidates: Counter[str] = Counter()
    for group in (group for members in groups.values() for group in members):
        kinds[group.label_kind] += 1
        voided[group.label_kind] += group.voided
        candidates[group.label_kind] += len(group.candidates)
    lines = [
        (kind, str(count), f"{candidates[kind] / count:.2f}", str(voided[kind]), f"{weights.get(kind, 0.0):g}")
        for kind, count in sorted(kinds.items())
    ]
    table = _table(("kind", "snapshots", "candidates each", "voided", "weight in SFT"), lines)
    return f"{table}\n\nOnly `counterfactual` labels are measured; the others are opinions and support no claim about control."


def _noise(snapshots_file: Path, chosen: Chosen) -> str:
    facts = metadata(snapshots_file)
    measured = [labels for labels in chosen.values() if labels.label_kind == "counterfactual"]
    pairs = sorted({row["num_branches"] for labels in measured for row in labels.candidates if row["num_branches"]})
    unknown = sum(labels.verdict == "unknown" for labels in measured)
    share = f"{unknown / len(measured):.3f}" if measured else "-"
    truths = [labels for labels in measured if labels.silence and labels.silence["need_true"] is not None]
    return "\n".join(
        [
            f"* bank writer in replay: {facts.get('writer', 'not stated')}",
            f"* near-duplicates between splits left out: {facts.get('near_duplicates', 'not stated')}",
            f"* branch pairs a candidate: {', '.join(map(str, pairs)) or '-'}; mean standard error of a difference: "
            f"{_mean(errors_of(measured))}; share unknown: {share}",
            f"* measured need where the structural truth says need: {_agreement(truths)}",
        ]
    )


def _agreement(truths: Sequence[SnapshotLabels]) -> str:
    """How the measured verdict stands beside `need_true`, which only environments know."""
    table = Counter((bool(labels.silence and labels.silence["need_true"]), labels.verdict) for labels in truths)
    parts = []
    for truth, name in ((True, "needed in truth"), (False, "not needed in truth")):
        total = sum(count for (value, _), count in table.items() if value is truth)
        if total:
            shown = ", ".join(f"{verdict} {table[truth, verdict] / total:.2f}" for verdict in ("need", "not_needed", "unknown"))
            parts.append(f"{name} (n = {total}): {shown}")
    return "; ".join(parts) or "not known for these labels"


def _sft(rows: Sequence[Row], before: Counter[str]) -> str:
    lines = []
    for split in sorted({row["split"] for row in rows}):
        members = [row for row in rows if row["split"] == split and row["decision"] != WOULD_SAY]
        would_say = sum(row["split"] == split and row["decision"] == WOULD_SAY for row in rows)
        speaks = sum(row["decision"] == REMINDER for row in members)
        prompts = [sum(len(message["content"]) for message in row["prompt_messages"]) for row in members]
        lines.append(
            (
                split,
                str(len(members)),
                str(speaks),
                f"{speaks / len(members):.3f}",
                str(would_say),
                f"{sum(r['weight'] for r in members):.1f}",
                f"{fmean(prompts):.0f}",
                str(max(prompts)),
                f"{fmean(len(row['completion']) for row in members):.0f}",
            )
        )
    head = ("split", "rows", "reminders", "share", "would say", "weight", "mean prompt chars", "longest", "mean target chars")
    total = sum(before.values())
    share = f"{before[REMINDER] / total:.3f} of {total} train rows were reminders before balancing" if total else ""
    return f"{_table(head, lines)}\n\n{share}"


def _leakage(snapshots: Sequence[Row], chosen: Chosen, rows: Sequence[Row], wanted: bool) -> str:
    straddling = _straddling_tasks(snapshots)
    said = f"* tasks that stand in two splits: {len(straddling)}{' (' + ', '.join(straddling[:5]) + ')' if straddling else ''}"
    if not wanted:
        return f"{said}\n* bag-of-words probes: switched off"
    measured = {name: labels.verdict for name, labels in chosen.items() if labels.label_kind == "counterfactual"}
    verdicts = measured or {name: labels.verdict for name, labels in chosen.items()}
    try:
        probes = leakage.probe_all(snapshots, verdicts, taught={row["snapshot_id"] for row in rows if row["split"] == "train"})
    except ImportError:
        return f"{said}\n* bag-of-words probes: not run, scikit-learn is not installed (it comes with the extra `eval`)"
    lines = [
        (
            probe.view,
            probe.split,
            "too few" if probe.auroc is None else f"{probe.auroc:.3f}",
            str(probe.num_need),
            str(probe.num_not_needed),
        )
        for probe in probes
    ]
    judged = leakage.breaches(probes) or ["the probes without bank and of the last step stay inside their bounds"]
    table = _table(("view", "split", "AUROC", "need", "not needed"), lines)
    return "\n".join([said, *(f"* {sentence}" for sentence in judged), "", table])


def _straddling_tasks(snapshots: Sequence[Row]) -> list[str]:
    splits: dict[str, set[str]] = {}
    for row in snapshots:
        splits.setdefault(row["task_id"], set()).add(row["split"])
    return sorted(task for task, names in splits.items() if len(names) > 1)


def _licences(rollouts: Sequence[Path]) -> str:
    if not rollouts:
        return "Not stated: the build was not given the rollout files (`rollouts=[…]`)."
    sources = Counter(
        (rollout.source.name, rollout.source.licence or "not stated") for path in rollouts for rollout in read_rollouts(path)
    )
    return _table(
        ("source", "licence", "rollouts"), [(name, licence, str(count)) for (name, licence), count in sorted(sources.items())]
    )


def _values(rows: Sequence[Row], key: str) -> list[str]:
    return sorted({row[key] for row in rows})


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" if values else "-"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in body)
