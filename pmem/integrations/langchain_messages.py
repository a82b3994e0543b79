"""What the middleware reads from LangChain messages and writes into them."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from pmem.delivery import Opening, Reminder

SOURCE = "pmem"
"""`lc_source` of a message of ours."""
SUMMARY_SOURCE = "summarization"
"""`lc_source` that LangChain gives the message which takes the place of summarised ones."""

ToolResult = ToolMessage | Command[Any]


def carrying(said: Reminder | Opening) -> HumanMessage:
    """The message that a reminder rides in, or what the session is told first."""
    return HumanMessage(content=said.block, additional_kwargs={"lc_source": SOURCE})


def new_prompts(messages: Sequence[BaseMessage], *, first_turn: bool) -> list[HumanMessage]:
    """What the user said since the agent last spoke; everything they said when the conversation is new to us."""
    prompts: list[HumanMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and not first_turn:
            prompts.clear()
        elif isinstance(message, HumanMessage) and message.additional_kwargs.get("lc_source") not in (SOURCE, SUMMARY_SOURCE):
            prompts.append(message)
    return prompts


def summary_keys(messages: Sequence[BaseMessage], state: Any) -> set[str]:
    """One key a summary that took the place of messages: LangChain marks the message, deepagents notes it in the state."""
    found = {
        str(message.id or message.text)
        for message in messages
        if isinstance(message, HumanMessage) and message.additional_kwargs.get("lc_source") == SUMMARY_SOURCE
    }
    event = state.get("_summarization_event") if isinstance(state, dict) else None
    if isinstance(event, dict):
        found.add(f"cutoff {event.get('cutoff_index')}")
    return found


def spoken(message: AIMessage) -> str:
    """What the model thought and said, in its order."""
    parts = [str(block.get("reasoning") or block.get("text") or "") for block in message.content_blocks]
    return " ".join(part for part in parts if part)


def answer_of(result: ToolResult, call_id: str | None) -> ToolMessage | None:
    """The message that answers the call; a tool may return a command that carries it."""
    if isinstance(result, ToolMessage):
        return result
    update = getattr(result, "update", None)
    messages = update.get("messages", []) if isinstance(update, dict) else []
    return next((m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id), None)


def annotated(result: ToolResult, message: ToolMessage, note: str) -> ToolResult:
    """`result` with the note at the end of its answer."""
    content = message.content
    longer: Any = f"{content}\n\n{note}" if isinstance(content, str) else [*content, {"type": "text", "text": note}]
    replaced = message.model_copy(update={"content": longer})
    if isinstance(result, ToolMessage):
        return replaced
    assert isinstance(result.update, dict)
    messages = [replaced if m is message else m for m in result.update["messages"]]
    return Command(graph=result.graph, update={**result.update, "messages": messages}, resume=result.resume, goto=result.goto)
