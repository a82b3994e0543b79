"""Memory beside a LangChain or LangGraph agent, as middleware (sync and async).

    agent = create_agent(model, tools, middleware=[PmemMiddleware()])     # first in the list: outermost

A reminder rides in one model call (`request.override`) and is never part of the state; a repeated failure is annotated in its
tool result. One session a thread id; without a thread id one a run; a subagent has its own. Needs langchain >= 1.2.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from pmem.delivery import Reminder
from pmem.integrations.adapter import Conversations, Guard, OpenSession, session_opener
from pmem.integrations.langchain_messages import ToolResult, annotated, answer_of, carrying, new_prompts, spoken, summary_keys
from pmem.session import MemorySession
from pmem.settings import Settings


class PmemState(AgentState[Any]):
    """Agent state with the key of its memory session: checkpointed, in no input and no output."""

    pmem_session: NotRequired[Annotated[str, PrivateStateAttr]]


@dataclass(slots=True)
class Thread:
    """One conversation."""

    session: MemorySession
    turn_open: bool = False
    num_turns: int = 0
    summaries: set[str] = field(default_factory=set)
    """Summaries of compactions seen so far."""


class PmemMiddleware(AgentMiddleware[PmemState, Any, Any]):
    """Observes tools, carries reminders. `open_session` replaces how a thread's session is made (settings then play no part)."""

    transient = True
    sees_errors = True
    sees_compaction = True
    state_schema = PmemState

    def __init__(self, settings: Settings | None = None, *, open_session: OpenSession | None = None) -> None:
        super().__init__()
        self._open_session = open_session or session_opener(settings)
        self.guard = Guard()
        self.threads: Conversations[Thread] = Conversations()

    def before_agent(self, state: PmemState, runtime: Any) -> dict[str, Any] | None:
        with self.guard:
            key = session_key(runtime)
            self._start_turn(self._thread(key), state["messages"])
            return {"pmem_session": key}
        return None

    async def abefore_agent(self, state: PmemState, runtime: Any) -> dict[str, Any] | None:
        return self.before_agent(state, runtime)

    def after_agent(self, state: PmemState, runtime: Any) -> None:
        with self.guard:
            thread = self._thread_of(state, runtime)
            thread.turn_open = False
            thread.session.on_turn_end()
            thread.session.evaluate()

    async def aafter_agent(self, state: PmemState, runtime: Any) -> None:
        self.after_agent(state, runtime)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        thread, reminder, request = self._before_model(request)
        response = handler(request)
        self._after_model(thread, reminder, response)
        return response

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> Any:
        thread, reminder, request = self._before_model(request)
        response = await handler(request)
        self._after_model(thread, reminder, response)
        return response

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        try:
            result = handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            self._observe(request, f"{type(error).__name__}: {error}", is_error=True)
            raise
        return self._observed(request, result)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            self._observe(request, f"{type(error).__name__}: {error}", is_error=True)
            raise
        return self._observed(request, result)

    # Within

    def _thread(self, key: str) -> Thread:
        return self.threads.get(key, lambda: Thread(self._open_session()))

    def _thread_of(self, state: Any, runtime: Any) -> Thread:
        key = state.get("pmem_session") if isinstance(state, dict) else None
        return self._thread(key or session_key(runtime))

    def _start_turn(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """A turn that is still open never reached `after_agent`: an exception or a new prompt ended it."""
        if thread.turn_open:
            thread.session.on_turn_end(aborted=True)
        if thread.num_turns == 0:
            thread.summaries.update(summary_keys(messages, {}))
        thread.turn_open = True
        thread.num_turns += 1
        for message in new_prompts(messages, first_turn=thread.num_turns == 1):
            thread.session.on_user_message(str(message.text))
        thread.session.on_turn_start()

    def _before_model(self, request: ModelRequest[Any]) -> tuple[Thread | None, Reminder | None, ModelRequest[Any]]:
        """A batch of tools is in: a boundary. The request comes back with the reminder that waits, if one does, and always with
        what the session was told first: the state keeps neither."""
        thread: Thread | None = None
        with self.guard:
            thread = self._thread_of(request.state, request.runtime)
            session = thread.session
            fresh = summary_keys(request.messages, request.state) - thread.summaries
            if fresh:
                thread.summaries |= fresh
                session.on_compaction()
            session.on_batch_end()
            session.evaluate()
            reminder = session.peek()
            opening = [carrying(session.opening)] if session.opening is not None else []
            riding = [carrying(reminder)] if reminder is not None else []
            if opening or riding:
                return thread, reminder, request.override(messages=[*opening, *request.messages, *riding])
        return thread, None, request

    def _after_model(self, thread: Thread | None, reminder: Reminder | None, response: Any) -> None:
        """The model call returned: the reminder was seen. Its calls are declared in their order, whatever order they end in."""
        if thread is None:
            return
        with self.guard:
            if thread.session.opening is not None:
                thread.session.opening.told()
            if reminder is not None:
                thread.session.commit(reminder)
            for message in getattr(response, "result", [response]):
                if not isinstance(message, AIMessage):
                    continue
                thread.session.on_agent_text(spoken(message))
                for call in message.tool_calls:
                    thread.session.on_tool_call(tool=call["name"], args=call["args"], call_id=call["id"], batch_id=message.id)

    def _observed(self, request: ToolCallRequest, result: ToolResult) -> ToolResult:
        with self.guard:
            message = answer_of(result, request.tool_call["id"])
            if message is None:
                self._observe(request, "")
                return result
            note = self._observe(request, str(message.text), is_error=message.status == "error")
            if note is not None:
                return annotated(result, message, note)
        return result

    def _observe(self, request: ToolCallRequest, text: str, *, is_error: bool = False) -> str | None:
        with self.guard:
            call = request.tool_call
            session = self._thread_of(request.state, request.runtime).session
            return session.on_tool_result(tool=call["name"], args=call["args"], text=text, is_error=is_error, call_id=call["id"])
        return None


def session_key(runtime: Any) -> str:
    """Thread id and place in the graph. An agent called by a tool is a subagent: each call of it is a conversation of its own,
    as is a run without a thread id. An agent that is a node of a larger graph keeps its memory over the turns of the thread."""
    info = getattr(runtime, "execution_info", None)
    thread_id = getattr(info, "thread_id", None)
    if thread_id is None:
        return f"run/{secrets.token_hex(8)}"
    parents = (getattr(info, "checkpoint_ns", "") or "").split("|")[:-1]
    return "/".join([str(thread_id), *(part if part.startswith("tools:") else part.partition(":")[0] for part in parents)])
