"""tau2-bench's own orchestrator, tools and reward under eval.ab, its models played by a real local server.

Needs tau2-bench from its repository on the path; skipped elsewhere.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from eval import ab
from eval.tau2 import with_reminder
from pmem.delivery import as_block
from pmem.errors import UserError
from tests.pmem.fake_server import FakeServer, Json, Seen, chat


def test_without_tau2_the_sentence_says_where_it_comes_from(tmp_path: Path) -> None:
    try:
        from tau2.runner import build  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="not the PyPI package tau2"):
            ab.main([f"run={tmp_path}", "runner=eval.tau2:runner", "bank_writer=policy", "arms=[rules]"])


def call(name: str, number: int, **arguments: Any) -> Json:
    """An answer that calls a tool."""
    body = chat(None, "tool_calls", None, "agent")
    function = {"name": name, "arguments": json.dumps(arguments)}
    body["choices"][0]["message"]["tool_calls"] = [{"id": f"call-{number}", "type": "function", "function": function}]
    return Json(body)


def told(text: str) -> Json:
    return Json(chat(text, "stop", None, "x"))


def script(seen: Seen) -> Json:
    """The user asks once and stops when it hears that all is done; the agent fails twice the same way, then does it."""
    messages = seen.json["messages"]
    if seen.json["model"] == "user":
        done = any("All done" in str(message.get("content")) for message in messages)
        return told("###STOP###" if done else "Please create a task called 'Important Meeting' for user_1 with description 'x'.")
    results = [message for message in messages if message["role"] == "tool"]
    if len(results) < 2:
        return call("create_task", len(results), user_id="nobody", title="Important Meeting")
    if len(results) == 2:
        return call("create_task", 2, user_id="user_1", title="Important Meeting")
    return told("All done.")


@pytest.mark.slow
def test_a_simulation_with_memory_is_rewarded_and_reminded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tau2.runner", reason="needs tau2-bench from its repository")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with FakeServer() as server:
        server.play(lambda seen: script(seen))
        options = {
            "domain": "mock", "agent_llm": "openai/agent", "user_llm": "openai/user",
            "agent_args": {"api_base": server.url}, "user_args": {"api_base": server.url},
        }  # fmt: skip
        run = [f"run={tmp_path}", "runner=eval.tau2:runner", f"runner_options={json.dumps(options)}", "bank_writer=policy"]
        assert ab.main([*run, "arms=[rules]", "num_tasks=1", "threads=1"]) == 0
        asked = [request.json for request in server.requests if request.json["model"] == "agent"]
    content = json.loads((tmp_path / "ab.json").read_text())
    rules, never = content["trials"]["rules"][0], content["trials"]["never"][0]
    assert rules["success"] and never["success"] and rules["family"] == "tau2-mock" and rules["agent"] == "openai/agent"
    assert rules["num_annotations"] == 1 and never["num_reminders"] == 0
    reminded = ["<system-reminder>" in json.dumps(body["messages"]) for body in asked]
    assert any(reminded) and sum(reminded) < len(asked)


def test_a_reminder_stands_at_the_end_of_the_last_result() -> None:
    from pydantic import BaseModel

    class Result(BaseModel):
        content: str

    class Results(BaseModel):
        tool_messages: list[Result]

    one, two = Result(content="1"), Result(content="2")
    both = with_reminder(Results(tool_messages=[one, two]), "Mind it.")
    assert [result.content for result in both.tool_messages] == ["1", f"2\n\n{as_block('Mind it.')}"]
    assert two.content == "2", "the record of the simulation keeps the result as it was"
    assert with_reminder(None, "Mind it.") is None and with_reminder(one, None) is one
