"""Events as the clients send them, answers as they take them, what a transcript says; anything else reads as nothing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.integrations.hook.dialects import CLAUDE, CODEX, DIALECTS, KINDS, answer, read_event, response_text, states_failure
from pmem.integrations.hook.transcript import REACH, Transcript, spoken
from tests.integrations.codex_schema import OUTPUTS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([
    "hook_event_name", "session_id", "agent_id", "transcript_path", "prompt", "source", "tool_name", "tool_input",
    "tool_response", "tool_use_id", "tool_calls", "error", "is_interrupt", "last_assistant_message", "turn_id",
])  # fmt: skip


@pytest.mark.parametrize("event", sorted(OUTPUTS))
def test_what_codex_gets_is_within_its_schema(event: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = OUTPUTS[event]
    jsonschema.Draft7Validator.check_schema(schema)
    spoken_answer = answer(CODEX, event, "<system-reminder>\nMemory: x\n</system-reminder>")
    if event in CODEX.speaks:
        assert spoken_answer is not None
        jsonschema.validate(spoken_answer, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**spoken_answer, "more": 1}, schema)
    else:
        assert spoken_answer is None, "this event has no place for context"


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_nothing_to_say_is_no_object(dialect: Any) -> None:
    assert all(answer(dialect, event, "") is None for event in (*dialect.registered, "Unknown"))
    assert not dialect.transient


@given(st.dictionaries(FIELDS, JSON | st.sampled_from(sorted(KINDS)), max_size=12), st.sampled_from([CLAUDE, CODEX]))
def test_reading_is_total(payload: dict[str, Any], dialect: Any) -> None:
    event = read_event(dialect, payload)
    assert event.kind in {*KINDS.values(), "other"} and all(isinstance(outcome.text, str) for outcome in event.outcomes)


def test_a_batch_of_claude_code() -> None:
    refused = "<tool_use_error>bad</tool_use_error>"
    given: list[tuple[str, dict[str, str], Any]] = [
        ("Bash", {"command": "ls", "description": "list"}, "a"),
        ("Bash", {"cmd": "x"}, refused),
        ("Agent", {"prompt": "p"}, [{"type": "text", "text": "b"}]),
    ]
    calls = [
        {"tool_name": tool, "tool_input": arguments, "tool_use_id": f"t{number}", "tool_response": response}
        for number, (tool, arguments, response) in enumerate(given, 1)
    ]
    event = read_event(CLAUDE, {"hook_event_name": "PostToolBatch", "session_id": "s", "prompt_id": "p", "tool_calls": calls})
    assert event.kind == "batch" and event.ids == ("t1", "t2", "t3")
    assert [(o.is_error, o.text) for o in event.outcomes] == [(False, "a"), (True, refused), (False, "b")]
    assert event.outcomes[0].args == {"command": "ls"}, "the remark changes at each call, the operation does not"


def test_a_failure_of_claude_code() -> None:
    event = read_event(CLAUDE, {
        "hook_event_name": "PostToolUseFailure", "session_id": "s", "agent_id": "a", "tool_name": "Bash",
        "tool_input": {"command": "make"}, "tool_use_id": "t1", "error": "Exit code 2\nno rule", "is_interrupt": False,
    })  # fmt: skip
    assert event.conversation == "s/a" and event.transcript is None
    assert event.outcomes[0].is_error and event.outcomes[0].text == "Exit code 2\nno rule"


@pytest.mark.parametrize(
    ("response", "text", "failed"),
    [
        ({"stdout": "a", "stderr": "b", "interrupted": False}, "a\nb", False),
        ({"stdout": "", "stderr": ""}, "", False),
        ({"output": "boom", "metadata": {"exit_code": 3}}, "boom", True),
        ({"output": "fine", "exit_code": 0}, "fine", False),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "no", True),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nkaboom", "Exit code: 1\nWall time: 0.1 seconds\nOutput:\nkaboom", True),
        ("Chunk ID: 3\nWall time: 1 s\nProcess exited with code 2\nOutput:\nx", None, True),
        ("Chunk ID: 3\nProcess exited with code 0\n", None, False),
        ('{"output":"x","metadata":{"exit_code":1}}', None, True),
        ("Exit code 0 is what the page calls success", None, False),
        ("the docs say: exit code 1 means failure", None, False),
        (None, "", False),
        (17, "17", False),
    ],
)
def test_responses(response: Any, text: str | None, failed: bool) -> None:
    assert states_failure(response) is failed
    assert text is None or response_text(response) == text


def claude_line(*blocks: dict[str, str]) -> dict[str, Any]:
    return {"type": "assistant", "isSidechain": False, "message": {"role": "assistant", "content": list(blocks)}}


def codex_line(**payload: Any) -> dict[str, Any]:
    return {"timestamp": "x", "type": "response_item", "payload": payload}


CLAUDE_LINE = claude_line({"type": "text", "text": "Next: JSON."})
CODEX_LINE = codex_line(type="message", role="assistant", content=[{"type": "output_text", "text": "Next."}])
CODEX_REASONING = codex_line(type="reasoning", summary=[{"type": "summary_text", "text": "I plan."}])


@pytest.mark.parametrize(
    ("entry", "texts"),
    [
        (CLAUDE_LINE, ["Next: JSON."]),
        ({**CLAUDE_LINE, "isSidechain": True}, []),
        (claude_line({"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "t"}), ["hm"]),
        (CODEX_LINE, ["Next."]),
        (CODEX_REASONING, ["I plan."]),
        ({"type": "user", "message": {"content": "assistant"}}, []),
        ({"type": "api-request-blob", "message": {"role": "assistant", "content": [{"text": "again"}]}}, []),
        ("assistant", []),
        ({"type": "assistant", "message": None}, []),
        ({"type": "response_item", "payload": ["assistant"]}, []),
    ],
)
def test_lines_of_a_transcript(entry: Any, texts: list[str]) -> None:
    assert spoken(json.dumps(entry).encode()) == texts


@given(st.binary(max_size=200))
def test_any_line_is_survived(line: bytes) -> None:
    assert isinstance(spoken(line + b"assistant"), list)


def test_a_transcript_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    transcript = Transcript()
    assert transcript.new_texts(str(path)) == [] and transcript.new_texts(None) == []
    path.write_text(json.dumps(CLAUDE_LINE) + "\n")
    assert transcript.new_texts(str(path)) == ["Next: JSON."]
    assert transcript.new_texts(str(path)) == []
    with path.open("a") as stream:
        stream.write(json.dumps(CODEX_LINE) + "\n" + json.dumps(CODEX_REASONING)[:20])
    assert transcript.new_texts(str(path)) == ["Next."], "the last line is not whole yet"
    with path.open("a") as stream:
        stream.write(json.dumps(CODEX_REASONING)[20:] + "\n")
    assert transcript.new_texts(str(path)) == ["I plan."]
    path.write_text(json.dumps(CLAUDE_LINE) + "\n")
    assert transcript.new_texts(str(path)) == ["Next: JSON."], "written anew"


def test_of_a_long_transcript_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("w") as stream:
        for number in range(3_000):
            stream.write(json.dumps({**CLAUDE_LINE, "pad": "x" * 300, "n": number}) + "\n")
    assert path.stat().st_size > 4 * REACH
    first = Transcript()
    assert 100 < len(first.new_texts(str(path))) < 1_000
    with path.open("a") as stream:
        stream.write(json.dumps(CODEX_LINE) + "\n")
    assert first.new_texts(str(path)) == ["Next."]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert Transcript().new_texts(str(pipe)) == [] == Transcript().new_texts(str(tmp_path))
