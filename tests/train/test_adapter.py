"""A fully trained policy as an adapter and back: exact where the rank is enough, and one sentence where the two do not belong together."""

import shutil
from pathlib import Path

import pytest
import torch

from pmem.config import check_out
from pmem.errors import UserError
from pmem.plan_notes import NOTES_VERSION
from pmem.policy_file import PolicyFile, model_hash, read_policy, write_policy
from pmem.prompt import PROMPT_VERSION
from tests.tiny import tiny_model
from train.adapter import AdapterConfig, extract, merge


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "base")


@pytest.fixture
def trained(base: Path, tmp_path: Path) -> Path:
    """The base with a change of rank 2 in every linear layer, as `train.sft` would leave it."""
    folder = shutil.copytree(base, tmp_path / "trained")
    model = load(folder)
    torch.manual_seed(0)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            rows, columns = module.weight.shape
            module.weight.data += torch.randn(rows, 2) @ torch.randn(2, columns) * 0.05
    model.save_pretrained(folder)
    policy = PolicyFile(
        model_hash=model_hash(folder), base="tiny", prompt_version=PROMPT_VERSION, template_hash="0" * 64, created="2026-01-01",
        config={"plan_notes": NOTES_VERSION}, data_hashes={"sft.parquet": "1" * 64},
    )  # fmt: skip
    write_policy(folder, policy)
    return folder


def load(folder: Path) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def test_there_and_back_gives_the_trained_model(base: Path, trained: Path, tmp_path: Path) -> None:
    shares = {
        rank: extract(AdapterConfig(model=trained, base=str(base), out=tmp_path / f"rank{rank}", rank=rank)) for rank in (1, 2)
    }
    assert 0.4 < shares[1] < 0.99 < shares[2]
    noted = read_policy(tmp_path / "rank2")
    assert noted.plan_notes and noted.adapter_hash == noted.model_hash == model_hash(tmp_path / "rank2")
    assert noted.config["adapter"]["from_model_hash"] == read_policy(trained).model_hash
    policy = merge(AdapterConfig(adapter=tmp_path / "rank2", base=str(base), out=tmp_path / "again"))
    assert read_policy(tmp_path / "again") == policy and policy.plan_notes and policy.data_hashes == noted.data_hashes
    ids = torch.arange(24)[None]
    wanted, found, start = (load(folder)(ids).logits for folder in (trained, tmp_path / "again", base))
    assert (wanted - found).abs().max() < 0.1 * (wanted - start).abs().max()


def test_what_does_not_belong_together_is_one_sentence(base: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no change"):
        extract(AdapterConfig(model=_policied(base, trained), base=str(base), out=tmp_path / "out"))
    for changes in ({}, {"model": trained, "adapter": trained}):
        with pytest.raises(UserError, match="one of them"):
            AdapterConfig(out=tmp_path / "out", **changes)
    for out, name in ((trained, "model"), (base, "base")):
        with pytest.raises(UserError, match=f"which this command reads as {name}"):
            check_out(AdapterConfig(model=trained, base=str(base), out=out))
    extract(AdapterConfig(model=trained, base=str(base), out=tmp_path / "rank1", rank=1))
    noted = read_policy(tmp_path / "rank1")
    write_policy(tmp_path / "rank1", noted.model_copy(update={"data_hashes": {"base": "2" * 64}}))
    with pytest.raises(UserError, match="was made over base 2222"):
        merge(AdapterConfig(adapter=tmp_path / "rank1", base=str(base), out=tmp_path / "out"))
    with pytest.raises(UserError, match="is no adapter of"):
        merge(AdapterConfig(adapter=trained, base=str(base), out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def _policied(base: Path, trained: Path) -> Path:
    write_policy(base, read_policy(trained))
    return base
