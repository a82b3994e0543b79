"""Memory beside a mini-swe-agent.

    agent = MemoryAgent(model, env, **config)             # instead of DefaultAgent(model, env, **config)
    mini --agent-class pmem.integrations.mini_swe_agent.MemoryAgent …

    class Mine(WithMemory, InteractiveAgent): …           # any other agent class

A reminder rides in one `query` and leaves the trajectory as it came; a repeated failure is annotated in its output. Needs version 2.
"""

from typing import Any

from minisweagent import Environment
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import FormatError, InterruptAgentFlow
from minisweagent.models.utils.content_string import get_content_string

from pmem.connect import open_session
from pmem.delivery import Reminder
from pmem.integrations.adapter import Guard
from pmem.session import MemorySession

TOOL = "bash"
PERSON = frozenset({"UserInterruption", "UserRejection", "UserNewTask"})
"""`interrupt_type` of messages in which the person speaks during a run."""


class WithMemory(DefaultAgent):
    """Mix-in for `DefaultAgent` and its subclasses. `memory`: the session, by default one as the settings say."""

    transient = True
    sees_errors = True
    sees_compaction = False

    def __init__(self, *args: Any, memory: MemorySession | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.memory, self.guard = memory or open_session(), Guard()

    def run(self, task: str = "", **kwargs: Any) -> dict[str, Any]:
        with self.guard:
            self.memory.on_user_message(task)
            self.memory.on_turn_start()
        opening, aborted = self.memory.opening, True
        try:
            result = super().run(f"{opening.block}\n\n{task}" if opening else task, **kwargs)
            aborted = False
            return result
        finally:
            with self.guard:
                self.memory.on_turn_end(aborted=aborted)
                self.memory.evaluate()

    def add_messages(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        for message in messages:
            with self.guard:
                if message.get("extra", {}).get("interrupt_type") in PERSON:
                    self.memory.on_user_message(get_content_string(message))
        return super().add_messages(*messages)

    def query(self) -> dict[str, Any]:
        reminder, carried = self._carry()
        try:
            message = super().query()
        except FormatError as error:
            self._observe_unreadable(error)
            raise
        finally:
            if carried is not None:
                self.messages[:] = [message for message in self.messages if message is not carried]
        with self.guard:
            if message.get("role") != "user":  # in human mode nobody asked the model
                if self.memory.opening is not None:
                    self.memory.opening.told()
                if reminder is not None:
                    self.memory.commit(reminder)
                self.memory.on_agent_text(stated(message))
        return message

    def execute_actions(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        env, self.env = self.env, ObservedEnvironment(self.env, self)
        try:
            return super().execute_actions(message)
        finally:
            self.env = env

    def observe(self, action: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
        """Take one output in; it comes back with an advisory at its end when the same failure is repeated."""
        with self.guard:
            problem = output.get("exception_info") or ""
            note = self.memory.on_tool_result(
                tool=TOOL,
                args={"command": action.get("command", "")},
                text="\n".join(part for part in (output.get("output") or "", problem) if part),
                is_error=bool(problem) or output.get("returncode") not in (0, None),
                call_id=action.get("tool_call_id"),
            )
            if note is not None:
                return {**output, "output": f"{output.get('output') or ''}\n\n{note}"}
        return output

    def _carry(self) -> tuple[Reminder | None, dict[str, Any] | None]:
        """A batch is in: a boundary. The reminder that waits, and the message it rides in, which now stands last."""
        with self.guard:
            self.memory.on_batch_end()
            self.memory.evaluate()
            if (reminder := self.memory.peek()) is not None:
                carried: dict[str, Any] = self.model.format_message(role="user", content=reminder.block)
                self.messages.append(carried)
                self.logger.info("%s", reminder.block)
                return reminder, carried
        return None, None

    def _observe_unreadable(self, error: FormatError) -> None:
        """The answer held no call that can be run: bad arguments, an unknown tool, none at all."""
        with self.guard:
            told = error.messages[-1]
            text = get_content_string(told)
            args = {"answer": told.get("extra", {}).get("model_response") or text}
            note = self.memory.on_tool_result(tool=TOOL, args=args, text=text, is_error=True)
            if note is not None and isinstance(told.get("content"), str):
                told["content"] += f"\n\n{note}"


class MemoryAgent(WithMemory, DefaultAgent):
    """`DefaultAgent` with memory."""


def stated(message: dict[str, Any]) -> str:
    """What the model said around its commands, which stand in fences (here or by `get_content_string`)."""
    return " ".join(get_content_string(message).split("```")[::2])


class ObservedEnvironment:
    """The agent's environment while a batch runs: outputs are observed as they come, not when the batch is over."""

    def __init__(self, env: Environment, agent: WithMemory) -> None:
        self._env, self._agent = env, agent

    def execute(self, action: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            output = self._env.execute(action, *args, **kwargs)
        except InterruptAgentFlow:
            raise
        except Exception as error:
            self._agent.observe(action, {"exception_info": f"{type(error).__name__}: {error}"})
            raise
        return self._agent.observe(action, output)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
