"""Break what the verdict rests on, one thing at a time, in a copy: does a test catch it?

    python -m tests.eval.mutations              # minutes; exit 1 when a mutation survives

Each mutation is one exchanged piece of source that must stand there exactly once, and the tests that ought to notice.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("pmem", "data", "serve", "train", "eval", "tests", "configs")


@dataclass(frozen=True)
class Mutation:
    """What is broken, where, how, and who should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "certify rows in fit", "eval/sweep.py",
        '{name: read_truths(files.snapshots, files.labels, [name]) for name in ("fit", "certify", "dev")}',
        '{name: read_truths(files.snapshots, files.labels, [name] if name != "fit" else ["fit", "certify"]) '
        'for name in ("fit", "certify", "dev")}',
        ("tests/eval/test_sweep.py",),
    ),
    Mutation(
        "no check that the splits are apart", "eval/choose.py",
        "    check_disjoint(splits)\n    calibrator", "    calibrator",
        ("tests/eval/test_sweep.py",),
    ),
    Mutation(
        "turns for episodes", "eval/certify.py",
        "return np.array(picked, dtype=np.int64)", "return np.arange(len(episodes), dtype=np.int64)",
        ("tests/eval/test_certify.py",),
    ),
    Mutation(
        "cost sign of the threshold", "eval/choose.py",
        "return self.cost_false / (self.cost_false + self.cost_missed)",
        "return self.cost_missed / (self.cost_false + self.cost_missed)",
        ("tests/eval/test_costs.py",),
    ),
    Mutation(
        "cost sign of the net benefit", "eval/metrics.py",
        "gain = np.where(view.need, _good(view), -odds * view.spoke)", "gain = np.where(view.need, _good(view), odds * view.spoke)",
        ("tests/eval/test_costs.py",),
    ),
    Mutation(
        "label mass of saved decisions", "eval/decisions.py",
        "if decision.spoke and decision.label_mass is not None and decision.label_mass < LABEL_MASS_FLOOR:", "if False:",
        ("tests/eval/test_sweep.py",),
    ),
    Mutation(
        "label mass of a step", "pmem/step.py",
        "if read.label_mass < min_label_mass:", "if False:",
        ("tests/pmem/test_policy.py",),
    ),
    Mutation(
        "model hash of a threshold", "pmem/threshold.py",
        "if threshold.model_hash != model_hash and not verify_later:", "if False:",
        ("tests/eval/test_promote.py", "tests/pmem/test_policy.py"),
    ),
)  # fmt: skip


def caught(mutation: Mutation, folder: Path) -> bool:
    """Whether the tests fail on the mutated copy under `folder`."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    path = folder / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.file} holds the text {text.count(mutation.old)} times, not once")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    tests = [test for test in mutation.tests if (folder / test).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(
        f"{'caught' if done.returncode == 1 else 'SURVIVED':9s} {mutation.name}: {failed[0] if failed else done.stdout[-200:]}",
        flush=True,
    )
    return done.returncode == 1


def main() -> int:
    survived = 0
    for mutation in MUTATIONS:
        with tempfile.TemporaryDirectory() as folder:
            survived += not caught(mutation, Path(folder))
    print(f"{len(MUTATIONS) - survived} of {len(MUTATIONS)} mutations caught")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
