"""`train.grpo` end to end on a tiny model, the exact decision gradient against its definition, and bad input."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from data.rows import write_pivots, write_sft
from eval.decisions import Decision, write_decisions
from pmem.envelope import EMPTY_LIST
from pmem.errors import UserError
from pmem.policy_file import model_hash, read_policy
from pmem.prompt import prompt_text
from tests.tiny import tiny_model
from tests.train.contradictions import contradiction_pivots, contradiction_rows
from train.grpo import GrpoConfig, run
from train.grpo_trainer import split_prompts
from train.kto import KtoConfig, judged_answers
from train.kto import run as run_kto
from train.sampling import sample_siblings
from train.sft import SftConfig
from train.sft import run as run_sft


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pivots, rows and a tiny SFT policy that knows the answers to them by heart."""
    folder = tmp_path_factory.mktemp("grpo")
    tiny_model(folder, hidden=64)
    write_sft(
        folder / "sft.parquet",
        [*contradiction_rows(8, seed=3, split="train"), *contradiction_rows(8, seed=2, split="dev")],
        trajectory_steps=3,
    )
    write_pivots(folder / "pivots.parquet", contradiction_pivots(8, seed=3))
    run_sft(
        SftConfig(
            rows=folder / "sft.parquet",
            out=folder / "sft",
            base=str(folder / "tiny"),
            max_steps=120,
            rows_per_batch=8,
            eval_every=1000,
            lora_rank=0,
            train_embeddings=True,
            learning_rate=5e-3,
        )
    )
    return folder


def config_of(place: Path, name: str, **changes: object) -> GrpoConfig:
    config = GrpoConfig(
        pivots=place / "pivots.parquet",
        start=place / "sft",
        rows=place / "sft.parquet",
        out=place / name,
        max_steps=2,
        prompts_per_step=2,
        num_generations=4,
        batches_per_step=2,
        max_completion_tokens=140,
        temperature=0.8,
        eval_every=2,
        save_every=1,
        lora_rank=4,
        max_tokens=4096,
    )
    return dataclasses.replace(config, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lora_layers": 1},
        {"decision_gradient": "sampled"},
        {"decision_gradient": "sampled", "credit": "joint", "share_prefix": False},
        {"lora_rank": 0, "batches_per_step": 1},
    ],
)
def test_a_run_writes_a_whole_folder(place: Path, changes: dict[str, object]) -> None:
    done = run(config_of(place, "out", **changes))
    policy = read_policy(place / "out")
    assert done["steps"] == 2 and policy.model_hash == model_hash(place / "out")
    if changes.get("decision_gradient") != "sampled":  # groups that agree have nothing to teach by sampling
        assert policy.model_hash != read_policy(place / "sft").model_hash
    assert policy.trajectory_steps == 3
    if "lora_layers" in changes:
        assert all(".layers.1." in name for name in load_file(place / "out" / "adapter" / "adapter_model.safetensors"))
    assert policy.data_hashes["start"] == read_policy(place / "sft").model_hash
    steps = [json.loads(line) for line in (place / "out" / "metrics.jsonl").read_text().splitlines()]
    kinds = ("share_malformed", "share_uncited", "share_silent", "share_mapped", "share_unmapped")
    assert all(sum(line[kind] for kind in kinds) == pytest.approx(1.0, abs=1e-3) for line in steps if "reward" in line)
    assert any(line["share_malformed"] < 1 for line in steps if "reward" in line)


def test_pivots_that_hold_their_list_train_what_comes_behind_it(place: Path) -> None:
    begun = {"role": "assistant", "content": f"{EMPTY_LIST}\n"}
    rows = contradiction_pivots(8, seed=3)
    write_pivots(place / "begun.parquet", [{**row, "prompt_messages": [*row["prompt_messages"], begun]} for row in rows])
    done = run(config_of(place, "begun", pivots=place / "begun.parquet", max_completion_tokens=100))
    steps = [json.loads(line) for line in (place / "begun" / "metrics.jsonl").read_text().splitlines()]
    assert done["steps"] == 2 and any(line["share_malformed"] < 1 for line in steps if "reward" in line)
    assert any(line.get("margin_gained", 0.0) != 0 for line in steps), "the decision was found and has its gradient"


def test_kto_learns_from_helped_and_harmed_answers(place: Path) -> None:
    rows = contradiction_pivots(8, seed=3)
    config = KtoConfig(
        pivots=place / "pivots.parquet", start=place / "sft", out=place / "kto", max_steps=1, lora_rank=4, answers_per_step=4
    )
    prompts = {row["snapshot_id"]: row["snapshot_id"] for row in rows}
    answers = judged_answers(rows, prompts, {}, config)
    silences = [answer for answer in answers if answer["completion"].endswith("<no_intervention/>")]
    assert [answer["label"] for answer in silences] == [True, False] * 4  # every second plan breaks a fact
    assert sum(answer["label"] for answer in answers) == len(rows)  # one best answer each
    written = '<operations>[{"op":"update_status","content":"on it"}]</operations>'
    with_list = judged_answers(rows, prompts, {rows[0]["snapshot_id"]: written}, config)
    name = rows[0]["snapshot_id"]
    assert all(
        answer["completion"].startswith(written if answer["prompt"] == name else "<operations>[]<") for answer in with_list
    )
    assert all(answer["completion"].startswith("<operations>[]<") for answer in answers) and len(with_list) == len(answers)
    samples = [
        Decision(snapshot_id=row["snapshot_id"], arm="sft", decision="silent", reason="ok", sample_index=index, list_text=written)
        for row in rows
        for index in range(2)
    ]
    write_decisions(place / "samples.parquet", samples)
    assert run_kto(dataclasses.replace(config, samples=place / "samples.parquet"))["steps"] == 1
    assert read_policy(place / "kto").config["stage"] == "kto"
    with pytest.raises(UserError, match="lora_rank"):
        KtoConfig(lora_rank=0)
    with pytest.raises(UserError, match="KTO needs both"):
        run_kto(dataclasses.replace(config, answers_per_step=1000))


def test_a_broken_run_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(place, "broken", max_steps=3)

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("train.grpo_run.write", die)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    (config.out / "checkpoints" / "checkpoint-3" / "pmem_run.json").unlink()
    assert run(config)["steps"] == 3


def test_siblings_repeat_with_the_seed_and_differ_from_each_other(place: Path) -> None:
    from transformers import AutoModelForCausalLM

    from train.loading import load_tokenizer

    tokenizer = load_tokenizer(place / "tiny")
    causal = AutoModelForCausalLM.from_pretrained(place / "tiny")
    prompts = [tokenizer("one prompt")["input_ids"], tokenizer("another, longer prompt")["input_ids"]]
    draw = {"num_siblings": 3, "max_tokens": 12, "temperature": 1.0}
    first = sample_siblings(causal, tokenizer, prompts, seed=1, **draw)
    assert (
        first
        == sample_siblings(causal, tokenizer, prompts, seed=1, **draw)
        != sample_siblings(causal, tokenizer, prompts, seed=2, **draw)
    )
    assert len(first) == 6 and len({tuple(ids) for ids in first}) == 6 and all(len(ids) <= 12 for ids in first)


def test_prompts_are_split_and_found_again() -> None:
    ids = torch.tensor([[0, 5, 6, 7, 8, 9], [0, 5, 6, 7, 1, 0], [4, 5, 6, 7, 8, 8]])
    mask = torch.tensor([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
    rows = split_prompts(ids, mask, num_completion=2)
    assert rows.prefix_ids.shape == (2, 3) and rows.ids.shape == (3, 3) and rows.owner[0] == rows.owner[1] != rows.owner[2]
    for row in range(3):
        whole = torch.cat((rows.prefix_ids[rows.owner[row]], rows.ids[row]))
        assert whole.tolist() == ids[row].tolist()


def test_log_probabilities_and_odds_equal_the_plain_pass(place: Path) -> None:
    """The shared pass of the trainer against one full forward pass, and its odds against the softmax at the decision."""
    from datasets import Dataset

    from train.grpo_run import make_trainer
    from train.loading import load_tokenizer
    from train.rewards import pivot_of
    from train.rows import check_decision, token_rows
    from train.run_state import RunState

    tokenizer = load_tokenizer(place / "sft")
    pivots = contradiction_pivots(4, seed=3)
    texts = {row["snapshot_id"]: prompt_text(tokenizer, tuple(row["prompt_messages"])) for row in pivots}
    dataset = Dataset.from_list([{"prompt": text, "snapshot_id": name} for name, text in texts.items()])
    point = check_decision(tokenizer, "tiny")
    config = config_of(place, "numbers", dtype="float32", temperature=1.0)
    trainer = make_trainer(
        config, tokenizer, point, dataset, {row["snapshot_id"]: pivot_of(row) for row in pivots}, RunState(num_steps=1)
    )
    rows = token_rows(tokenizer, contradiction_rows(4, seed=5, split="dev"), max_tokens=4096)
    width, longest = max(len(row.prompt_ids) for row in rows), max(len(row.completion_ids) for row in rows)
    ids, mask = torch.zeros(4, width + longest, dtype=torch.long), torch.zeros(4, width + longest, dtype=torch.long)
    for index, row in enumerate(rows):
        start, end = width - len(row.prompt_ids), width + len(row.completion_ids)
        ids[index, start:end] = torch.tensor([*row.prompt_ids, *row.completion_ids])
        mask[index, start:end] = 1
    trainer._decisions = torch.tensor([row.decision_index for row in rows])
    found, entropies, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, longest, compute_entropy=True)
    for index, row in enumerate(rows):
        whole = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        full = torch.log_softmax(trainer.model(input_ids=whole).logits[0].float(), dim=-1)
        at = len(row.prompt_ids) - 1
        wanted = full[at:-1].gather(1, whole[0, at + 1 :, None])[:, 0]
        torch.testing.assert_close(found[index, : len(wanted)], wanted, rtol=1e-3, atol=1e-4)
        assert entropies[index, 0] == pytest.approx(-(full[at].exp() * full[at]).sum().item(), rel=1e-3)
        decision = full[at + row.decision_index]
        odds = torch.logsumexp(decision[list(point.speak_ids)], 0) - torch.logsumexp(decision[list(point.silent_ids)], 0)
        assert trainer._log_odds[index].item() == pytest.approx(odds.item(), rel=1e-3, abs=1e-3)


def test_bad_input_is_one_sentence(place: Path) -> None:
    write_pivots(place / "few.parquet", contradiction_pivots(1, seed=1))
    for changes, sentence in (
        ({"pivots": place / "few.parquet"}, "holds 1 pivots, one step needs 2"),
        ({"pivots": place / "none.parquet"}, "does not exist"),
        ({"start": place / "tiny"}, "policy.json does not exist"),
        ({"credit": "joint"}, "decision_gradient=sampled"),
        ({"use_vllm": True}, "share_prefix=false"),
        ({"num_generations": 1}, "at least 2"),
        ({"max_tokens": 100}, "prompts are never cut"),
        ({"drop_silent_pivots": True, "prompts_per_step": 8}, "one step needs 8"),
    ):
        with pytest.raises(UserError, match=sentence):
            run(config_of(place, "bad", **changes))
