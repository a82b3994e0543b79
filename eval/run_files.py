"""Names of the files of one run, so that no stage of evaluation spells a path twice."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.decisions import ARMS
from pmem.errors import UserError

STAGE_FILES = ("rollouts.jsonl", "imported.jsonl", "base.path", "card.md", "sft.parquet", "pivots.parquet")
"""What other stages keep in the folder of a run, besides the files that evaluation names itself."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The folder of a run, such as runs/quickstart."""

    run: Path

    @property
    def snapshots(self) -> Path:
        return self.run / "snapshots.parquet"

    @property
    def labels(self) -> Path:
        return self.run / "labels.parquet"

    @property
    def threshold(self) -> Path:
        return self.run / "threshold.json"

    @property
    def sweep(self) -> Path:
        return self.run / "sweep.json"

    @property
    def ab(self) -> Path:
        return self.run / "ab.json"

    @property
    def verdict(self) -> Path:
        return self.run / "verdict.json"

    @property
    def figures(self) -> Path:
        return self.run / "figures.json"

    @property
    def report(self) -> Path:
        return self.run / "report.html"

    def decisions(self, arm: str) -> Path:
        """Where `eval.score` puts the decisions of an arm."""
        return self.run / "decisions" / f"{arm}.parquet"

    def variant(self, arm: str, shown: dict[str, int]) -> Path:
        """Where the decisions of an arm go that was shown otherwise than usual; the usual place when it was not."""
        suffix = "".join(f".{name}-{value}" for name, value in sorted(shown.items()))
        return self.run / "decisions" / f"{arm}{suffix}.parquet"

    def variants(self, arm: str) -> list[Path]:
        """The decisions of an arm under other windows and bank budgets, for the sweep."""
        return sorted((self.run / "decisions").glob(f"{arm}.*-*.parquet"))

    def arm_threshold(self, arm: str) -> Path:
        """Where `eval.sweep` puts the threshold of an arm that is not the candidate."""
        return self.run / "thresholds" / f"{arm}.json"

    def check_out(self, out: Path, own: Path) -> None:
        """Raise UserError when `out` is a file of this run that is not the caller's `own`."""
        others = (self.snapshots, self.labels, self.threshold, self.sweep, self.ab, self.verdict, self.figures, self.report)
        inputs = (self.run / name for name in STAGE_FILES)
        for path in (*others, *inputs, *self.scored_arms().values()):
            if path != own and path.exists() and out.exists() and out.samefile(path):
                raise UserError(f"out is {out}, which is {path.name} of this run; name another file to write")

    def scored_arms(self) -> dict[str, Path]:
        """Arms that have a decisions file, in report order."""
        return {arm: self.decisions(arm) for arm in ARMS if self.decisions(arm).exists()}


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file of a run, None when it is not there. Raises UserError when it holds anything else than one object."""
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} line {error.lineno}: not valid JSON; delete it and run its stage again") from None
    except (UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; delete it and run its stage again")
    return value
