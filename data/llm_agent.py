"""An action agent that is a real model behind any OpenAI-compatible endpoint: one fenced command an answer, results as messages.

    agent = LlmAgent(LlmConfig(url="http://127.0.0.1:8000/v1", model="qwen"), task="…", tools="…")
    move = agent.decide()                    # Move(thought, tool, args), or None: it says that it has finished
    agent.observe("text of the result", is_error=False)

Plain text rather than native tool calls, because small models and many servers have none. When the prompt outgrows
`context_tokens`, the model writes a summary of what is behind it and the old messages go: facts are lost as in real agents.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pmem.backend import Backend, Completion, Request, RouteError
from pmem.config import STRICT
from pmem.errors import UserError
from pmem.route import HttpBackend

CHARS_PER_TOKEN = 3.0
"""For a prompt that no server has counted yet; on the safe side."""
DONE = re.compile(r"^\W*DONE\W*$", re.MULTILINE)
_FENCE = re.compile(r"```[ \t]*(\w*)[ \t]*\n(.*?)```", re.DOTALL)
SYSTEM = """You work on a task by calling tools, one call an answer.
Each answer: one or two sentences that say what you do now and what you will do next, then exactly one fenced block:
```bash
the command
```
{tools}When everything is done, answer with the single word DONE and no block."""
JSON_TOOLS = """For the other tools the block is ```json with {{"tool": NAME, "args": {{...}}}}: {names}.
"""
NO_CALL = "Your answer held no fenced block. Give exactly one ```bash block, or the word DONE when everything is done."
SUMMARISE = (
    "Your context is nearly full. Write down, in at most ten short lines, everything that you still need: what is asked, "
    "which values are required, what you found out, what failed and why, what is done and what is left. No block."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmConfig:
    """Which model acts, and how much it may see and do."""

    __pydantic_config__ = STRICT

    url: str = ""
    """Base address that ends in /v1."""
    model: str = ""
    """Name of the model there."""
    api_key_file: Path | None = None
    """File whose first line is the key."""
    context_tokens: int = 8_000
    """Longest prompt; beyond it the conversation is compacted."""
    keep_messages: int = 4
    """Newest messages that a compaction leaves as they are."""
    max_tokens: int = 400
    """Longest answer."""
    max_acts: int = 40
    """Answers after which the run ends."""
    temperature: float = 0.0
    """Of the answers; the seed is the trial's."""
    timeout_s: float = 120.0
    """Of one answer."""

    def __post_init__(self) -> None:
        if min(self.context_tokens, self.max_tokens, self.max_acts) < 1 or self.keep_messages < 0:
            raise UserError("llm: context_tokens, max_tokens and max_acts must be at least 1, keep_messages at least 0")
        if self.max_tokens >= self.context_tokens:
            raise UserError(f"llm: max_tokens {self.max_tokens} leaves no room in context_tokens {self.context_tokens}")

    def name(self) -> str:
        """How rollouts and trials name the agent."""
        return f"llm:{self.model}"

    def open(self) -> HttpBackend:
        """The endpoint. Raises UserError when it is not named or does not serve the model."""
        if not self.url or not self.model:
            raise UserError("llm: an LLM agent needs llm.url= and llm.model= of an OpenAI-compatible endpoint")
        key = None
        if self.api_key_file is not None:
            if not self.api_key_file.exists():
                raise UserError(f"llm: api_key_file {self.api_key_file} does not exist")
            key = self.api_key_file.read_text(encoding="utf-8").split("\n")[0].strip()
        backend = HttpBackend(self.url, self.model, api_key=key, client="pmem-agent")
        problem = backend.probe().problem
        if problem:
            raise UserError(f"llm: {self.url}: {problem}; start the server, or check llm.url and llm.model")
        return backend


@cache
def endpoint(config: LlmConfig) -> HttpBackend:
    """One client a process."""
    return config.open()


@dataclass(frozen=True, slots=True)
class Move:
    """What the agent says and calls. `tool` None: an answer without a call, `text` holds it."""

    thought: str
    tool: str | None
    args: Mapping[str, Any] = field(default_factory=dict)


class LlmAgent:
    """One run. `num_compactions` counts how often old messages went."""

    def __init__(self, config: LlmConfig, backend: Backend, *, task: str, tools: str = "", seed: int = 0) -> None:
        self.config = config
        self.num_acts = self.num_compactions = self.tokens_in = self.tokens_out = 0
        self.has_finished = False
        self._backend = backend
        self._seed = seed
        self._head = [_message("system", SYSTEM.format(tools=tools)), _message("user", task)]
        self._tail: list[dict[str, str]] = []
        self._size = 0

    @property
    def finished(self) -> bool:
        """It said DONE, or may not go on."""
        return self.has_finished or self.num_acts >= self.config.max_acts

    def hear(self, text: str) -> None:
        """A message of the user, or a reminder that stays in the conversation from here on."""
        self._tail.append(_message("user", text))

    def decide(self) -> Move | None:
        """The next answer as a move; None when it says that it has finished."""
        self.num_acts += 1
        answer = self._ask(self._head + self._tail).text
        self._tail.append(_message("assistant", answer))
        move = read_move(answer)
        self.has_finished = move is None
        return move

    def observe(self, text: str, *, is_error: bool) -> None:
        """The result of the last call."""
        self.hear(f"{'Failed' if is_error else 'Result'}:\n{text or '(no output)'}")

    def compact(self) -> bool:
        """Shorten the conversation when it has outgrown the window; returns whether it has."""
        waiting = sum(len(message["content"]) for message in self._tail[-2:]) / CHARS_PER_TOKEN
        fits = self._size + waiting + self.config.max_tokens <= self.config.context_tokens
        if fits or len(self._tail) <= self.config.keep_messages:
            return False
        cut = len(self._tail) - self.config.keep_messages
        old, kept = self._tail[:cut], self._tail[cut:]
        budget = int((self.config.context_tokens - self.config.max_tokens) * CHARS_PER_TOKEN)
        summary = self._ask([*_fitting([*self._head, *old], budget), _message("user", SUMMARISE)]).text.strip()
        self._tail = [_message("user", f"What you wrote down when your context was full:\n{summary}"), *kept]
        self.num_compactions += 1
        self._size = 0
        return True

    def _ask(self, messages: list[dict[str, str]]) -> Completion:
        request = Request(
            messages=tuple(_alternating(messages)), max_tokens=self.config.max_tokens, temperature=self.config.temperature,
            seed=self._seed + self.num_acts,
        )  # fmt: skip
        try:
            answer = self._backend.complete([request], deadline=time.monotonic() + self.config.timeout_s)[0]
        except (RouteError, TimeoutError) as error:
            raise UserError(
                f"{self.config.url}: the acting model does not answer ({error}); check the server and run again"
            ) from None
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self._size = answer.tokens_in + answer.tokens_out
        return answer


def read_move(answer: str) -> Move | None:
    """The call in an answer: the first fenced block. None when there is none and it says DONE."""
    found = _FENCE.search(answer)
    thought = answer[: found.start()].strip() if found else answer.strip()
    if found is None:
        return None if DONE.search(answer) else Move(thought, None)
    language, body = found.group(1).lower(), found.group(2).strip()
    if language != "json":
        return Move(thought, "bash", {"cmd": body})
    try:
        call = json.loads(body)
        return Move(thought, str(call["tool"]), dict(call.get("args") or {}))
    except (ValueError, KeyError, TypeError):
        return Move(thought, None)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _alternating(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Neighbours of one role as one message: many chat templates refuse two in a row."""
    joined: list[dict[str, str]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = _message(message["role"], f"{joined[-1]['content']}\n\n{message['content']}")
        else:
            joined.append(message)
    return joined


def _fitting(messages: list[dict[str, str]], budget_chars: int) -> list[dict[str, str]]:
    """The head and as many of the newest messages as fit."""
    head, rest = messages[:2], messages[2:]
    left = budget_chars - sum(len(message["content"]) for message in head)
    kept: list[dict[str, str]] = []
    for message in reversed(rest):
        left -= len(message["content"])
        if left < 0:
            break
        kept.append(message)
    return head + kept[::-1]
