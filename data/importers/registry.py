"""The list of formats and the choice among them, by content alone. A new format is a file here and a line in `FORMATS`."""

from data.importers import (
    atif,
    claude_code,
    codex,
    copilot,
    gemini,
    hermes,
    inspect_ai,
    intercode,
    kimi,
    knowagent,
    langfuse,
    memory_pages,
    mini_swe_agent,
    mint,
    native,
    openai_chat,
    openhands,
    otel,
    pi,
    qwen,
    swe_agent,
    tau2,
    tau_bench,
    verifiers,
)
from data.importers.base import Format
from data.importers.documents import Document
from pmem.errors import UserError

FORMATS: tuple[Format, ...] = (
    native.FORMAT,
    atif.FORMAT,
    tau_bench.FORMAT,
    tau2.FORMAT,
    mini_swe_agent.FORMAT,
    openhands.FORMAT,
    swe_agent.FORMAT,
    qwen.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    copilot.FORMAT,
    gemini.FORMAT,
    kimi.FORMAT,
    pi.FORMAT,
    hermes.FORMAT,
    inspect_ai.FORMAT,
    intercode.FORMAT,
    mint.FORMAT,
    knowagent.FORMAT,
    verifiers.FORMAT,
    otel.FORMAT,
    langfuse.FORMAT,
    memory_pages.FORMAT,
    openai_chat.FORMAT,
)


def detect(document: Document) -> Format | None:
    """The first format whose test the beginning of the document passes."""
    return next((candidate for candidate in FORMATS if candidate.detects(document.peek)), None)


def companion(document: Document) -> str | None:
    """What a file is that stands beside runs without being one, and who reads it; None when it is nothing known."""
    first = document.peek.first
    if {"trajectory_id", "failures"} <= set(first):
        return "labels of failing steps (data.check_hindsight reads them)"
    if {"trigger", "decision", "operations"} <= set(first):
        return "decisions of a memory agent (data.teacher reads them)"
    if {"task_success", "verification_passed"} & set(first) or isinstance(first.get("resolved"), list):
        return "grades (read with their runs)"
    if isinstance(first.get("instances"), list) or {"env", "avg_reward"} <= set(first):
        return "grades (read with their runs)"
    return None


def by_name(name: str) -> Format:
    """The format called `name`. Raises UserError listing the names."""
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    raise UserError(f"unknown format {name!r}; known formats are {', '.join(candidate.name for candidate in FORMATS)}")
