"""LangChain's `create_agent` with its own scripted chat model, sync and async."""

import asyncio
import subprocess
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware, SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import Field

from pmem.integrations.langchain import PmemMiddleware
from tests.integrations.rig import Act, Played, Rig, Turn, run, turn


class ScriptedModel(FakeMessagesListChatModel):
    """Keeps what it was asked; fails at the calls of `failing`."""

    requests: list[str] = Field(default_factory=list)
    failing: set[int] = Field(default_factory=set)
    settle: Any = None

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedModel":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        number = len(self.requests)
        self.requests.append("\n".join(str(message.text) for message in messages))
        if self.settle is not None:
            self.settle()
        if number in self.failing:
            raise ConnectionError("the model's server went away")
        return super()._generate(messages, *args, **kwargs)


def shell(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolException(f"Exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@tool
def bash(command: str) -> str:
    """Run a shell command."""
    if command.startswith("ask "):
        interrupt("may I?")
        command = command.removeprefix("ask ")
    return shell(command)


bash.handle_tool_error = True


def message_of(act: Act, prefix: str) -> AIMessage:
    calls = [
        {"name": "bash", "args": {"command": command}, "id": f"{prefix}.{number}"} for number, command in enumerate(act.commands)
    ]
    if act.kind == "bad_args":
        calls = [{"name": "bash", "args": {"cmd": "ls"}, "id": f"{prefix}.0"}]
    elif act.kind == "unknown_tool":
        calls = [{"name": "nope", "args": {"a": 1}, "id": f"{prefix}.0"}]
    return AIMessage(act.thought, tool_calls=calls)


class LangChainRig(Rig):
    name = "langchain"
    transient = PmemMiddleware.transient
    sees_errors = PmemMiddleware.sees_errors
    sees_compaction = PmemMiddleware.sees_compaction
    has_async_twin = True
    asynchronous: ClassVar[bool] = False

    def __init__(self, *answers: Any, **options: Any) -> None:
        super().__init__(*answers, **options)
        self.middleware = PmemMiddleware(open_session=self.open_session)
        self.saver = InMemorySaver()
        self.num_acts = 0

    def play(self, *turns: Turn, thread: str = "one") -> Played:
        return self._play(turns, self._model(), [self.middleware], thread)

    def play_with_failing_call(self, *turns: Turn) -> Played:
        model = self._model()
        model.failing = {1}
        return self._play(turns, model, [self.middleware, ModelRetryMiddleware(max_retries=2, initial_delay=0.0)], "one")

    def play_interrupted(self) -> Played:
        model = self._model()
        agent = self._agent(model, [self.middleware], [bash])
        self._script(model, [run("echo one", "ask echo two")])
        self._invoke(agent, {"messages": [("user", "Go on.")]}, "one")
        model.settle()
        state = self._invoke(agent, Command(resume="yes"), "one")
        return self._played(model, state)

    def play_compaction(self) -> Played:
        summarise = SummarizationMiddleware(
            model=FakeMessagesListChatModel(responses=[AIMessage("They asked for a report.")]), trigger=("messages", 6),
            keep=("messages", 2),
        )  # fmt: skip
        acts = [run("echo one"), run("echo two"), run("echo three")]
        return self._play([turn(*acts)], self._model(), [self.middleware, summarise], "one")

    def play_subagent(self) -> Played:
        sub_model = self._model()
        sub_model.responses = [message_of(run("echo sub"), "sub"), AIMessage("sub done")]
        subagent = create_agent(sub_model, [bash], middleware=[self.middleware])

        @tool
        def delegate(task: str) -> str:
            """Hand a task to another agent."""
            return str(subagent.invoke({"messages": [("user", task)]})["messages"][-1].text)

        model = self._model()
        agent = self._agent(model, [self.middleware], [bash, delegate])
        ask = {"name": "delegate", "args": {"task": "the sub task"}, "id": "d"}
        model.responses = [message_of(run("echo main"), "main"), AIMessage("", tool_calls=[ask]), AIMessage("done")]
        return self._played(model, self._invoke(agent, {"messages": [("user", "the main task")]}, "one"))

    def num_faults(self) -> int:
        return self.middleware.guard.num_faults + sum(session.num_faults for session in self.sessions)

    def _model(self) -> ScriptedModel:
        return ScriptedModel(responses=[], requests=[], settle=self.settle)

    def _agent(self, model: Any, middleware: list[AgentMiddleware[Any, Any, Any]], tools: list[BaseTool]) -> Any:
        return create_agent(model, tools, middleware=middleware, checkpointer=self.saver)

    def _script(self, model: ScriptedModel, acts: Any) -> None:
        self.num_acts += 1
        model.i = 0
        model.responses = [message_of(act, f"{self.num_acts}.{number}") for number, act in enumerate(acts)] + [AIMessage("done")]

    def _play(self, turns: Any, model: ScriptedModel, middleware: list[Any], thread: str) -> Played:
        agent = self._agent(model, middleware, [bash])
        state: dict[str, Any] = {}
        for one in turns:
            self._script(model, one.acts)
            state = self._invoke(agent, {"messages": [("user", one.prompt)]}, thread)
            self.settle()
        return self._played(model, state)

    def _invoke(self, agent: Any, given: Any, thread: str) -> dict[str, Any]:
        config = {"configurable": {"thread_id": thread}}
        if self.asynchronous:
            return asyncio.run(agent.ainvoke(given, config))
        return agent.invoke(given, config)

    def _played(self, model: ScriptedModel, state: dict[str, Any]) -> Played:
        assert "pmem_session" not in state, "private state must not be in the output"
        messages = state["messages"]
        return Played(model.requests, "\n".join(str(message.text) for message in messages), str(messages[-1].text))


class LangChainAsyncRig(LangChainRig):
    name = "langchain-async"
    asynchronous = True
