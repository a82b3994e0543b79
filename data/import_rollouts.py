"""Turn anybody's agent trajectories into `pmem.rollout/1`: format detected by content, streamed, bad records skipped and listed.

    python -m data.import_rollouts sources=[runs/] out=rollouts.jsonl
    python -m data.import_rollouts sources=[claude.jsonl.gz] licence=MIT --strict
    python -m data.import_rollouts sources=[runs.json] format=tau-bench

A source that is a file must be importable; files inside a folder that are something else are listed and passed over.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from data.importers.base import SHAPE_ERRORS, Format
from data.importers.documents import BadDocument, CutOff, Document, open_path
from data.importers.reading import BadRecord, Record
from data.importers.registry import by_name, companion, detect
from data.progress import track
from pmem.config import parse_stage
from pmem.errors import UserError, exit_code
from pmem.rollout import Rollout, write_rollouts

DEFAULT = Path("configs/import.yaml")
MAX_REPORTED = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportConfig:
    """Settings of the import stage."""

    sources: tuple[Path, ...] = ()
    """Files and folders; compressed ones (.gz .bz2 .xz .zip .eval) are read as they are."""
    out: Path = Path("runs/imported.jsonl")
    """The rollouts file to write."""
    format: str | None = None
    """Name of the format when it should not be detected."""
    licence: str | None = None
    """Licence of everything imported, when the sources have one and `licences` does not name it."""
    licences: dict[str, str] = field(default_factory=dict)
    """Licence by folder or file name: the nearest part of a path that is listed counts."""
    strict: bool = False
    """Stop at the first bad record instead of skipping it."""
    allow_cut_off: bool = False
    """Import the whole records before the place where a file is cut off, rather than stopping."""


@dataclass(slots=True)
class Tally:
    """What became of the records of one format."""

    files: int = 0
    records: int = 0
    imported: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class Import:
    """One run of the stage: iterating it yields rollouts and fills `tallies` on the way."""

    def __init__(self, config: ImportConfig) -> None:
        self.config = config
        self.tallies: dict[str, Tally] = {}
        self._forced: Format | None = by_name(config.format) if config.format else None
        self._seen: set[int] = set()
        self._num_reported = 0

    def __iter__(self) -> Iterator[Rollout]:
        files = [(path, root.is_file()) for root in self.config.sources for path in _files(root)]
        for path, named in track(files, "importing", unit="files"):
            yield from self._file(path, named)

    def _file(self, path: Path, named: bool) -> Iterator[Rollout]:
        """The rollouts of one file. `named`: the person asked for this very file, so it must be importable."""
        try:
            for document in open_path(path):
                yield from self._document(document, named and document.member is None)
        except CutOff as error:
            sentence = f"{path}: {error}; write it again, or set allow_cut_off=true to import the whole records before it"
            if not self.config.allow_cut_off and (named or self.config.strict):
                raise UserError(sentence) from None
            self._skip("unreadable files", sentence, "cut off")
        except BadDocument as error:
            self._refuse(f"{path}: {error}; nothing of it can be imported", named, "not readable")

    def _document(self, document: Document, named: bool) -> Iterator[Rollout]:
        chosen = self._forced or detect(document)
        if chosen is None and document.peek.cut_off:
            raise CutOff("before its format could be told", document.member)
        if chosen is None:
            what = companion(document) or "no known trajectory format"
            self._refuse(f"{document.name}: {what}; name a format with format=, or leave the file out", named, what)
            return
        tally = self.tallies.setdefault(chosen.name, Tally())
        tally.files += 1
        for record in chosen.records(document):
            tally.records += 1
            yield from self._record(chosen, document, record)

    def _record(self, chosen: Format, document: Document, record: Record) -> Iterator[Rollout]:
        try:
            if record.error:
                raise BadRecord(record.error)
            rollouts = [self._finish(rollout) for rollout in chosen.convert(record.value, document)]
        except BadRecord as error:
            self._bad(chosen, document, record, str(error))
            return
        except SHAPE_ERRORS as error:
            self._bad(chosen, document, record, f"not shaped as {chosen.name} ({_told(error)})"[:200])
            return
        for rollout in rollouts:
            number = int(rollout.rollout_id, 16)
            if number in self._seen:
                self._skip(chosen.name, "", "the same run again")
                continue
            self._seen.add(number)
            self.tallies[chosen.name].imported += 1
            yield rollout

    def _finish(self, rollout: Rollout) -> Rollout:
        source = rollout.source.model_copy(update={"licence": self._licence(rollout.source.file or "")})
        return rollout.model_copy(update={"source": source}).with_id()

    def _licence(self, file: str) -> str | None:
        for part in reversed(Path(file.split("!")[0]).parts):
            if part in self.config.licences:
                return self.config.licences[part]
        return self.config.licence

    def _bad(self, chosen: Format, document: Document, record: Record, reason: str) -> None:
        sentence = f"{document.name} {record.where}: {reason}"
        if self.config.strict:
            raise UserError(f"{sentence}; mend the record, or leave strict out to skip it")
        self._skip(chosen.name, sentence, reason.split(" (")[0][:60])

    def _refuse(self, sentence: str, named: bool, reason: str) -> None:
        if named:
            raise UserError(sentence)
        self._skip("other files", "", reason)

    def _skip(self, name: str, sentence: str, reason: str) -> None:
        tally = self.tallies.setdefault(name, Tally())
        tally.skipped[reason] += 1
        if sentence:
            self._num_reported += 1
            if self._num_reported <= MAX_REPORTED:
                print(f"skipped: {sentence}", file=sys.stderr)
            elif self._num_reported == MAX_REPORTED + 1:
                print("skipped: … (further ones are counted in the table)", file=sys.stderr)


def _told(error: Exception) -> str:
    """One line of what does not fit."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"key {'.'.join(str(part) for part in first['loc'])!r}: {first['msg']}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def import_rollouts(config: ImportConfig) -> dict[str, Tally]:
    """Run the stage. Raises UserError when nothing could be imported."""
    if not config.sources:
        raise UserError("no sources given; add sources=[path, …]")
    run = Import(config)
    count = write_rollouts(config.out, _nonempty(run))
    print_table(run.tallies)
    print(f"imported {count} rollouts -> {config.out}")
    return run.tallies


def print_table(tallies: dict[str, Tally]) -> None:
    """Records, imported and skipped with reasons, by format."""
    table = Table("format", "files", "records", "imported", "skipped", "reasons")
    for name, tally in sorted(tallies.items()):
        reasons = ", ".join(f"{count} {reason}" for reason, count in tally.skipped.most_common())
        table.add_row(name, str(tally.files), str(tally.records), str(tally.imported), str(sum(tally.skipped.values())), reasons)
    Console(soft_wrap=False).print(table)


def _nonempty(run: Import) -> Iterator[Rollout]:
    """The rollouts, or a UserError before an empty file replaces anything."""
    empty = True
    for rollout in run:
        empty = False
        yield rollout
    if empty:
        sources = ", ".join(str(path) for path in run.config.sources)
        raise UserError(f"nothing could be imported from {sources}; check the reasons above, or name the format with format=")


def _files(root: Path) -> list[Path]:
    if root.is_dir():
        return sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [root]


def main() -> int:
    """Entry point of `python -m data.import_rollouts`."""
    argv = ["strict=true" if argument == "--strict" else argument for argument in sys.argv[1:]]
    import_rollouts(parse_stage(ImportConfig, __doc__, DEFAULT, argv))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
