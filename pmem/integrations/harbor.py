"""Memory beside Harbor's Terminus 2, for Terminal-Bench and every other Harbor task.

    harbor run -d terminal-bench@2.0 -a pmem.integrations.harbor:MemoryTerminus2 -m openai/…      # settings: PMEM_… or pmem.yaml

    class Mine(WithMemory, MyTerminus): …                 # any other subclass of Terminus2

A reminder stands at the end of one prompt and leaves the chat as it came; after a summary the bank is restored once. What memory
cost stands under its own key in `context.model_usage`, which entries were said in `context.metadata["pmem"]`. Harbor shows the
terminal, not exit codes, so only a command that ran out of time counts as a failure. Needs harbor >= 0.26 (Python 3.12).
"""

from collections.abc import Callable
from typing import Any

from harbor.agents.terminus_2 import Terminus2
from harbor.models.agent.context import AgentContext, ModelUsage

from pmem.connect import open_session
from pmem.delivery import Delivered
from pmem.integrations.adapter import Guard
from pmem.session import MemorySession
from pmem.telemetry import Ledger

TOOL = "bash"
KEY = "pmem/"
"""Before the memory model's name in `context.model_usage`."""


class WithMemory(Terminus2):
    """Mix-in for `Terminus2` and its subclasses. `open_memory` opens the session of one run, by default as the settings say."""

    transient = True
    sees_errors = False
    sees_compaction = True

    def __init__(self, *args: Any, open_memory: Callable[..., MemorySession] = open_session, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open_memory = open_memory
        self._begin()

    @staticmethod
    def name() -> str:
        return "terminus-2-pmem"

    def _begin(self) -> None:
        """A fresh session and ledger: one agent object serves several runs of a trial."""
        self.guard = Guard()
        self.ledger = Ledger()
        self.delivered: list[Delivered] = []
        self.memory = self._open_memory(on_delivered=self.delivered.append, also=self.ledger)
        self._summaries_seen = 0

    async def run(self, instruction: str, environment: Any, context: AgentContext) -> None:
        self._begin()
        with self.guard:
            self.memory.on_user_message(instruction)
            self.memory.on_turn_start()
        aborted = True
        try:
            await super().run(instruction, environment, context)
            aborted = False
        finally:
            with self.guard:
                self.memory.on_turn_end(aborted=aborted)
                self.memory.close()
                book(context, self.ledger, self.delivered, agent_model=self._model_name)

    async def _handle_llm_interaction(self, chat: Any, prompt: str, *args: Any, **kwargs: Any) -> Any:
        """A boundary: what the terminal showed is in, the model is about to be asked."""
        reminder = block = None
        with self.guard:
            if self._summarization_count > self._summaries_seen:
                self._summaries_seen = self._summarization_count
                self.memory.on_compaction()
                self.memory.on_turn_start()
            self.memory.on_batch_end()
            self.memory.evaluate()
            reminder = self.memory.peek()
            block = f"\n\n{reminder.block}" if reminder else None
        try:
            answer = await super()._handle_llm_interaction(chat, prompt + (block or ""), *args, **kwargs)
        finally:
            with self.guard:
                forget(chat, block)
        with self.guard:
            if reminder is not None:
                self.memory.commit(reminder)
            _, _, feedback, analysis, plan, response = answer
            self.memory.on_agent_text("\n".join(part for part in (analysis, plan) if part))
            if "ERROR:" in feedback:  # nothing will run: the answer held no commands that can be read
                self.memory.on_tool_result(tool=TOOL, args={"answer": response.content}, text=feedback, is_error=True)
        return answer

    async def _execute_commands(self, commands: list[Any], session: Any) -> tuple[bool, str]:
        timed_out, output = await super()._execute_commands(commands, session)
        with self.guard:
            keys = "".join(command.keystrokes for command in commands)
            note = (
                self.memory.on_tool_result(tool=TOOL, args={"command": keys}, text=output, is_error=timed_out) if keys else None
            )
            if note is not None:
                return timed_out, f"{output}\n\n{note}"
        return timed_out, output


class MemoryTerminus2(WithMemory, Terminus2):
    """`Terminus2` with memory."""


def forget(chat: Any, block: str | None) -> None:
    """Take the block out of what the chat keeps, so that later prompts do not repeat it."""
    if block is None:
        return
    for message in chat.messages:
        if message.get("role") == "user" and isinstance(message.get("content"), str) and block in message["content"]:
            message["content"] = message["content"].replace(block, "")
            chat.reset_response_chain()


def book(context: AgentContext, ledger: Ledger, delivered: list[Delivered], *, agent_model: str) -> None:
    """Write what memory spent under keys of its own; the totals of the context stay the agent's."""
    usage = dict(context.model_usage or {})
    if agent_model not in usage:
        usage[agent_model] = ModelUsage(
            n_input_tokens=context.n_input_tokens or 0, n_cache_tokens=context.n_cache_tokens or 0,
            n_output_tokens=context.n_output_tokens or 0, cost_usd=context.cost_usd,
        )  # fmt: skip
    for row in ledger.usages:
        spent = usage.setdefault(f"{KEY}{row.model}", ModelUsage())
        spent.n_input_tokens += row.tokens_in
        spent.n_cache_tokens += row.cached_tokens
        spent.n_output_tokens += row.tokens_out
    context.model_usage = usage
    outcomes: dict[str, int] = {}
    for step in ledger.steps:
        name = f"{step.decision}/{step.reason}"
        outcomes[name] = outcomes.get(name, 0) + 1
    said = [{"channel": event.channel, "entries": list(event.entry_ids)} for event in delivered]
    context.metadata = {**(context.metadata or {}), "pmem": {"delivered": said, "outcomes": outcomes}}
