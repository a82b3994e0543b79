"""What is LangChain's own: threads and runs, commands, exceptions on their way out, graphs around the agent, retries outside."""

from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("langchain") is None:
    pytest.skip("langchain is not installed", allow_module_level=True)

from typing import Annotated

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from pmem.integrations.adapter import Conversations
from pmem.integrations.langchain import PmemMiddleware
from pmem.integrations.langchain_messages import SUMMARY_SOURCE, annotated, new_prompts, summary_keys
from pmem.integrations.langchain_thread import Thread
from tests.integrations.rig import BLOCK, FAILS, REMIND, outcomes, run, turn, window
from tests.integrations.rig_langchain import LangChainRig, ScriptedModel, bash, message_of
from tests.pmem.policies import says

ONE = {"configurable": {"thread_id": "one"}}


def user(words: str) -> dict[str, Any]:
    return {"messages": [("user", words)]}


def scripted(rig: LangChainRig, *acts: Any, prefix: str = "m") -> ScriptedModel:
    messages = [message_of(act, f"{prefix}.{number}") for number, act in enumerate(acts)]
    return ScriptedModel(responses=[*messages, AIMessage("done")], settle=rig.settle)


def task_of(session: Any) -> tuple[str, ...]:
    session.on_manual()
    snapshot = session.prepare()
    assert snapshot is not None
    return snapshot.task_messages


def test_runs_without_a_thread_id_are_strangers() -> None:
    rig = LangChainRig()
    for word in ("alpha", "beta"):
        agent = create_agent(scripted(rig, run(f"echo {word}")), [bash], middleware=[rig.middleware])
        out = agent.invoke(user(f"the {word} task"))
        assert "pmem_session" not in out
    assert [task_of(session) for session in rig.sessions] == [("the alpha task",), ("the beta task",)]
    assert [len(session.window()) for session in rig.sessions] == [1, 1]


def test_a_thread_id_without_a_checkpointer_keeps_memory_and_counts_each_prompt_once() -> None:
    rig = LangChainRig(cadence=100)
    history: list[Any] = [("user", "the task")]
    for number, words in enumerate(("and in EUR", "and sorted")):
        agent = create_agent(scripted(rig, run(f"echo {number}"), prefix=str(number)), [bash], middleware=[rig.middleware])
        history = [*agent.invoke({"messages": history}, ONE)["messages"], ("user", words)]
    agent.invoke({"messages": history}, ONE)
    assert task_of(rig.session) == ("the task", "and in EUR", "and sorted")
    assert len(rig.session.window()) == 2 and rig.session.inspect()["num_turns"] == 3


def test_a_thread_that_began_without_us_tells_its_prompts_and_its_old_summary_is_no_compaction() -> None:
    rig = LangChainRig(cadence=100)
    old = [
        HumanMessage("Here is a summary", additional_kwargs={"lc_source": SUMMARY_SOURCE}),
        HumanMessage("the task"), AIMessage("ok"), HumanMessage("in EUR"),
    ]  # fmt: skip
    agent = create_agent(scripted(rig, run("echo one")), [bash], middleware=[rig.middleware])
    agent.invoke({"messages": old}, ONE)
    assert task_of(rig.session) == ("the task", "in EUR") and outcomes(rig.session) == []


def test_an_exception_of_a_tool_is_observed_and_goes_on_its_way() -> None:
    rig = LangChainRig(says(REMIND))

    @tool
    def explode() -> str:
        """Explode."""
        raise ValueError("kaboom")

    call = AIMessage("", tool_calls=[{"name": "explode", "args": {}, "id": "x"}])
    model = ScriptedModel(responses=[message_of(run("echo one"), "a"), call, message_of(run("echo two"), "b"), AIMessage("done")])
    agent = create_agent(model, [bash, explode], middleware=[rig.middleware], checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="kaboom"):
        agent.invoke(user("go"), ONE)
    assert [(step["outcome"], step["digest"]) for step in window(rig.session)][-1] == ("error", "ValueError: kaboom")
    rig.settle()
    agent.invoke(user("go on"), ONE)
    assert BLOCK not in "".join(model.requests[-2:]) or rig.delivered, "what the broken turn earned is dropped or was said"
    assert rig.session.inspect()["num_turns"] == 2


def test_a_tool_that_returns_a_command_is_observed_and_annotated() -> None:
    rig = LangChainRig(cadence=100)

    @tool
    def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Take a note."""
        answer = ToolMessage(f"disk full while noting {text}", tool_call_id=tool_call_id, status="error")
        return Command(update={"messages": [answer]})

    calls = [AIMessage("", tool_calls=[{"name": "note", "args": {"text": "x"}, "id": f"n{number}"}]) for number in (1, 2)]
    agent = create_agent(ScriptedModel(responses=[*calls, AIMessage("done")]), [note], middleware=[rig.middleware])
    out = agent.invoke(user("note it"), ONE)
    assert [step["outcome"] for step in window(rig.session)] == ["error", "error"]
    answers = [str(message.text) for message in out["messages"] if isinstance(message, ToolMessage)]
    assert "Memory:" not in answers[0] and "already failed at step 1" in answers[1]


def test_a_note_goes_behind_blocks_of_content_too() -> None:
    message = ToolMessage([{"type": "text", "text": "a"}], tool_call_id="1")
    found = annotated(message, message, BLOCK)
    assert isinstance(found, ToolMessage) and str(found.text) == f"a{BLOCK}" and str(message.text) == "a"


def test_an_agent_that_is_a_node_keeps_its_memory_over_turns() -> None:
    rig = LangChainRig(cadence=100)
    model = scripted(rig, run("echo one"), prefix="1")
    agent = create_agent(model, [bash], middleware=[rig.middleware])
    graph = StateGraph(MessagesState)
    graph.add_node("worker", agent)
    graph.add_edge(START, "worker")
    graph.add_edge("worker", END)
    whole = graph.compile(checkpointer=InMemorySaver())
    whole.invoke(user("the task"), ONE)
    model.i, model.responses = 0, [message_of(run("echo two"), "2"), AIMessage("done")]
    whole.invoke(user("in EUR"), ONE)
    assert task_of(rig.session) == ("the task", "in EUR") and len(rig.session.window()) == 2


def test_a_retry_outside_is_one_delivery_as_well() -> None:
    rig = LangChainRig(says(REMIND))
    model = scripted(rig, run("echo one"), run("echo two"), run("echo three"))
    model.failing = {2}
    middleware: list[AgentMiddleware[Any, Any, Any]] = [ModelRetryMiddleware(max_retries=2, initial_delay=0.0), rig.middleware]
    agent = create_agent(model, [bash], middleware=middleware)
    agent.invoke(user("go"), ONE)
    assert [request.count(BLOCK) for request in model.requests] == [0, 0, 1, 1, 0] and len(rig.delivered) == 1


def test_a_stream_shows_no_reminder() -> None:
    rig = LangChainRig(says(REMIND))
    model = scripted(rig, run("echo one"), run("echo two"), run("echo three"))
    agent = create_agent(model, [bash], middleware=[rig.middleware])
    seen = [str(part) for mode in (["updates", "values"],) for part in agent.stream(user("go"), ONE, stream_mode=mode)]
    assert rig.delivered and not any(REMIND in part for part in seen)


def test_deepagents_notes_its_summaries_in_the_state() -> None:
    class Noted(AgentState[Any]):
        _summarization_event: dict[str, Any]

    class Summarising(AgentMiddleware[Any, Any, Any]):
        state_schema = Noted

        def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            return {"_summarization_event": {"cutoff_index": 4}} if len(state["messages"]) > 4 else None

    rig = LangChainRig(cadence=100)
    model = scripted(rig, run("echo one"), run("echo two"), run("echo three"))
    create_agent(model, [bash], middleware=[rig.middleware, Summarising()]).invoke(user("go"), ONE)
    assert [request.count("restored after compaction") for request in model.requests] == [0, 0, 1, 0]
    assert summary_keys([], {"_summarization_event": None}) == set() == summary_keys([], None)


def test_whose_words_are_prompts() -> None:
    own = HumanMessage(BLOCK, additional_kwargs={"lc_source": "pmem"})
    messages = [HumanMessage("a"), AIMessage("x"), HumanMessage("b"), own, HumanMessage("c")]
    assert [m.text for m in new_prompts(messages, first_turn=True)] == ["a", "b", "c"]
    assert [m.text for m in new_prompts(messages, first_turn=False)] == ["b", "c"]


def test_conversations_are_bounded_and_the_oldest_is_closed() -> None:
    rig = LangChainRig(says(REMIND))
    held: Conversations[Thread] = Conversations(limit=2)
    first = held.get("a", lambda: Thread(rig.open_session()))
    held.get("b", lambda: Thread(rig.open_session()))
    assert held.get("a", lambda: Thread(rig.open_session())) is first
    held.get("c", lambda: Thread(rig.open_session()))
    assert list(held.held()) == ["a", "c"]
    held.close()
    assert held.held() == {}


def test_settings_that_cannot_work_are_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmem.errors import UserError

    monkeypatch.setenv("PMEM_NONSENSE", "1")
    with pytest.raises(UserError, match="PMEM_NONSENSE"):
        PmemMiddleware()


def test_disabled_is_as_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PMEM_ENABLED", "false")
    monkeypatch.setenv("PMEM_STATE_DIR", str(tmp_path / "state"))
    model = ScriptedModel(responses=[message_of(run(FAILS), "1"), message_of(run(FAILS), "2"), AIMessage("done")])
    out = create_agent(model, [bash], middleware=[PmemMiddleware()]).invoke(user("go"), ONE)
    assert "Memory:" not in str(out) and not (tmp_path / "state").exists()


def test_what_is_said_while_tools_run_on_threads() -> None:
    rig = LangChainRig(cadence=100)
    commands = [f"sleep 0.0{9 - number}; echo {number}" for number in range(8)]
    rig.play(turn(run(*commands)))
    assert [step["digest"] for step in window(rig.session)] == [str(number) for number in range(8)]
