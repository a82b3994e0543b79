"""Importers: every format from a small sample in its shape, through compression, damage and back through ATIF."""

import bz2
import gzip
import json
import lzma
import sys
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from data.export_atif import to_atif
from data.import_rollouts import Import, ImportConfig, import_rollouts
from data.importers.documents import Document
from data.importers.effects import effects
from data.importers.events import EventLog
from data.importers.registry import FORMATS, by_name, detect
from pmem.errors import UserError
from pmem.rollout import Event, Rollout, read_rollouts
from tests.data.importer_samples import CHAT, SAMPLES, TAU_RUN, Sample

SHARED = Path(__file__).parents[3] / "shared" / "data"
IDS = [f"{sample.name}-{sample.file}" for sample in SAMPLES]


def imported(*paths: Path, **settings: object) -> list[Rollout]:
    return list(Import(ImportConfig(sources=paths, **settings)))  # type: ignore[arg-type]


def words(events: list[Event]) -> list[str]:
    names = {"assistant": "say", "tool_call": "call", "turn_end": "end"}
    return [
        ("error" if event.is_error else "ok") if event.kind == "tool_result" else names.get(event.kind, event.kind)
        for event in events
    ]


def written(sample: Sample, folder: Path) -> Path:
    path = folder / sample.file
    path.write_bytes(sample.data)
    return path


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_sample_of_the_format_comes_in_whole(sample: Sample, tmp_path: Path) -> None:
    path = written(sample, tmp_path)
    found = detect(Document(path))
    assert found is not None and found.name == sample.name
    (rollout,) = imported(path, licence="MIT")
    assert words(rollout.events) == sample.expected
    assert [event.tool for event in rollout.events if event.kind == "tool_call"] == sample.tools
    assert rollout.outcome.success is sample.success
    assert rollout.family == (sample.family or rollout.family) and rollout.task_id == (sample.task_id or rollout.task_id)
    assert rollout.source.licence == "MIT" and rollout.source.file == str(path)
    assert [event.i for event in rollout.events] == list(range(len(rollout.events)))
    assert Rollout.model_validate(rollout.model_dump()) == rollout


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_the_way_through_atif_and_back_changes_nothing(sample: Sample, tmp_path: Path) -> None:
    (rollout,) = imported(written(sample, tmp_path))
    out = tmp_path / "out.jsonl"
    out.write_text(json.dumps(to_atif(rollout)) + "\n")
    (back,) = imported(out)
    assert back.events == rollout.events
    assert back.rollout_id == rollout.rollout_id and back.outcome == rollout.outcome


def test_every_format_has_a_sample() -> None:
    assert {one.name for one in FORMATS} - {sample.name for sample in SAMPLES} == {"pmem-rollout"}


def test_the_name_of_the_file_does_not_matter_and_the_format_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "holiday.png"
    path.write_bytes(SAMPLES[0].data)
    assert len(imported(path)) == 1
    assert len(imported(path, format="tau-bench")) == 1
    with pytest.raises(UserError, match="unknown format 'tau'"):
        by_name("tau")


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_files_are_read_as_they_are(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(PACKERS[suffix](SAMPLES[0].data))
    assert words(imported(path)[0].events) == SAMPLES[0].expected


def test_a_zip_is_read_member_by_member(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("runs/a.json", SAMPLES[0].data)
        archive.writestr("runs/b.jsonl", json.dumps({"messages": CHAT}))
        archive.writestr("readme.txt", "hello")
    found = imported(path)
    assert [rollout.source.file for rollout in found] == [f"{path}!runs/a.json", f"{path}!runs/b.jsonl"]


def test_one_bad_record_is_reported_with_its_place_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.jsonl"
    good = json.dumps({"messages": CHAT, "id": "{}"})
    deep = '{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}"
    path.write_text(
        "\n".join([good.replace("{}", "1"), "{broken", json.dumps({"messages": 5}), deep, good.replace("{}", "2")]) + "\n"
    )
    tallies = import_rollouts(ImportConfig(sources=(path,), out=tmp_path / "out.jsonl"))
    shown = capsys.readouterr()
    assert f"{path} line 2: not valid JSON" in shown.err and f"{path} line 3: key 'messages'" in shown.err
    assert tallies["openai-chat"].imported == 2 and sum(tallies["openai-chat"].skipped.values()) == 3
    assert "openai-chat" in shown.out and "imported 2 rollouts" in shown.out
    assert len(list(read_rollouts(tmp_path / "out.jsonl"))) == 2


def test_strict_stops_at_the_first_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([TAU_RUN, {**TAU_RUN, "traj": None}]))
    assert len(imported(path)) == 1
    with pytest.raises(UserError, match=r"runs\.json record 2: key 'traj' must be list"):
        imported(path, strict=True)


@pytest.mark.parametrize("name", ["array.json", "object.json", "lines.jsonl", "packed.gz", "log.eval"])
def test_a_file_that_is_cut_off_is_one_sentence(name: str, tmp_path: Path) -> None:
    run, chat = json.dumps(TAU_RUN), json.dumps({"messages": CHAT})
    whole = {
        "array.json": f"[{run}, {run}]".encode(), "object.json": json.dumps(TAU_RUN, indent=1).encode(),
        "lines.jsonl": f"{chat}\n{chat}\n".encode(), "packed.gz": gzip.compress(f"[{run}]".encode()),
        "log.eval": next(sample.data for sample in SAMPLES if sample.file == "l.eval"),
    }[name]  # fmt: skip
    path = tmp_path / name
    path.write_bytes(whole[: len(whole) - 40])
    with pytest.raises(UserError, match=r"cut off in the middle of a record.*allow_cut_off=true"):
        imported(path)


def test_the_whole_records_before_the_cut_can_be_had(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps({"messages": CHAT, "id": "1"}) + "\n" + json.dumps({"messages": CHAT})[:-9])
    assert len(imported(path, allow_cut_off=True)) == 1


def test_unknown_files_stop_when_named_and_are_passed_over_in_folders(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# hello")
    (tmp_path / "other.json").write_text('{"a": 1}')
    written(SAMPLES[0], tmp_path)
    assert len(imported(tmp_path)) == 1
    for name in ("notes.md", "other.json"):
        with pytest.raises(UserError, match="no known trajectory format"):
            imported(tmp_path / name)
    with pytest.raises(UserError, match="does not exist"):
        imported(tmp_path / "absent.json")


def test_nothing_importable_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{}")
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with pytest.raises(UserError, match="nothing could be imported"):
        import_rollouts(ImportConfig(sources=(tmp_path / "in",), out=out))
    assert out.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.jsonl"]


def test_the_same_run_twice_is_imported_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(SAMPLES[0].data)
    assert len(imported(tmp_path)) == 1


def test_the_nearest_named_folder_gives_the_licence(tmp_path: Path) -> None:
    (tmp_path / "tau").mkdir()
    written(SAMPLES[0], tmp_path / "tau")
    (rollout,) = imported(tmp_path, licences={"tau": "MIT", tmp_path.name: "CC0"}, licence="other")
    assert rollout.source.licence == "MIT"


def test_odd_text_survives_or_is_made_harmless(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    odd = [
        {"role": "user", "content": "\ud83d half a pair, \x00 and \u2028."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": None, "function": {"name": "f", "arguments": "not json"}}]},
        {"role": "tool", "content": None},
    ]
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": odd}).encode() + b"\r\n")
    (rollout,) = imported(path)
    assert rollout.events[0].text == "? half a pair, \x00 and \u2028."
    assert rollout.events[1].args == {"input": "not json"}
    assert rollout.events[2].call_id == rollout.events[1].call_id


def test_parallel_calls_are_one_batch_and_answers_find_their_calls() -> None:
    log = EventLog()
    first = log.call("a", {}, call_id="x", batch_id="b")
    second = log.call("a", {}, call_id="x", batch_id="b")
    assert (first, second) == ("x", "x-1") and log.unanswered() == ["x", "x-1"]
    log.result("stranger", "text", is_error=False, tool="z")
    assert [event.tool for event in log.events[-2:]] == ["z", "z"]


@pytest.mark.parametrize(("tool", "args", "text", "is_error", "expected"), [
    ("cancel_reservation", {}, "{}", False, (True, False, None)),
    ("get_order_details", {}, "{}", False, (False, False, None)),
    ("bash", {"command": "rm -r x"}, "", False, (True, False, None)),
    ("bash", {"command": "cat x"}, "cat: x: No such file or directory", True, (False, True, "missing_file")),
    ("Edit", {"file_path": "a"}, "String to replace not found", True, (None, False, "not_found")),
    ("bash", {"command": "pytest"}, "3 failed, 2 passed", True, (False, False, "failed_test")),
])  # fmt: skip
def test_effects_of_a_call(tool: str, args: dict[str, str], text: str, is_error: bool, expected: tuple[object, ...]) -> None:
    found = effects(tool, args, text, is_error)
    assert (found.changes_workspace, found.is_probe, found.error_kind) == expected


def test_an_outcome_beside_the_run_is_found(tmp_path: Path) -> None:
    runs = tmp_path / "trajs"
    runs.mkdir()
    swe = next(sample for sample in SAMPLES if sample.name == "swe-agent")
    written(swe, runs)
    assert imported(runs)[0].outcome.success is None
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.json").write_text(json.dumps({"resolved": ["demo__demo-1"]}))
    fresh = tmp_path / "again"
    fresh.mkdir()
    written(swe, fresh)
    assert imported(fresh)[0].outcome.success is True


def test_memory_stays_flat_over_many_records(tmp_path: Path) -> None:
    """Five thousand steps: what is held at once does not grow with the file."""
    path = tmp_path / "big.jsonl"
    with path.open("w") as stream:
        for number in range(500):
            messages = [CHAT[1], *(message for _ in range(10) for message in CHAT[2:4])]
            stream.write(json.dumps({"messages": messages, "id": str(number)}) + "\n")
    tracemalloc.start()
    steps = sum(event.kind == "tool_result" for rollout in Import(ImportConfig(sources=(path,))) for event in rollout.events)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps == 5_000
    assert peak < 8e6


@pytest.mark.skipif(not SHARED.exists(), reason="the collections are not here")
def test_the_collections_come_in_with_the_figures_known_of_them() -> None:
    rollouts = imported(SHARED)
    runs = Counter(rollout.family for rollout in rollouts)
    passed = Counter(rollout.family for rollout in rollouts if rollout.outcome.success)
    errors = Counter(rollout.family for rollout in rollouts for event in rollout.events if event.is_error)
    assert runs["tau-bench-airline"] == 201 and passed["tau-bench-airline"] == 84
    assert runs["tau-bench-retail"] == 100 and passed["tau-bench-retail"] == 73 and errors["tau-bench-retail"] == 34
    assert runs["tau2-airline"] == 75 and runs["tau2-telecom"] == 80 and passed["tau2-telecom"] == 38
    assert runs["knowagent-alfworld"] == 510 and passed["knowagent-alfworld"] == 134
    assert runs["mint-alfworld"] == 268 and runs["intercode-ctf"] + runs["intercode-bash"] == 206
    assert runs["mini-swe-agent"] == 15 and runs["swe-agent"] == 18 and runs["openhands"] == 18
    assert sys.getsizeof(rollouts) > 0 and len({rollout.rollout_id for rollout in rollouts}) == len(rollouts) > 1_600
