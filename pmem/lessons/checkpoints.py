"""Publish a checkpoint: bytes first, then a pending publication, then record and acknowledgement in one transaction.

    published = publish(store, folder, ["src"], title="…", base=("les-…",), repository="/src/app", session="s1")
    published.status      # complete | partial: some paths, or the record, are missing and said so

A crash after the pending publication is finished by `recover` at the next start; one before it leaves only unnamed bytes.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmem.errors import UserError
from pmem.lessons.agents_file import NAME, is_assembled
from pmem.lessons.blobs import KeptFile, Manifest, missing_blobs, put_file, put_manifest, read_manifest, safe_path, sweep
from pmem.lessons.changes import change
from pmem.lessons.curation import Wording, cleaned
from pmem.lessons.doors import made
from pmem.lessons.records import CODE, LOCATORS, Draft, Provenance, Record
from pmem.lessons.store import LessonStore, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publication came to. `partial`: `problems` says which paths or which half is missing."""

    status: Literal["complete", "partial"]
    manifest: str
    record: Record | None
    num_files: int
    problems: tuple[str, ...]


def publish(
    store: LessonStore, folder: Path, paths: Sequence[str], *, title: str, body: str = "", base: Sequence[str] = (),
    repository: str | None, session: str | None = None,
) -> Published:  # fmt: skip
    """Keep files of `folder` as an immutable checkpoint. Raises UserError when nothing could be kept or a base is missing."""
    clean, redactions = cleaned(Wording(title=title, body=body))
    _check_bases(store, base)
    files: list[KeptFile] = []
    problems: list[str] = []
    for path in paths:
        _keep_path(store.folder, Path(folder), path, files, problems)
    if not files:
        raise UserError(f"nothing of {folder} could be kept: {'; '.join(problems) or 'no files'}; check the paths")
    unique = {file.path: file for file in files}
    manifest = Manifest(files=tuple(unique[name] for name in sorted(unique)), base=tuple(base))
    put_manifest(store.folder, manifest)
    draft = Draft(
        kind="checkpoint", title=clean.title, body=clean.body, scope="repository" if repository else "global", repository=repository,
        relevance_required=True, payload=_payload(manifest, session, redactions),
    )  # fmt: skip
    record: Record | None = None
    try:
        _announce(store, manifest, draft)
        record = finish(store, manifest.id)
    except UserError as error:
        problems.append(f"bytes are kept as manifest {manifest.id}, its record is not: {error}")
    status: Literal["complete", "partial"] = "partial" if problems else "complete"
    return Published(status=status, manifest=manifest.id, record=record, num_files=len(manifest.files), problems=tuple(problems))


def finish(store: LessonStore, manifest_id: str) -> Record:
    """Write the record of a pending publication and acknowledge it. Doing it again changes nothing."""
    with change(store, CODE, "publish") as edit:
        row = edit.connection.execute("SELECT * FROM publications WHERE manifest = ?", (manifest_id,)).fetchone()
        if row is None:
            raise UserError(f"no publication of manifest {manifest_id}; publish it again")
        draft = Draft.model_validate_json(row["draft"])
        known = edit.connection.execute("SELECT * FROM nodes WHERE key = ? ORDER BY number LIMIT 1", (draft.key(),)).fetchone()
        if known is not None:
            record = record_of(known)
        else:
            session = draft.payload.get("session")
            provenance = Provenance(
                door="publication", session=session, evidence=(f"manifest:{manifest_id}",),
                redactions=draft.payload.get("redactions", 0),
            )  # fmt: skip
            record = edit.put(None, made(edit, draft, provenance))
            for base in draft.payload["base"]:
                edit.relate((record.id, "base", base))
        edit.connection.execute(
            "UPDATE publications SET state = 'complete', node = ? WHERE manifest = ?", (record.id, manifest_id)
        )
        return record


def recover(store: LessonStore) -> list[str]:
    """Finish what a crash left pending; what cannot be finished is marked with the reason. Gives the manifests finished."""
    finished = []
    sweep(store.folder)
    for row in store.rows("SELECT manifest FROM publications WHERE state = 'pending' ORDER BY at"):
        manifest = read_manifest(store.folder, row["manifest"])
        missing = missing_blobs(store.folder, manifest) if manifest else ["the manifest itself"]
        if missing:
            with store.transaction() as connection:
                problem = f"missing: {', '.join(missing[:5])}"
                connection.execute(
                    "UPDATE publications SET state = 'failed', problem = ? WHERE manifest = ?", (problem, row["manifest"])
                )
            continue
        finish(store, row["manifest"])
        finished.append(row["manifest"])
    return finished


def _announce(store: LessonStore, manifest: Manifest, draft: Draft) -> None:
    with store.transaction() as connection:
        connection.execute(
            "INSERT INTO publications (manifest, at, state, draft) VALUES (?, ?, 'pending', ?) "
            "ON CONFLICT (manifest) DO UPDATE SET state = 'pending', draft = excluded.draft, at = excluded.at",
            (manifest.id, store.clock(), draft.model_dump_json()),
        )


def _payload(manifest: Manifest, session: str | None, redactions: int) -> dict[str, object]:
    num_bytes = sum(file.size for file in manifest.files)
    return {
        "manifest": manifest.id, "num_files": len(manifest.files), "num_bytes": num_bytes, "base": list(manifest.base),
        "session": session, **({"redactions": redactions} if redactions else {}),
    }  # fmt: skip


def _check_bases(store: LessonStore, base: Sequence[str]) -> None:
    found = store.by_ids(base)
    for name in base:
        if name not in found or found[name].kind not in LOCATORS:
            raise UserError(f"base {name} is no directory or checkpoint of the store; publish it first")


def _keep_path(store_folder: Path, folder: Path, path: str, files: list[KeptFile], problems: list[str]) -> None:
    """Keep a file, or all files under a folder. What cannot be kept becomes a problem, and the others go on."""
    place = folder / safe_path(path)
    if not place.exists():
        problems.append(f"{path}: not there")
        return
    if not place.resolve().is_relative_to(folder.resolve()):
        problems.append(f"{path}: leads out of {folder}")
        return
    for file in _files(place):
        name = file.relative_to(folder).as_posix()
        try:
            if name != (readable := name.encode(errors="replace").decode()):
                problems.append(f"{readable}: a name that is no UTF-8")
            elif file.is_symlink() or not file.is_file():
                problems.append(f"{name}: a link or no plain file")
            elif file.name != NAME or not is_assembled(file):
                files.append(put_file(store_folder, file, name))
        except UserError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir() or place.is_symlink():
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name != ".git")
        yield from (Path(folder) / name for name in sorted(names))
