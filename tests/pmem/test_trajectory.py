"""Fingerprints, calls and digests: redacted before cut, cut on a character, to the line that names the problem."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.snapshot import Step
from pmem.trajectory import (
    CALL_MAX_CHARS,
    DIGEST_MAX_BYTES,
    REDACTION_REACH,
    Window,
    cut_bytes,
    cut_front,
    describe_call,
    digest,
    error_key,
    fingerprint,
    stated_thought,
)

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/report.py", line 12, in <module>
    main()
  File "/srv/app/error_pages.py", line 3, in main
    raise KeyError("unit")
KeyError: 'unit'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/app/report.py", line 14, in <module>
    fail()
RuntimeError: cannot write out/summary.csv: expected .json
"""


def test_fingerprint_is_of_name_and_arguments_only() -> None:
    one = fingerprint("bash", {"command": "ls", "timeout": 3})
    assert one == fingerprint(" Bash", {"timeout": 3, "command": "ls"})
    assert len(one) == 16 and int(one, 16) >= 0
    assert one != fingerprint("bash", {"command": "ls -l", "timeout": 3})


@pytest.mark.parametrize("args", [None, {}, {"a": float("nan")}, {"a": object()}, {1: {2: {3}}}, "ls", ["a", 1], {"a": "\ud800"}])
def test_any_arguments_have_a_fingerprint_and_a_description(args: object) -> None:
    assert len(fingerprint("tool", args)) == 16
    assert len(describe_call("tool", args)) <= CALL_MAX_CHARS


def test_endless_arguments_do_not_hang() -> None:
    args: dict[str, object] = {}
    args["self"] = args
    assert len(fingerprint("tool", args)) == 16


def test_a_call_reads_as_one_would_type_it() -> None:
    assert describe_call("bash", {"command": "make  -j2\n test"}) == "bash make -j2 test"
    assert describe_call("write", {"path": "a", "content": "b"}) == 'write {"content":"b","path":"a"}'
    assert describe_call("submit", {}) == "submit"


def test_a_secret_across_the_cut_never_shows() -> None:
    for offset in range(0, 60):
        call = describe_call("bash", {"command": "x" * (130 + offset) + " " + SECRET})
        assert "ghp_" not in call
        text = "error: " + "é" * (85 + offset // 2) + " " + SECRET
        assert "ghp_" not in digest(text, is_error=True)
        assert "ghp_" not in digest("y" * (120 + offset) + " " + SECRET + " z" * 300, is_error=False)


def test_error_digest_is_the_diagnostic_line() -> None:
    assert digest(TRACEBACK, is_error=True) == "RuntimeError: cannot write out/summary.csv: expected .json"
    assert digest("collecting\nall fine\nbash: line 1: foo: command not found\n", is_error=True).endswith("command not found")
    assert (
        digest("gcc -c a.c\na.c:3:5: error: expected ';'\nmake: *** [a.o] Error 1\n", is_error=True)
        == "a.c:3:5: error: expected ';'"
    )
    assert digest("compiling\nmake: *** No rule to make target 'all'.  Stop.\n", is_error=True).startswith("make: *** No rule")
    assert digest("one\ntwo\nthree\n", is_error=True) == "three"
    assert digest("", is_error=True) == "error without text"
    assert digest("ERROR:\n\nNo replacement was performed.\nmore", is_error=True) == "ERROR: No replacement was performed."
    assert digest("ERROR:", is_error=True) == "ERROR:"


def test_diagnosis_deep_in_a_long_result_is_found() -> None:
    text = "line of log\n" * 40_000 + "ValueError: unit must be EUR\n" + "more log\n" * 40_000
    assert digest(text, is_error=True) == "ValueError: unit must be EUR"
    near = "noise\n" * 40_000 + f"ValueError: {SECRET}\n" + "noise\n" * 40_000
    assert "ghp_" not in digest(near, is_error=True)


def test_success_digest_keeps_head_and_tail() -> None:
    text = "12 files found\n" + "row\n" * 5000 + "total 48 MB\n"
    found = digest(text, is_error=False)
    assert found.startswith("12 files found") and found.endswith("total 48 MB")
    assert len(found.encode()) <= DIGEST_MAX_BYTES
    assert digest("", is_error=False) == "ok"
    assert digest("  port\n 5433 ", is_error=False) == "port 5433"


def test_a_key_split_over_two_results_is_taken_out_of_both() -> None:
    from pmem.redaction import Redactor

    body = "MIIEpAIBAAKCAQEA7bq4Zr0Jk3n9sT1mWc5xVd8yQhLfUoPgRzEiNtBvCsKwXaJm"
    stream = Redactor()
    first = digest(f"cat key\n-----BEGIN RSA PRIVATE KEY-----\n{body}\n", is_error=False, clean=stream.redact)
    second = digest(f"{body}\n{body}\n-----END RSA PRIVATE KEY-----\n", is_error=False, clean=stream.redact)
    assert body[:16] not in first + second


@given(st.text(max_size=600), st.booleans())
def test_digest_is_total_and_bounded(text: str, is_error: bool) -> None:
    found = digest(text, is_error=is_error)
    assert 0 < len(found.encode()) <= DIGEST_MAX_BYTES
    json.dumps(found)


@given(st.text(max_size=400), st.integers(min_value=8, max_value=300))
def test_cuts_never_split_a_character(text: str, limit: int) -> None:
    for cut in (cut_bytes(text, limit), cut_front(text, limit)):
        assert len(cut.encode()) <= limit
        assert "\ufffd" not in cut or "\ufffd" in text


def test_thought_keeps_its_end() -> None:
    thought = stated_thought(["I looked at the files. " * 40, "Next: write out/summary.csv."])
    assert thought is not None and thought.startswith("…") and thought.endswith("Next: write out/summary.csv.")
    assert stated_thought(["  \n "]) is None
    assert "ghp_" not in (stated_thought([f"export TOKEN={SECRET}"]) or "")


def test_equal_failures_have_equal_keys_whatever_varies() -> None:
    assert error_key("FAILED in 0.12s at 0x7f3a") == error_key("FAILED in 3.4 s at 0xdead")
    assert error_key("open /tmp/tmpab12/x: no such file") == error_key("open /tmp/tmpzz99/x: no such file")
    assert error_key("KeyError: 'unit'") != error_key("KeyError: 'name'")


def test_window_is_bounded_and_in_call_order() -> None:
    window = Window(3)
    first, second, third, fourth = (window.reserve() for _ in range(4))
    for number in (first, third, second, fourth):
        window.add(Step(step=number, tool="t", call="t", fingerprint="0" * 16, outcome="ok", digest="ok"))
    assert [step.step for step in window.steps()] == [second, third, fourth]
    assert window.reaches(second) and not window.reaches(first)


def test_time_is_linear_in_length() -> None:
    import time

    def seconds(text: str) -> float:
        started = time.perf_counter()
        digest(text, is_error=True)
        digest(text, is_error=False)
        return time.perf_counter() - started

    for piece in ("\n", " ", "a", "error ", "Traceback (most recent call last):\n", "-----BEGIN RSA PRIVATE KEY-----\n", ": "):
        short, long = piece * (1 + (1 << 17) // len(piece)), piece * (1 + (1 << 20) // len(piece))
        seconds(short)
        assert seconds(long) < max(0.5, 40 * seconds(short)), piece
    assert REDACTION_REACH >= 16_384
