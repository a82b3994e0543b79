"""One small sample a format, written by hand in its shape. `expected` is what the events must be, one short word each."""

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any

USER, THOUGHT, SAY, CALL, OK, ERROR, COMPACTION, END = "user", "thought", "say", "call", "ok", "error", "compaction", "end"


@dataclass(frozen=True)
class Sample:
    """`data` is the whole file. `tools` are the tools in order, `success` the outcome."""

    name: str
    file: str
    data: bytes
    expected: list[str]
    tools: list[str]
    success: bool | None = None
    family: str | None = None
    task_id: str | None = None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Count the files."},
    {"role": "assistant", "content": "I list them.", "tool_calls": [_call("c1", "bash", command="ls")]},
    {"role": "tool", "tool_call_id": "c1", "content": "Error: no shell here"},
    {"role": "assistant", "content": "There is no shell."},
]

TAU_RUN = {
    "task_id": 7,
    "reward": 1.0,
    "trial": 2,
    "info": {"task": {"user_id": "x", "instruction": "hidden", "actions": []}},
    "traj": [
        {"role": "system", "content": "# Airline Agent Policy\nBe kind."},
        {"role": "user", "content": "Cancel my trip."},
        {"role": "assistant", "content": None, "tool_calls": [_call("a", "get_trip", id="T1"), _call("b", "get_trip", id="T2")]},
        {"role": "tool", "tool_call_id": "a", "content": "Error: trip not found"},
        {"role": "assistant", "content": None, "tool_calls": [_call("c", "cancel_trip", id="T1")]},
        {"role": "tool", "tool_call_id": "c", "content": "{}"},
        {"role": "assistant", "content": "Done."},
    ],
}

TAU2 = {
    "timestamp": "x",
    "info": {"environment_info": {"domain_name": "telecom", "policy": "p"}, "agent_info": {"llm": "m"}},
    "tasks": [{"id": "t1", "ticket": "Line is dead."}],
    "simulations": [
        {
            "id": "s1",
            "task_id": "t1",
            "termination_reason": "agent_stop",
            "reward_info": {"reward": 0.0},
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "k", "name": "get_line", "arguments": {"id": 1}}]},
                {"role": "tool", "id": "k", "content": "no such line", "error": True, "requestor": "assistant"},
                {"role": "assistant", "content": "I cannot find it.", "tool_calls": None},
            ],
        }
    ],
}

MINI = {
    "info": {"exit_status": "Submitted", "config": {"model": {"model_name": "m"}}},
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "<pr_description>Fix it</pr_description>"},
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\ncat a.py\n```"},
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\ncat: a.py: No such file or directory\n</output>"},
        {"role": "assistant", "content": "THOUGHT: write\n\n```bash\necho 1 > a.py\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\n</output>"},
    ],
    "trajectory_format": "mini-swe-agent-1",
    "instance_id": "demo__demo-1",
}

SWE = {
    "environment": "swe_main",
    "trajectory": [
        {
            "action": 'open "a.py"',
            "observation": "[File: a.py (1 lines total)]\n1:raise Error: x",
            "response": "r",
            "thought": "Open it.",
        },
        {
            "action": "python a.py",
            "observation": "Traceback (most recent call last):\nValueError: x",
            "response": "r",
            "thought": "Run it.",
        },
    ],
    "history": [
        {"role": "system", "content": "s", "agent": "primary"},
        {"role": "user", "content": "demo", "agent": "primary", "is_demo": True},
        {"role": "user", "content": "Fix the issue.", "agent": "primary"},
    ],
    "info": {"exit_status": "submitted"},
}

OPENHANDS = {
    "instance_id": "demo__demo-2",
    "instruction": "Fix it.",
    "test_result": {"report": {"resolved": True}},
    "metadata": {"llm_config": {"model": "m"}},
    "history": [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "s"}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it."}},
        {"id": 2, "source": "agent", "action": "run", "args": {"command": "make", "thought": "Build."}},
        {
            "id": 3,
            "source": "agent",
            "cause": 2,
            "observation": "run",
            "content": "no rule",
            "extras": {"metadata": {"exit_code": 2}},
        },
        {"id": 4, "source": "agent", "action": "read", "args": {"path": "a.py"}},
        {"id": 5, "source": "agent", "cause": 4, "observation": "read", "content": "1"},
        {"id": 6, "source": "agent", "action": "finish", "args": {"final_thought": "Fixed."}},
    ],
}

CLAUDE = [
    {"type": "summary", "summary": "x", "leafUuid": "u"},
    {"type": "user", "sessionId": "s1", "uuid": "1", "message": {"role": "user", "content": "Add a test."}},
    {
        "type": "assistant",
        "sessionId": "s1",
        "uuid": "2",
        "message": {
            "id": "m1",
            "role": "assistant",
            "model": "c",
            "content": [
                {"type": "thinking", "thinking": "Where?"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}},
            ],
        },
    },
    {
        "type": "assistant",
        "sessionId": "s1",
        "uuid": "3",
        "message": {
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "ls"}}],
        },
    },
    {
        "type": "user",
        "sessionId": "s1",
        "uuid": "4",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "File does not exist.", "is_error": True}],
        },
    },
    {
        "type": "user",
        "sessionId": "s1",
        "uuid": "5",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "b"}]}],
        },
    },
    {
        "type": "assistant",
        "sessionId": "s1",
        "isSidechain": True,
        "uuid": "6",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "sub-agent"}]},
    },
    {"type": "system", "subtype": "compact_boundary", "sessionId": "s1", "uuid": "7"},
]

CODEX = [
    {"timestamp": "t", "type": "session_meta", "payload": {"id": "cx", "cwd": "/"}},
    {"timestamp": "t", "type": "turn_context", "payload": {"model": "g"}},
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "<environment_context>x</environment_context>"}],
        },
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Build it."}]},
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {"type": "function_call", "name": "shell", "call_id": "1", "arguments": '{"command":["bash","-lc","make"]}'},
    },
    {
        "timestamp": "t",
        "type": "response_item",
        "payload": {
            "type": "function_call_output",
            "call_id": "1",
            "output": json.dumps({"output": "no rule", "metadata": {"exit_code": 2}}),
        },
    },
    {"timestamp": "t", "type": "compacted", "payload": {"message": ""}},
    {"timestamp": "t", "type": "event_msg", "payload": {"type": "turn_aborted"}},
]

COPILOT = [
    {"type": "session.start", "data": {"sessionId": "cp"}, "id": "1"},
    {"type": "user.message", "data": {"content": "List."}, "id": "2"},
    {
        "type": "assistant.message",
        "data": {
            "content": "Listing.",
            "messageId": "m",
            "model": "g",
            "toolRequests": [{"toolCallId": "a", "name": "shell", "arguments": '{"command":"ls"}'}],
        },
        "id": "3",
    },
    {
        "type": "tool.execution_complete",
        "data": {"toolCallId": "a", "success": False, "result": {"content": "denied"}},
        "id": "4",
    },
    {"type": "assistant.message", "data": {"content": "Done", "toolRequests": [], "messageId": "n"}, "id": "5"},
]

GEMINI = {
    "sessionId": "ge",
    "projectHash": "h",
    "messages": [
        {"type": "user", "content": "Run it"},
        {
            "type": "gemini",
            "model": "g",
            "content": "",
            "thoughts": [{"description": "Plan."}],
            "toolCalls": [
                {
                    "id": "1",
                    "name": "run_shell_command",
                    "args": {"command": "x"},
                    "status": "success",
                    "result": [{"functionResponse": {"id": "1", "response": {"output": "Output: y\nExit Code: 1"}}}],
                }
            ],
        },
        {"type": "model", "parts": [{"text": "Failed."}]},
    ],
}

QWEN = [
    {"uuid": "1", "parentUuid": None, "sessionId": "qw", "type": "user", "message": {"role": "user", "parts": [{"text": "Go."}]}},
    {
        "uuid": "2",
        "parentUuid": "1",
        "sessionId": "qw",
        "type": "assistant",
        "message": {"role": "model", "parts": [{"text": "dead"}]},
    },
    {"uuid": "3", "parentUuid": "1", "sessionId": "qw", "type": "system", "subtype": "rewind"},
    {
        "uuid": "4",
        "parentUuid": "3",
        "sessionId": "qw",
        "type": "assistant",
        "model": "q",
        "message": {
            "role": "model",
            "parts": [
                {"text": "Think.", "thought": True},
                {"functionCall": {"id": "f", "name": "read_file", "args": {"path": "a"}}},
            ],
        },
    },
    {
        "uuid": "5",
        "parentUuid": "4",
        "sessionId": "qw",
        "type": "user",
        "message": {"role": "user", "parts": [{"functionResponse": {"id": "f", "response": {"error": "no file"}}}]},
    },
]

KIMI = [
    {"type": "metadata", "protocol_version": "1.4"},
    {
        "type": "context.append_message",
        "message": {"role": "user", "content": [{"type": "text", "text": "hi"}], "origin": {"kind": "user"}},
    },
    {"type": "context.append_loop_event", "event": {"type": "content.part", "part": {"type": "think", "think": "List."}}},
    {
        "type": "context.append_loop_event",
        "event": {"type": "tool.call", "toolCallId": "B0", "name": "Bash", "args": {"command": "ls"}},
    },
    {
        "type": "context.append_loop_event",
        "event": {"type": "tool.result", "toolCallId": "B0", "result": {"output": "x", "isError": True}},
    },
    {"type": "context.apply_compaction", "summary": "s"},
]

PI = [
    {"type": "session", "version": 3, "id": "pi", "cwd": "/"},
    {"type": "message", "id": "1", "message": {"role": "user", "content": [{"type": "text", "text": "Read."}]}},
    {
        "type": "message",
        "id": "2",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}},
            ],
        },
    },
    {
        "type": "message",
        "id": "3",
        "message": {
            "role": "toolResult",
            "toolCallId": "c",
            "toolName": "read",
            "isError": False,
            "content": [{"type": "text", "text": "1"}],
        },
    },
    {"type": "compaction", "id": "4", "summary": "s"},
]

HERMES = {"session_id": "he", "platform": "cli", "model": "m", "messages": [*CHAT[1:], {"role": "session_meta"}]}

ATIF = {
    "schema_version": "ATIF-v1.5",
    "session_id": "at",
    "agent": {"name": "terminus-2", "version": "2", "model_name": "m"},
    "final_metrics": {"extra": {"verdict": "PASS"}},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Make the file."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "Plan: look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"tool_call_id": "1", "function_name": "bash_command", "arguments": {"keystrokes": "cat x\n"}},
                {"tool_call_id": "2", "function_name": "bash_command", "arguments": {"keystrokes": "cat y\n"}},
            ],
            "observation": {"results": [{"content": "cat: y: No such file or directory"}]},
        },
        {"step_id": 3, "source": "system", "message": "Performed context summarization and handoff to continue task."},
        {"step_id": 4, "source": "agent", "message": "Copied.", "is_copied_context": True},
        {"step_id": 5, "source": "agent", "message": "Done."},
    ],
}

INSPECT = {
    "version": 2,
    "status": "success",
    "eval": {"task": "evals/ctf", "model": "m"},
    "samples": [
        {
            "id": 3,
            "epoch": 1,
            "scores": {"includes": {"value": "C"}},
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "Find the flag."},
                {
                    "role": "assistant",
                    "content": "Look.",
                    "tool_calls": [{"id": "1", "function": "bash", "arguments": {"cmd": "ls"}}],
                },
                {
                    "role": "tool",
                    "tool_call_id": "1",
                    "function": "bash",
                    "content": "",
                    "error": {"type": "timeout", "message": "timed out"},
                },
            ],
        }
    ],
}

INTERCODE = {
    "15": {
        "environment": "ic_bash",
        "dataset": "./data/nl2bash_fs_1.json",
        "task_id": 15,
        "query": "List files.",
        "turn_history": {
            "actions": ["lss", "ls"],
            "observations": ["bash: lss: command not found", "a"],
            "rewards": [0.0, 1.0],
            "valid_action": [True, True],
        },
        "summary": {"max_reward": 1.0},
    }
}

MINT = {
    "task": {"task_name": "alfworld/puttwo", "task_id": "x", "prompt": "Put two."},
    "state": {
        "success": False,
        "latest_output": {"feedback_type": "feedback_wo_gt"},
        "history": [
            {"role": "user", "content": "examples, then: Put two."},
            {"role": "assistant", "content": "Assistant:\n<thought>Go.</thought>\n<execute>\ngoto('a')\n</execute>"},
            {
                "role": "user",
                "content": "Observation:\nNothing happens.\nYou have 4 steps left and 2 chances to propose solution left.\n\n"
                "Expert feedback:\nTry b.",
            },
        ],
    },
}

KNOWAGENT = {
    "name": "t/1",
    "result": False,
    "traj": "Your task is to: put.\n> Think: look\n> ActionPath: Start\n> go to shelf 1\n"
    "Nothing happens.\n> open drawer 1\nYou open it.",
}

VERIFIERS = {"id": 4, "prompt": [CHAT[1]], "completion": CHAT[2:], "reward": 0.0, "answer": "x", "info": {}}

LANGFUSE = {
    "trace": {"id": "tr", "name": "joke run", "scores": [{"name": "correct", "value": 1}]},
    "observations": [
        {"type": "SPAN", "name": "agent"},
        {
            "type": "GENERATION",
            "name": "chat",
            "model": "m",
            "input": [
                {"role": "system", "parts": [{"type": "text", "content": "s"}]},
                {"role": "user", "parts": [{"type": "text", "content": "A joke."}]},
                {
                    "role": "assistant",
                    "parts": [{"type": "tool_call", "id": "1", "name": "get_pun", "arguments": {"topic": "x"}}],
                },
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "Error: none"}]},
            ],
            "output": [{"role": "assistant", "parts": [{"type": "text", "content": "Ha."}]}],
        },
    ],
}


def _attribute(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}


OTEL = {
    "resourceSpans": [
        {
            "resource": {"attributes": []},
            "scopeSpans": [
                {
                    "scope": {},
                    "spans": [
                        {
                            "traceId": "ab",
                            "spanId": "1",
                            "name": "chat",
                            "startTimeUnixNano": "5",
                            "attributes": [
                                _attribute("gen_ai.request.model", "m"),
                                _attribute("gen_ai.input.messages", CHAT[1:4]),
                                _attribute("gen_ai.output.messages", CHAT[4:]),
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}

PAGES = {
    "note": "n",
    "task": "regex-log",
    "variant": "baseline",
    "header": {"Model": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "How to answer …\nTask Description:\nWrite a regex."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "Plan.",
            "tool_calls": [{"header": "Tool Call: bash_command (c1)", "args": '{"keystrokes": "ls\\n"}'}],
            "observation": ["a"],
        },
    ],
}


def _eval_zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": INSPECT["eval"]}))
        archive.writestr("samples/3_epoch_1.json", json.dumps(INSPECT["samples"][0]))
    return stream.getvalue()


FAILED_CALL = [USER, THOUGHT, CALL, ERROR]
SAMPLES = [
    Sample(
        "tau-bench",
        "a.json",
        _json([TAU_RUN]),
        [USER, CALL, ERROR, CALL, OK, SAY],
        ["get_trip", "cancel_trip"],
        True,
        "tau-bench-airline",
        "tau-airline-7",
    ),
    Sample("tau2", "a.json", _json(TAU2), [USER, CALL, ERROR, SAY], ["get_line"], False, "tau2-telecom", "tau-telecom-t1"),
    Sample(
        "mini-swe-agent",
        "a.traj.json",
        _json(MINI),
        [USER, THOUGHT, CALL, ERROR, THOUGHT, CALL, OK],
        ["bash", "bash"],
        None,
        "mini-swe-agent",
        "demo__demo-1",
    ),
    Sample(
        "swe-agent",
        "demo__demo-1.traj",
        _json(SWE),
        [USER, THOUGHT, CALL, OK, THOUGHT, CALL, ERROR],
        ["open", "bash"],
        None,
        "swe-agent",
        "demo__demo-1",
    ),
    Sample(
        "openhands",
        "output.jsonl",
        _lines(OPENHANDS),
        [USER, THOUGHT, CALL, ERROR, CALL, OK, SAY],
        ["execute_bash", "str_replace_editor"],
        True,
        "openhands",
        "demo__demo-2",
    ),
    Sample(
        "claude-code",
        "s.jsonl",
        _lines(*CLAUDE),
        [USER, THOUGHT, THOUGHT, CALL, CALL, ERROR, OK, COMPACTION],
        ["Read", "Bash"],
        None,
        "claude-code",
        "s1",
    ),
    Sample(
        "claude-code",
        "w.json",
        _json({"loglines": CLAUDE[1:6]}),
        [USER, THOUGHT, THOUGHT, CALL, CALL, ERROR, OK],
        ["Read", "Bash"],
    ),
    Sample("codex", "c.jsonl", _lines(*CODEX), [USER, CALL, ERROR, COMPACTION, END], ["shell"], None, "codex", "cx"),
    Sample("copilot", "c.jsonl", _lines(*COPILOT), [*FAILED_CALL, SAY], ["shell"], None, "copilot", "cp"),
    Sample("gemini-cli", "g.json", _json(GEMINI), [*FAILED_CALL, SAY], ["run_shell_command"], None, "gemini-cli", "ge"),
    Sample(
        "gemini-cli",
        "g.jsonl",
        _lines({"sessionId": "ge", "projectHash": "h"}, *GEMINI["messages"]),
        [*FAILED_CALL, SAY],
        ["run_shell_command"],
    ),
    Sample("qwen-code", "q.jsonl", _lines(*QWEN), FAILED_CALL, ["read_file"], None, "qwen-code", "qw"),
    Sample("kimi-code", "k.jsonl", _lines(*KIMI), [*FAILED_CALL, COMPACTION], ["Bash"], None, "kimi-code", "k"),
    Sample("pi", "p.jsonl", _lines(*PI), [USER, THOUGHT, CALL, OK, COMPACTION], ["read"], None, "pi", "pi"),
    Sample("hermes", "h.json", _json(HERMES), [*FAILED_CALL, SAY], ["bash"], None, "hermes", "he"),
    Sample(
        "atif",
        "t.json",
        _json(ATIF),
        [USER, THOUGHT, THOUGHT, CALL, CALL, OK, ERROR, COMPACTION, SAY],
        ["bash_command", "bash_command"],
        True,
        "atif-terminus-2",
        "at",
    ),
    Sample("inspect-ai", "l.json", _json(INSPECT), FAILED_CALL, ["bash"], True, "inspect-ctf", "ctf-3"),
    Sample("inspect-ai", "l.eval", _eval_zip(), FAILED_CALL, ["bash"], True, "inspect-ctf", "ctf-3"),
    Sample(
        "intercode",
        "i.json",
        _json(INTERCODE),
        [USER, CALL, ERROR, CALL, OK],
        ["bash", "bash"],
        True,
        "intercode-bash",
        "intercode-nl2bash-fs-1-15",
    ),
    Sample("mint", "m.jsonl", _lines(MINT), [*FAILED_CALL, USER], ["python"], False, "mint-alfworld"),
    Sample(
        "knowagent",
        "k.jsonl",
        _lines(KNOWAGENT),
        [USER, THOUGHT, CALL, ERROR, CALL, OK],
        ["go", "open"],
        False,
        "knowagent-alfworld",
    ),
    Sample(
        "verifiers", "wiki--m.results.jsonl", _lines(VERIFIERS), [*FAILED_CALL, SAY], ["bash"], False, "verifiers-wiki", "wiki-4"
    ),
    Sample("langfuse", "l.json", _json(LANGFUSE), [USER, CALL, ERROR, SAY], ["get_pun"], True, "langfuse", "joke-run"),
    Sample("otel", "o.jsonl", _lines(OTEL), [*FAILED_CALL, SAY], ["bash"], None, "otel", "ab"),
    Sample(
        "memory-pages",
        "p.json",
        _json(PAGES),
        [USER, THOUGHT, CALL, OK],
        ["bash_command"],
        None,
        "terminal-bench-memory",
        "regex-log",
    ),
    Sample(
        "openai-chat",
        "c.jsonl",
        _lines({"messages": CHAT, "id": "x", "reward": 1}),
        [*FAILED_CALL, SAY],
        ["bash"],
        True,
        "openai-chat",
        "x",
    ),
    Sample("openai-chat", "c.json", _json(CHAT), [*FAILED_CALL, SAY], ["bash"]),
]
