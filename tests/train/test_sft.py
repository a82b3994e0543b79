"""`train.sft` end to end on a tiny model: folder, resume, reproduction, and one sentence for each kind of bad input."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from data.rows import write_sft
from pmem.errors import UserError
from pmem.policy_file import model_hash, read_policy
from pmem.prompt import PROMPT_VERSION
from serve.embedded import EmbeddedBackend
from tests.tiny import tiny_model
from tests.train.contradictions import contradiction_rows
from train.checkpoints import checkpoint_folder, last_good, writing
from train.loading import load_model, load_tokenizer
from train.policy_folder import PolicyNotes, write_policy_folder
from train.rows import check_decision
from train.run_state import RunState
from train.sft import SftConfig, run
from train.trained_weights import load_trained


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sft")
    tiny_model(folder)
    write_sft(
        folder / "sft.parquet",
        [*contradiction_rows(24, seed=1, split="train"), *contradiction_rows(8, seed=2, split="dev")],
        trajectory_steps=3,
    )
    return folder


def config_of(place: Path, name: str, **changes: object) -> SftConfig:
    config = SftConfig(
        rows=place / "sft.parquet",
        out=place / name,
        base=str(place / "tiny"),
        max_steps=6,
        rows_per_batch=4,
        eval_every=3,
        save_every=2,
        lora_rank=4,
    )
    return dataclasses.replace(config, **changes)


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in lines(folder) if "loss" in line]


@pytest.fixture(scope="module")
def lora(place: Path) -> Path:
    run(config_of(place, "lora"))
    return place / "lora"


def test_folder_is_whole_and_serves(lora: Path) -> None:
    policy = read_policy(lora)
    assert policy.model_hash == model_hash(lora) and policy.prompt_version == PROMPT_VERSION
    assert policy.adapter_hash == model_hash(lora / "adapter")
    assert set(policy.data_hashes) == {"sft.parquet", "base"} and policy.seeds == {"train": 17}
    assert policy.config["decision_prefix"] == "\n<" and policy.config["run"]["steps"] == 6
    assert policy.trajectory_steps == 3, "the window of the rows travels with the model"
    assert not checkpoint_folder(lora).exists() and "# pmem memory policy" in (lora / "README.md").read_text()
    assert EmbeddedBackend(lora).model_hash == policy.model_hash


def test_pairs_are_compared_where_their_prompt_is_shared(place: Path) -> None:
    run(config_of(place, "pairs", max_steps=2, decision_weight=0.2, pair_weight=1.0))
    assert all(line["pair_loss"] > 0 for line in lines(place / "pairs") if "loss" in line)
    with pytest.raises(UserError, match="share_prefix=true"):
        run(config_of(place, "pairs", pair_weight=1.0, share_prefix=False))


def test_log_holds_loss_speed_and_dev_figures(lora: Path) -> None:
    steps = [line for line in lines(lora) if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6] and all(line["tokens_per_s"] > 0 for line in steps)
    assert [line["step"] for line in lines(lora) if "dev_auroc" in line] == [3, 6]


def test_the_same_seed_gives_the_same_losses(place: Path, lora: Path) -> None:
    run(config_of(place, "again"))
    assert losses(place / "again") == losses(lora)
    assert model_hash(place / "again") == model_hash(lora)


def test_a_broken_run_goes_on_from_its_last_whole_checkpoint(place: Path, lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    config = config_of(place, "broken")
    with monkeypatch.context() as patch:
        patch.setattr("train.sft_run.write", die)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    folder = checkpoint_folder(config.out)
    (folder / "checkpoint-6" / "pmem_run.json").unlink()  # as if killed while writing it
    assert last_good(folder) == folder / "checkpoint-4"
    done = run(config)
    assert done["steps"] == 6 and losses(config.out) == losses(lora)
    assert model_hash(config.out) == model_hash(lora)


def test_another_configuration_starts_anew(place: Path) -> None:
    config = config_of(place, "changed", keep_checkpoints=True)
    run(config)
    assert last_good(checkpoint_folder(config.out))
    run(dataclasses.replace(config, learning_rate=1e-4))
    assert [line["step"] for line in lines(config.out) if "loss" in line] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("changes", [{"share_prefix": False}, {"lora_rank": 0, "learning_rate": 1e-4}, {"batches_per_step": 2}])
def test_other_ways_of_training_run(place: Path, changes: dict[str, object]) -> None:
    done = run(config_of(place, "other", max_steps=2, **changes))
    policy = read_policy(place / "other")
    assert done["steps"] == 2 and (policy.adapter_hash is None) == (changes.get("lora_rank") == 0)
    shutil.rmtree(place / "other")


def test_shared_and_plain_forward_agree(place: Path) -> None:
    for name, shares in (("shared", True), ("plain", False)):
        run(config_of(place, name, max_steps=2, dtype="float32", share_prefix=shares))
    assert losses(place / "shared") == pytest.approx(losses(place / "plain"), rel=1e-3)


def test_a_time_limit_shortens_the_plan() -> None:
    state = RunState(num_steps=100, max_minutes=1.0)
    state._resumed_at -= 20.0
    state.fit_plan(10, 10)
    assert 28 <= state.num_steps <= 30
    assert state.lr_factor(state.num_steps, warmup_steps=2, final_share=0.1) == pytest.approx(0.1)
    state._resumed_at += 15.0  # the slow beginning was somebody else's load
    state.fit_plan(20, 20)
    assert state.num_steps == 100, "never beyond the plan it began with"


def test_slow_steps_shorten_the_plan_before_there_are_many() -> None:
    state = RunState(num_steps=14, max_minutes=4.5)
    state._resumed_at -= 230.0
    state.fit_plan(2, 2)
    assert state.num_steps == 2


def rows_of(place: Path, name: str, rows: list[dict]) -> Path:
    write_sft(place / name, rows)
    return place / name


def test_bad_input_is_one_sentence(place: Path) -> None:
    train = contradiction_rows(8, seed=1, split="train")
    silent = rows_of(place, "silent.parquet", [row for row in train if row["decision"] == "silence"])
    dev_only = rows_of(place, "dev.parquet", contradiction_rows(4, seed=1, split="dev"))
    templateless = tiny_model(place / "templateless", chat_template=None)
    bare = shutil.copytree(place / "tiny", place / "bare")
    (bare / "tokenizer.json").unlink()
    for changes, sentence in (
        ({"rows": silent}, "every train row decides 'silence'"),
        ({"rows": dev_only}, "no row of split 'train'"),
        ({"rows": place / "none.parquet"}, "does not exist"),
        ({"base": str(templateless)}, "no chat template"),
        ({"base": str(bare)}, "no tokenizer"),
        ({"base": "./nowhere"}, "neither a folder nor a hub id"),
        ({"gradient_checkpointing": True}, "share_prefix=false"),
        ({"speak_share": 1.5}, "between 0 and 1"),
        ({"max_tokens": 10}, "rows are never cut"),
    ):
        with pytest.raises(UserError, match=sentence):
            run(config_of(place, "bad", **changes))


def test_a_loss_that_is_no_number_stops_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = shutil.copytree(place / "tiny", place / "nan")
    from safetensors.torch import load_file, save_file

    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], float("nan"))
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="the loss is nan at step 0; lower learning_rate"):
        run(config_of(place, "nan-out", base=str(broken)))


def test_a_full_disk_is_one_sentence_and_the_old_model_stays(place: Path, lora: Path) -> None:
    for error in (
        RuntimeError("PytorchStreamWriter failed writing file"),
        ValueError("I/O error: No space left on device (os error 28)"),
    ):
        with pytest.raises(UserError, match="no space left"), writing(lora):
            raise error
    before = model_hash(lora)

    class Full(torch.nn.Module):
        def save_pretrained(self, folder: Path) -> None:
            raise RuntimeError("I/O error: No space left on device (os error 28)")

    with pytest.raises(UserError, match="no space left"):
        write_policy_folder(lora, Full(), None, None, notes_of("auto"))  # type: ignore[arg-type]
    assert model_hash(lora) == before and read_policy(lora).model_hash == before


def notes_of(dtype: str) -> PolicyNotes:
    return PolicyNotes(base="tiny", config={"dtype": dtype}, data_hashes={}, seeds={}, card="")


@pytest.mark.parametrize("asked, written", [("auto", torch.bfloat16), ("float32", torch.float32)])
def test_weights_are_written_as_bfloat16_unless_float32_is_asked_for(
    place: Path, tmp_path: Path, asked: str, written: torch.dtype
) -> None:
    tokenizer = load_tokenizer(place / "tiny")
    model = load_model(place / "tiny", tokenizer, dtype="float32", shares_prefix=False)
    write_policy_folder(tmp_path, model, tokenizer, check_decision(tokenizer, "tiny"), notes_of(asked))
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {written}


def test_the_kept_adapter_is_the_merged_model(place: Path, lora: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(place / "tiny", dtype=torch.bfloat16)
    merged = PeftModel.from_pretrained(base, lora / "adapter", autocast_adapter_dtype=False).merge_and_unload()
    served = AutoModelForCausalLM.from_pretrained(lora, dtype=torch.bfloat16)
    for left, right in zip(merged.parameters(), served.parameters()):
        torch.testing.assert_close(left, right, rtol=0, atol=0)
    assert load_trained.__doc__
