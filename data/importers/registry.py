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


def by_name(name: str) -> Format:
    """The format called `name`. Raises UserError listing the names."""
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    raise UserError(f"unknown format {name!r}; known formats are {', '.join(candidate.name for candidate in FORMATS)}")
