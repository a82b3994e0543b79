"""The only renderer of a memory request: runtime, data, training and evaluation call it, so that they cannot drift apart.

    messages = render_messages(snapshot, PromptLimits(trajectory_steps=4))
    text = prompt_text(tokenizer, messages, prefix='<operations>[]</operations>\n')

The agent's newest stated plan ends the user message: a forgotten requirement shows there first. Lengths: docs/design/runtime.md 7.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from pmem.bank import render_entries
from pmem.snapshot import BankState, Entry, Snapshot, Step

SYSTEM = """\
You keep another agent's memory. Never act. Answer in two lines.
1: <operations>[]</operations> listing bank writes like {"op":"save_knowledge","content":"..."}; also save_procedural, \
update_status, delete (id).
2: <no_intervention/>, or <context_for_action>fact [tm-k-1]</context_for_action> only if the agent's plan breaks a bank \
fact or repeats a known failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLimits:
    """How much of a snapshot is shown. Training, evaluation and runtime of one model must use the same values."""

    task_chars: int = 2000
    """Longest first user message."""
    num_later: int = 3
    """Newest later user messages shown."""
    later_chars: int = 300
    """Longest later user message."""
    bank_budget_tokens: int = 400
    """Budget of the bank lines, counted as ceil(chars / 4)."""
    trajectory_steps: int = 8
    """Newest completed steps shown."""
    num_thoughts: int = 2
    """Newest steps shown with the agent's stated thought; what an older one announced stands in the calls that followed."""
    window_chars: int = 4000
    """Longest JSON of the steps; whole oldest steps go first."""


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rendering needs."""

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


def render_messages(
    snapshot: Snapshot, limits: PromptLimits | None = None, **changes: int
) -> tuple[dict[str, str], dict[str, str]]:
    """System and user message of one step. `changes` override single limits: `bank_budget_tokens=800`."""
    limits = dataclasses.replace(limits or PromptLimits(), **changes)
    sections = (
        f"# Task\n{_task(snapshot.task_messages, limits)}",
        f"# Bank\n{render_entries(snapshot.bank, limits.bank_budget_tokens) or '(empty)'}",
        f"# Recent steps\n{_steps(snapshot.window, limits)}",
    )
    return {"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n".join(sections)}


def prompt_text(tokenizer: ChatTokenizer, messages: tuple[dict[str, str], ...], prefix: str = "") -> str:
    """The request as one string in the model's own chat template, thinking off, with the assistant text so far appended."""
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False)
    return str(text) + prefix


def _task(messages: tuple[str, ...], limits: PromptLimits) -> str:
    if not messages:
        return "(none)"
    later = messages[1:][-limits.num_later :] if limits.num_later else ()
    lines = [_cut(messages[0].strip(), limits.task_chars)]
    lines += [f"User: {_cut(' '.join(text.split()), limits.later_chars)}" for text in later]
    return "\n".join(lines)


def _steps(window: tuple[Step, ...], limits: PromptLimits) -> str:
    """A JSON array, one step a line, newest last, at most `window_chars` long."""
    shown = list(window[-limits.trajectory_steps :] if limits.trajectory_steps else ())
    for place in range(len(shown) - limits.num_thoughts):
        shown[place] = shown[place].model_copy(update={"thought": None})
    lines: list[str] = []
    num_chars = 2
    for step in reversed(shown):
        line = _step(step)
        if num_chars + len(line) + 2 > limits.window_chars:
            break
        lines.insert(0, line)
        num_chars += len(line) + 2
    if shown and not lines:
        lines = [_step(_shortened(shown[-1]))]
    return "[" + ",\n".join(lines) + "]"


def _step(step: Step) -> str:
    """One object. Nothing is said twice: the call without its tool's name, no digest that only repeats the outcome."""
    shown: dict[str, Any] = {
        "step": step.step,
        "tool": step.tool,
        "call": step.call.removeprefix(f"{step.tool} "),
        "fp": step.fingerprint[:4],
        "outcome": step.outcome,
    }
    if step.digest != step.outcome:
        shown["digest"] = step.digest
    if step.thought:
        shown["thought"] = step.thought
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def _shortened(step: Step) -> Step:
    """A step made by hand, past every limit of a trajectory: cut, so that the JSON stays valid."""
    cut = {"digest": "", "tool": _cut(step.tool, 60), "call": _cut(step.call, 180), "thought": _cut(step.thought or "", 240)}
    return step.model_copy(update=cut)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def golden_snapshot() -> Snapshot:
    """The snapshot whose rendering names the prompt version; it shows every part of the layout."""
    entries = (
        Entry(id="tm-k-1", kind="knowledge", content="Write the report as JSON.", created=1, touched=1),
        Entry(id="tm-p-2", kind="procedural", content="make failed: libfoo is missing.", created=2, touched=4, injections=1),
    )
    steps = (
        Step(step=7, tool="bash", call='{"cmd":"make"}', fingerprint="a1b2c3d4e5f60718", outcome="error", digest="no libfoo"),
        Step(
            step=8,
            tool="bash",
            call='{"cmd":"ls out"}',
            fingerprint="0f1e2d3c4b5a6978",
            outcome="ok",
            digest="report.csv",
            thought="Checked out/. Next: write out/report.csv.",
        ),
    )
    return Snapshot(
        task_messages=("Build the report.", "Make it JSON, not CSV."),
        window=steps,
        bank=BankState(status="private, never shown", entries=entries, next_number=3),
    )


def golden_rendering() -> str:
    """The golden snapshot as text, with every limit written out: a changed default must not change the version."""
    limits = PromptLimits(
        task_chars=2000,
        num_later=3,
        later_chars=300,
        bank_budget_tokens=400,
        trajectory_steps=8,
        num_thoughts=2,
        window_chars=4000,
    )
    messages = render_messages(golden_snapshot(), limits)
    return "".join(f"<<{message['role']}>>\n{message['content']}\n" for message in messages)


PROMPT_VERSION = hashlib.sha256(golden_rendering().encode("utf-8")).hexdigest()[:16]
