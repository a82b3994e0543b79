"""One LangChain conversation: what the middleware's hooks mean for its memory session."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from pmem.delivery import Reminder
from pmem.integrations.langchain_messages import ToolResult, annotated, answer_of, carrying, new_prompts, spoken, summary_keys
from pmem.session import MemorySession


@dataclass(slots=True)
class Thread:
    """One conversation."""

    session: MemorySession
    turn_open: bool = False
    num_turns: int = 0
    summaries: set[str] = field(default_factory=set)
    """Summaries of compactions seen so far."""

    def start_turn(self, messages: Sequence[BaseMessage]) -> None:
        """A turn that is still open never reached its end: an exception or a new prompt ended it."""
        if self.turn_open:
            self.session.on_turn_end(aborted=True)
        if self.num_turns == 0:
            self.summaries.update(summary_keys(messages, {}))
        self.turn_open = True
        self.num_turns += 1
        for message in new_prompts(messages, first_turn=self.num_turns == 1):
            self.session.on_user_message(str(message.text))
        self.session.on_turn_start()

    def end_turn(self) -> None:
        """A boundary."""
        self.turn_open = False
        self.session.on_turn_end()
        self.session.evaluate()

    def before_model(self, request: ModelRequest[Any]) -> tuple[Reminder | None, ModelRequest[Any]]:
        """A batch of tools is in: a boundary. The request comes back with the reminder that waits, if one does, and always with
        what the session was told first: the state keeps neither."""
        fresh = summary_keys(request.messages, request.state) - self.summaries
        if fresh:
            self.summaries |= fresh
            self.session.on_compaction()
        self.session.on_batch_end()
        self.session.evaluate()
        reminder = self.session.peek()
        opening = [carrying(self.session.opening)] if self.session.opening is not None else []
        riding = [carrying(reminder)] if reminder is not None else []
        if opening or riding:
            request = request.override(messages=[*opening, *request.messages, *riding])
        return reminder, request

    def after_model(self, reminder: Reminder | None, response: Any) -> None:
        """The model call returned: the reminder was seen. Its calls are declared in their order, whatever order they end in."""
        if self.session.opening is not None:
            self.session.opening.told()
        if reminder is not None:
            self.session.commit(reminder)
        for message in getattr(response, "result", [response]):
            if not isinstance(message, AIMessage):
                continue
            self.session.on_agent_text(spoken(message))
            for call in message.tool_calls:
                self.session.on_tool_call(tool=call["name"], args=call["args"], call_id=call["id"], batch_id=message.id)

    def answered(self, request: ToolCallRequest, result: ToolResult) -> ToolResult:
        """A tool answered; its result comes back with an advisory at its end when the same failure is repeated."""
        message = answer_of(result, request.tool_call["id"])
        if message is None:
            self.observe(request, "")
            return result
        note = self.observe(request, str(message.text), is_error=message.status == "error")
        return result if note is None else annotated(result, message, note)

    def observe(self, request: ToolCallRequest, text: str, *, is_error: bool = False) -> str | None:
        """One completed call."""
        call = request.tool_call
        return self.session.on_tool_result(tool=call["name"], args=call["args"], text=text, is_error=is_error, call_id=call["id"])


def session_key(runtime: Any) -> str:
    """Thread id and place in the graph. An agent called by a tool is a subagent: each call of it is a conversation of its own,
    as is a run without a thread id. An agent that is a node of a larger graph keeps its memory over the turns of the thread."""
    info = getattr(runtime, "execution_info", None)
    thread_id = getattr(info, "thread_id", None)
    if thread_id is None:
        return f"run/{secrets.token_hex(8)}"
    parents = (getattr(info, "checkpoint_ns", "") or "").split("|")[:-1]
    return "/".join([str(thread_id), *(part if part.startswith("tools:") else part.partition(":")[0] for part in parents)])
