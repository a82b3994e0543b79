"""Memory beside a LangChain or LangGraph agent, as middleware (sync and async).

    agent = create_agent(model, tools, middleware=[PmemMiddleware()])     # first in the list: outermost

A reminder rides in one model call (`request.override`) and is never part of the state; a repeated failure is annotated in its
tool result. One session a thread id; without a thread id one a run; a subagent has its own. Needs langchain >= 1.2.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest
from langchain.agents.middleware.types import PrivateStateAttr
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from pmem.delivery import Reminder
from pmem.integrations.adapter import Conversations, Guard, OpenSession, session_opener
from pmem.integrations.langchain_messages import ToolResult
from pmem.integrations.langchain_thread import Thread, session_key
from pmem.settings import Settings


class PmemState(AgentState[Any]):
    """Agent state with the key of its memory session: checkpointed, in no input and no output."""

    pmem_session: NotRequired[Annotated[str, PrivateStateAttr]]


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
            self._thread(key).start_turn(state["messages"])
            return {"pmem_session": key}
        return None

    async def abefore_agent(self, state: PmemState, runtime: Any) -> dict[str, Any] | None:
        return self.before_agent(state, runtime)

    def after_agent(self, state: PmemState, runtime: Any) -> None:
        with self.guard:
            self._thread_of(state, runtime).end_turn()

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
            self._failed(request, error)
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
            self._failed(request, error)
            raise
        return self._observed(request, result)

    # Within

    def _thread(self, key: str) -> Thread:
        return self.threads.get(key, lambda: Thread(self._open_session()))

    def _thread_of(self, state: Any, runtime: Any) -> Thread:
        key = state.get("pmem_session") if isinstance(state, dict) else None
        return self._thread(key or session_key(runtime))

    def _before_model(self, request: ModelRequest[Any]) -> tuple[Thread | None, Reminder | None, ModelRequest[Any]]:
        thread: Thread | None = None
        with self.guard:
            thread = self._thread_of(request.state, request.runtime)
            return thread, *thread.before_model(request)
        return thread, None, request

    def _after_model(self, thread: Thread | None, reminder: Reminder | None, response: Any) -> None:
        if thread is not None:
            with self.guard:
                thread.after_model(reminder, response)

    def _observed(self, request: ToolCallRequest, result: ToolResult) -> ToolResult:
        with self.guard:
            return self._thread_of(request.state, request.runtime).answered(request, result)
        return result

    def _failed(self, request: ToolCallRequest, error: Exception) -> None:
        with self.guard:
            text = f"{type(error).__name__}: {error}"
            self._thread_of(request.state, request.runtime).observe(request, text, is_error=True)
