"""The one renderer: golden rendering, version, limits."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.prompt import PROMPT_VERSION, SYSTEM, PromptLimits, golden_rendering, golden_snapshot, prompt_text, render_messages
from pmem.snapshot import BankState, Entry, Snapshot, Step

GOLDEN = Path(__file__).parent / "golden" / "prompt.txt"
BASE = Path(__file__).parents[2] / ".cache" / "base" / "smollm2-135m-instruct"


class ChatMLTokenizer:
    """A chat template without a model: what `apply_chat_template(tokenize=False)` of a ChatML model returns."""

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, enable_thinking: bool
    ) -> str:
        assert not tokenize and add_generation_prompt and not enable_thinking
        return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in conversation) + "<|im_start|>assistant\n"


def step(number: int, **changes: object) -> Step:
    values = {"step": number, "tool": "bash", "call": f"ls {number}", "outcome": "ok", "digest": "fine"}
    return Step.model_validate({"fingerprint": f"{number:016x}", **values, **changes})


def user_part(snapshot: Snapshot, **changes: int) -> str:
    return render_messages(snapshot, **changes)[1]["content"]


def steps_of(text: str) -> list[dict[str, object]]:
    return json.loads(text.split("# Recent steps\n", 1)[1])


def test_the_golden_rendering_stands_and_names_the_version() -> None:
    assert golden_rendering() == GOLDEN.read_text(encoding="utf-8"), "the wording changed: retrain, then renew the golden file"
    assert hashlib.sha256(GOLDEN.read_bytes()).hexdigest()[:16] == PROMPT_VERSION


def test_the_system_prompt_is_short() -> None:
    assert len(SYSTEM) / 4 <= 120  # 105 SmolLM2 tokens, measured when the wording was fixed


@pytest.mark.skipif(not BASE.exists(), reason="the base model has not been fetched")
def test_lengths_in_the_tokens_of_the_base_model() -> None:
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(BASE)
    assert len(tokenizer(SYSTEM).input_ids) <= 120
    assert len(tokenizer(prompt_text(tokenizer, render_messages(golden_snapshot()))).input_ids) <= 300


def test_the_user_part_has_the_three_sections_and_ends_with_the_newest_plan() -> None:
    text = user_part(golden_snapshot())
    assert [line for line in text.splitlines() if line.startswith("# ")] == ["# Task", "# Bank", "# Recent steps"]
    assert text.endswith('"thought":"Checked out/. Next: write out/report.csv."}]')
    assert list(steps_of(text)[-1]) == ["step", "tool", "call", "fp", "outcome", "digest", "thought"]


def test_status_is_never_shown() -> None:
    assert "private" not in user_part(golden_snapshot())


def test_a_later_message_is_one_line_and_only_the_newest_three_stay() -> None:
    snapshot = Snapshot(task_messages=("Do it.", "first", "two\nlines", "third", "x" * 400), window=())
    lines = user_part(snapshot).splitlines()
    assert [line for line in lines if line.startswith("User: ")][:2] == ["User: two lines", "User: third"]
    assert "first" not in lines and max(len(line) for line in lines) == len("User: ") + 300


def test_the_task_is_cut_at_its_limit() -> None:
    assert user_part(Snapshot(task_messages=("t" * 5000,), window=())).count("t") <= 2002  # three of them in headings


def test_whole_oldest_steps_are_dropped_at_the_window_limit() -> None:
    window = tuple(step(number, digest="d" * 240, call="c" * 180, thought="t" * 240) for number in range(1, 9))
    text = user_part(Snapshot(task_messages=("t",), window=window), window_chars=1700)
    assert [s["step"] for s in steps_of(text)] == [7, 8]
    assert len(text.split("# Recent steps\n", 1)[1]) <= 1700


def test_only_the_newest_steps_are_shown() -> None:
    snapshot = Snapshot(task_messages=("t",), window=tuple(step(number) for number in range(1, 13)))
    assert [s["step"] for s in steps_of(user_part(snapshot, trajectory_steps=4))] == [9, 10, 11, 12]
    assert steps_of(user_part(snapshot, trajectory_steps=0)) == []


def test_nothing_is_said_twice() -> None:
    window = (step(1, call="bash ls", digest="ok", thought="a"), step(2, thought="b"), step(3, thought="c"))
    first, second, third = steps_of(user_part(Snapshot(task_messages=("t",), window=window)))
    assert first == {"step": 1, "tool": "bash", "call": "ls", "fp": "0000", "outcome": "ok"}
    assert (second["thought"], third["thought"]) == ("b", "c")
    shown = steps_of(user_part(Snapshot(task_messages=("t",), window=window), num_thoughts=0))
    assert not any("thought" in step for step in shown)


def test_a_lone_oversized_step_stays_valid_json() -> None:
    window = (step(1, digest="d" * 9000, tool="tool" * 100),)
    text = user_part(Snapshot(task_messages=("t",), window=window), window_chars=900)
    assert steps_of(text)[0]["digest"] == ""


def test_the_bank_is_skipped_entry_by_entry() -> None:
    entries = (
        Entry(id="tm-k-1", kind="knowledge", content="short", created=1, touched=1),
        Entry(id="tm-k-2", kind="knowledge", content="long " * 100, created=2, touched=2),
    )
    text = user_part(Snapshot(task_messages=("t",), window=(), bank=BankState(entries=entries)), bank_budget_tokens=20)
    assert "- [tm-k-1] knowledge: short" in text and "tm-k-2" not in text
    assert "(empty)" in user_part(Snapshot(task_messages=("t",), window=()))


def test_prompt_text_uses_the_models_template_and_appends_the_prefix() -> None:
    text = prompt_text(ChatMLTokenizer(), render_messages(golden_snapshot()), prefix="<operations>")
    assert text.endswith("<|im_start|>assistant\n<operations>") and text.startswith("<|im_start|>system\n" + SYSTEM)


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(TypeError):
        render_messages(golden_snapshot(), no_such_limit=3)
    assert dataclasses.asdict(PromptLimits())["trajectory_steps"] == 8


@given(st.lists(st.text(max_size=400), max_size=6), st.lists(st.text(max_size=300), max_size=10))
def test_any_text_renders_within_the_limits(messages: list[str], digests: list[str]) -> None:
    window = tuple(step(number, digest=digest) for number, digest in enumerate(digests))
    text = user_part(Snapshot(task_messages=tuple(messages), window=window))
    assert len(text.rsplit("# Recent steps\n", 1)[1]) <= 4000
