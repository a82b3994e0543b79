"""A host that calls the installed hook as Claude Code and Codex do: real processes, a real socket, the daemon of this test's rig.

The events are those that the clients' documentation gives (and that Claude Code 2.1 was seen to send, see test_claude_code.py).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

from pmem.integrations.hook.client import socket_name
from pmem.integrations.hook.conversation import bare_text
from pmem.integrations.hook.daemon import Daemon
from pmem.integrations.hook.dialects import CLAUDE, CODEX, Dialect
from pmem.integrations.hook.install import HookConfig, write_client
from pmem.live import ask_at
from pmem.session import MemorySession
from pmem.settings import Settings
from tests.integrations.rig import BLOCK, Act, Played, Rig, Turn, run, turn

PYTHON = os.path.realpath(sys.executable)


class HookHost:
    """A project folder with an installed hook, and the daemon behind it in this process."""

    def __init__(self, daemon: Daemon, *, client: str, live: bool = True, deadline_ms: int = 4_000) -> None:
        self.daemon = daemon
        self.client = client
        self.root = Path(tempfile.mkdtemp(prefix="pmem"))  # a socket's path must be short
        self.project = self.root / "project"
        self.project.mkdir()
        self.settings = Settings(state_dir=self.root / "state", data_dir=self.root / "data")
        self.script = write_client(self.settings, HookConfig(live=live, deadline_ms=deadline_ms))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.socket_file))
        self.listener.listen(64)
        self._running = threading.Event()
        self._running.set()
        self._thread = threading.Thread(
            target=daemon.serve, args=(self.listener,), kwargs={"idle_s": 600, "reachable": self._running.is_set}
        )
        self._thread.start()

    @property
    def socket_file(self) -> Path:
        return self.settings.state_dir / socket_name(os.fsencode(self.project))

    def fire(self, event: dict[str, Any] | bytes, *, stdout: int = subprocess.PIPE) -> dict[str, Any] | None:
        """Run the hook for one event as the client would; its answer."""
        done = subprocess.run(
            [PYTHON, "-I", "-S", str(self.script), self.client],
            input=event if isinstance(event, bytes) else json.dumps(event).encode(), stdout=stdout, stderr=subprocess.PIPE,
            cwd=self.project, env={"CLAUDE_PROJECT_DIR": str(self.project)}, check=False, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == b""
        return read_answer(done.stdout or b"")

    def close(self) -> None:
        self._running.clear()
        ask_at(self.socket_file, {"op": "status"})  # wakes it
        self._thread.join(10)
        self.daemon.close()
        self.listener.close()
        shutil.rmtree(self.root)


def read_answer(printed: bytes) -> dict[str, Any] | None:
    """Exactly one JSON object, or nothing."""
    if not printed:
        return None
    value = json.loads(printed)
    assert isinstance(value, dict) and printed.count(b"\n") == 1
    return value


class HookRig(Rig):
    transient = False
    dialect: ClassVar[Dialect]

    def __init__(self, *answers: Any, **options: Any) -> None:
        super().__init__(*answers, **options)
        self.fails_to_open = False
        self.daemon = Daemon(self._open)
        self.host = HookHost(self.daemon, client=self.dialect.name)
        self.histories: dict[str, list[str]] = {}
        self.num_calls = 0

    def _open(self, session_id: str, live: bool, folder: str) -> MemorySession:
        return self.open_session()

    def play(self, *turns: Turn, thread: str = "one") -> Played:
        return self._play(turns, thread)

    def play_with_failing_call(self, *turns: Turn) -> Played:
        return self._play(turns, "one", unread=1)

    def num_faults(self) -> int:
        return self.daemon.counts["faults"] + sum(session.num_faults for session in self.sessions)

    def close(self) -> None:
        self.host.close()

    # The host

    def _play(self, turns: Any, thread: str, unread: int | None = None) -> Played:
        played = Played()
        history = self.histories.setdefault(thread, [])
        for one in turns:
            self.tell(thread, {"hook_event_name": "UserPromptSubmit", "prompt": one.prompt}, after=one.prompt)
            for number, act in enumerate(one.acts):
                self.call_model(thread, played, act.thought)
                self.act(thread, act, unread=number == unread)
            self.call_model(thread, played, "done")
            self.tell(thread, {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "done"})
        played.history, played.answer = "\n".join(history), history[-1]
        return played

    def call_model(self, thread: str, played: Played, words: str) -> None:
        played.requests.append("\n".join(self.histories[thread]))
        self.settle()
        if words:
            self.histories[thread].append(words)
            with self.transcript(thread).open("a") as stream:
                stream.write(json.dumps(self.spoken(words)) + "\n")

    def tell(self, thread: str, event: dict[str, Any], *, after: str = "", stdout: int = subprocess.PIPE) -> None:
        """Fire an event; `after` goes into the history before the context that the hook adds."""
        answer = self.host.fire({**self.common(thread), **event}, stdout=stdout)
        history = self.histories.setdefault(thread, [])
        if after:
            history.append(after)
        if answer is not None:
            assert answer["hookSpecificOutput"]["hookEventName"] == event["hook_event_name"]
            history.append(self.shown(event["hook_event_name"], answer["hookSpecificOutput"]["additionalContext"]))
        self.settle()

    def shown(self, event_name: str, context: str) -> str:
        """The context as the agent reads it."""
        return context

    def transcript(self, thread: str) -> Path:
        return self.host.root / f"{thread.replace('/', '-')}.jsonl"

    def common(self, thread: str) -> dict[str, Any]:
        raise NotImplementedError

    def spoken(self, words: str) -> dict[str, Any]:
        raise NotImplementedError

    def act(self, thread: str, act: Act, *, unread: bool = False) -> None:
        raise NotImplementedError

    def next_id(self) -> str:
        self.num_calls += 1
        return f"toolu_{self.num_calls}"


class ClaudeRig(HookRig):
    name = "claude-code"
    dialect = CLAUDE
    sees_errors = CLAUDE.sees_errors
    sees_compaction = CLAUDE.sees_compaction
    block = bare_text(BLOCK)

    def shown(self, event_name: str, context: str) -> str:
        """Claude Code wraps it and escapes the tags inside."""
        context = context.replace("<system-reminder>", "&lt;system-reminder>")
        return f"<system-reminder>\n{event_name} hook additional context: {context}\n</system-reminder>"

    def common(self, thread: str) -> dict[str, Any]:
        session, _, agent = thread.partition("/")
        transcript = self.transcript(session)
        transcript.touch()
        subagent = {"agent_id": agent, "agent_type": "general-purpose"} if agent else {}
        return {
            "session_id": session, "transcript_path": str(transcript), "cwd": str(self.host.project), "prompt_id": "p1",
            "permission_mode": "default", **subagent,
        }  # fmt: skip

    def spoken(self, words: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": [{"type": "text", "text": words}]}
        return {"parentUuid": "x", "isSidechain": False, "message": message, "type": "assistant"}

    def act(self, thread: str, act: Act, *, unread: bool = False) -> None:
        calls: list[dict[str, Any]] = []
        for command in act.commands or ("",):
            call = {"tool_name": "Bash", "tool_input": {"command": command, "description": "d"}, "tool_use_id": self.next_id()}
            if act.kind == "bad_args":
                response = "<tool_use_error>InputValidationError: The required parameter `command` is missing</tool_use_error>"
            elif act.kind == "unknown_tool":
                call["tool_name"], response = "Nope", "<tool_use_error>Error: No such tool available: Nope</tool_use_error>"
            else:
                response = self.bash(thread, call, command)
            calls.append({**call, "tool_response": response})
        texts = "\n".join(call["tool_response"] for call in calls)
        event = {"hook_event_name": "PostToolBatch", "tool_calls": calls}
        if unread:
            self.tell_unread(thread, event, texts)
        else:
            self.tell(thread, event, after=texts)

    def bash(self, thread: str, call: dict[str, Any], command: str) -> str:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
        error = f"Exit code {done.returncode}\n{done.stdout}{done.stderr}".strip()
        self.tell(thread, {**call, "hook_event_name": "PostToolUseFailure", "error": error, "is_interrupt": False})
        return error

    def tell_unread(self, thread: str, event: dict[str, Any], texts: str) -> None:
        """The client's pipe is gone before the hook prints."""
        reader, writer = os.pipe()
        os.close(reader)
        self.tell(thread, event, after=texts, stdout=writer)
        os.close(writer)

    def play_interrupted(self) -> Played:
        one, two = self.next_id(), self.next_id()
        bash = {"tool_name": "Bash"}
        self.tell("one", {"hook_event_name": "UserPromptSubmit", "prompt": "Go on."}, after="Go on.")
        stopped = {
            **bash,
            "tool_input": {"command": "echo two"},
            "tool_use_id": two,
            "error": "interrupted",
            "is_interrupt": True,
        }
        self.tell("one", {**stopped, "hook_event_name": "PostToolUseFailure"})
        call_one = {**bash, "tool_input": {"command": "echo one"}, "tool_use_id": one, "tool_response": "one"}
        self.tell("one", {"hook_event_name": "PostToolBatch", "tool_calls": [call_one]})
        call_two = {**bash, "tool_input": {"command": "echo two"}, "tool_use_id": two, "tool_response": "two"}
        for _ in range(2):  # a resumed client tells of it again
            self.tell("one", {"hook_event_name": "PostToolBatch", "tool_calls": [call_one, call_two]})
        return Played()

    def play_compaction(self) -> Played:
        played = Played()
        self.tell("one", {"hook_event_name": "UserPromptSubmit", "prompt": "Build the report."}, after="Build the report.")
        self.act("one", run("echo one"))
        self.tell("one", {"hook_event_name": "PreCompact", "trigger": "auto", "custom_instructions": ""})
        self.histories["one"] = ["They asked for a report."]
        self.tell("one", {"hook_event_name": "SessionStart", "source": "compact"})
        self.tell("one", {"hook_event_name": "PostCompact", "trigger": "auto", "compact_summary": "They asked for a report."})
        for command in ("echo two", "echo three"):
            self.call_model("one", played, "")
            self.act("one", run(command))
        self.call_model("one", played, "done")
        return played

    def play_subagent(self) -> Played:
        self.tell("main", {"hook_event_name": "UserPromptSubmit", "prompt": "the main task"}, after="the main task")
        self.act("main", run("echo main"))
        self.act("main/agent1", run("echo sub"))
        self.tell("main/agent1", {"hook_event_name": "SubagentStop", "last_assistant_message": "sub done"})
        return Played()


class CodexRig(HookRig):
    name = "codex"
    dialect = CODEX
    sees_errors = CODEX.sees_errors
    sees_compaction = CODEX.sees_compaction

    def common(self, thread: str) -> dict[str, Any]:
        transcript = self.transcript(thread)
        transcript.touch()
        return {
            "session_id": "umbrella", "transcript_path": str(transcript), "cwd": str(self.host.project), "model": "m",
            "permission_mode": "default", "turn_id": "t1",
        }  # fmt: skip

    def spoken(self, words: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": words}]
        return {
            "timestamp": "x",
            "type": "response_item",
            "payload": {"type": "message", "role": "assistant", "content": content},
        }

    def act(self, thread: str, act: Act, *, unread: bool = False) -> None:
        for command in act.commands or ("",):
            tool, given = ("nope" if act.kind == "unknown_tool" else "shell"), {"command": ["sh", "-c", command]}
            if act.kind == "run":
                done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
                output = f"Exit code: {done.returncode}\nWall time: 0.1 seconds\nOutput:\n{done.stdout}{done.stderr}"
            else:
                output = {"is_error": True, "content": f"unsupported call: {act.kind}"}
            event = {
                "hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": given, "tool_response": output,
                "tool_use_id": self.next_id(),
            }  # fmt: skip
            if unread:
                self.tell_unread(thread, event, str(output))
            else:
                self.tell(thread, event, after=str(output))

    tell_unread = ClaudeRig.tell_unread

    def play_interrupted(self) -> Played:
        self.tell("one", {"hook_event_name": "UserPromptSubmit", "prompt": "Go on."}, after="Go on.")
        events = [
            {"hook_event_name": "PostToolUse", "tool_name": "shell", "tool_input": {"command": f"echo {word}"},
             "tool_response": word, "tool_use_id": self.next_id()}
            for word in ("one", "two")
        ]  # fmt: skip
        for event in [events[0], events[0], events[1]]:
            self.tell("one", event)
        return Played()

    def play_compaction(self) -> Played:
        played = Played()
        self.tell("one", {"hook_event_name": "UserPromptSubmit", "prompt": "Build the report."}, after="Build the report.")
        self.act("one", run("echo one"))
        self.histories["one"] = ["They asked for a report."]
        self.tell("one", {"hook_event_name": "PostCompact", "trigger": "auto"})
        self.tell("one", {"hook_event_name": "SessionStart", "source": "compact"})
        for command in ("echo two", "echo three"):
            self.call_model("one", played, "")
            self.act("one", run(command))
        self.call_model("one", played, "done")
        return played

    def play_subagent(self) -> Played:
        for thread in ("main", "sub"):
            self._play([turn(run(f"echo {thread}"), prompt=f"the {thread} task")], thread)
        return Played()
