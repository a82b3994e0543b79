"""Stage settings: whatever stands in a YAML file or behind `key=value` is read, or refused in one sentence that names it."""

import errno
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pmem.atomic import replacing
from pmem.config import bounded, load_config, parse_stage
from pmem.errors import UserError, exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    seed: int = 17
    out: Path = Path("out.parquet")
    names: tuple[str, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)


def test_overrides_lie_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stage.yaml"
    path.write_text("seed: 3\nshares: {a: 0.5}\n")
    found = load_config(Stage, path, ["names=[x,y]", "shares.b=1"])
    assert found == Stage(seed=3, names=("x", "y"), shares={"a": 0.5, "b": 1.0})


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed=abc", "key 'seed'.*'abc'"),
        ("names=x", r"key 'names': write a list, such as names=\[a,b\]"),
        ("names=[x", r"override 'names=\[x'.*close its brackets"),
        ("seed='", "override .*close its brackets"),
        ("seed=2024-99-99", "override 'seed=2024-99-99'"),
        ("names=" + "[" * 5_000, "override"),
        ("sede=3", "unknown key 'sede'"),
        ("seed.of=3", "'seed', which is not a mapping"),
        ("seed", "not of the form key=value"),
    ],
)
def test_a_bad_override_is_one_sentence(override: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "stage.yaml"
    path.write_text("seed: 3\n")
    with pytest.raises(UserError, match=says) as caught:
        load_config(Stage, path, [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"seed: 1\nname: x\nseed: 2\n", "line 3: key 'seed' stands twice"),
        (b"[1,2", "not valid YAML"),
        (b"\xff\xfe", "not valid YAML"),
        (b"seed: 2024-99-99", "not valid YAML"),
        (b"- a", "mapping"),
    ],
)
def test_a_bad_file_is_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "stage.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"stage.yaml: .*{says}") as caught:
        load_config(Stage, path, [])
    assert "\n" not in str(caught.value)


def test_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="must not replace"), replacing(pipe):
        pass
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounded:
    share: float | None = 0.5
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounded(self, 0, 1, "share")
        bounded(self, 1, math.inf, "counts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Free:
    rate: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("kind", "override", "says"),
    [
        (Bounded, "share=1.5", "share is 1.5; it must be between 0 and 1"),
        (Bounded, "share=nan", "share is nan; it must be between 0 and 1"),
        (Bounded, "counts={a: 0}", "it must be at least 1"),
        (Free, "rate=.nan", "key 'rate': nan is not finite"),
        (Free, "shares={a: .inf}", "key 'shares'.*is not finite"),
    ],
)
def test_a_number_out_of_its_bounds_is_one_sentence(kind: type, override: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_config(kind, None, [override])
    assert load_config(Bounded, None, ["share=null", "counts={a: 1}"]).counts == {"a": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Needy:
    out: Path


def test_a_key_that_is_needed_and_not_given_is_asked_for() -> None:
    with pytest.raises(UserError, match="command line: out is not given; add out=…"):
        load_config(Needy, None, [])


def test_a_full_disk_and_a_folder_in_the_way_name_the_file_that_was_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        with replacing(tmp_path / "labels.parquet"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def folder() -> None:
        with replacing(tmp_path):
            raise AssertionError("nothing is written beside a folder")

    assert exit_code(full) == 2 and f"({tmp_path / 'labels.parquet'})" in capsys.readouterr().err
    assert exit_code(folder) == 2 and f"({tmp_path})" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["data", "serve", "train", "eval"])
def test_an_interrupt_while_a_command_still_imports_is_no_traceback(package: str) -> None:
    program = f"import sys; sys.argv = ['-m']; import {package}; raise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode in (-2, 130) and "stopped" in ended.stderr and "Traceback" not in ended.stderr


@dataclass(frozen=True, kw_only=True, slots=True)
class Copying:
    sources: tuple[Path, ...] = ()
    sheet: Path = Path("none.csv")
    out: Path = Path("out.jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    base: str | None = None
    out: Path = Path("model")


def test_a_stage_never_writes_over_what_it_reads(tmp_path: Path) -> None:
    config, source, link = tmp_path / "stage.yaml", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    config.write_text("{}")
    source.write_text("kept")
    link.symlink_to(source)
    for override, name in ((f"sources=[{source}]", "sources"), (f"sheet={source}", "sheet"), (f"sources=[{link}]", "sources")):
        with pytest.raises(UserError, match=f"out is .*a.jsonl, which this command reads as {name}; name another"):
            parse_stage(Copying, None, config, [str(config), override, f"out={source}"])
    with pytest.raises(UserError, match="reads as config"):
        parse_stage(Copying, None, config, [str(config), f"out={config}"])
    with pytest.raises(UserError, match="reads as base"):
        parse_stage(Training, None, config, [str(config), f"base={tmp_path}", f"out={tmp_path}"])
    assert parse_stage(Copying, None, config, [f"sources=[{source}]", f"out={tmp_path / 'new.jsonl'}"]).sources == (source,)


def test_what_cannot_be_written_is_said_before_any_work(tmp_path: Path) -> None:
    config = tmp_path / "stage.yaml"
    config.write_text("{}")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match="which is a folder; name a file to write"):
        parse_stage(Copying, None, config, [f"out={tmp_path / 'folder.jsonl'}"])
    with pytest.raises(UserError, match=r"stage\.yaml is no folder to write into"):
        parse_stage(Copying, None, config, [f"out={config}/runs/a.jsonl"])
    (tmp_path / "model.v1").mkdir()
    assert parse_stage(Copying, None, config, [f"out={tmp_path / 'model.v1'}"]).out.is_dir(), "a model folder may have a dot"
