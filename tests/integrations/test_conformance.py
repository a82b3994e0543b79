"""The same sixteen questions to every adapter, with the real frameworks and their own scripted models."""

import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from pmem.delivery import Opening, as_block
from tests.integrations.rig import FAILS, REMIND, Act, BrokenSession, Clockless, Rig, outcomes, run, turn, window
from tests.pmem.policies import says

RIGS = {
    "langchain": ("tests.integrations.rig_langchain", "LangChainRig", "langchain"),
    "langchain-async": ("tests.integrations.rig_langchain", "LangChainAsyncRig", "langchain"),
    "mini-swe-agent": ("tests.integrations.rig_mini", "MiniRig", "minisweagent"),
    "mini-swe-agent-toolcall": ("tests.integrations.rig_mini", "MiniToolcallRig", "minisweagent"),
    "claude-code": ("tests.integrations.rig_hook", "ClaudeRig", "pmem"),
    "codex": ("tests.integrations.rig_hook", "CodexRig", "pmem"),
}
MakeRig = Callable[..., Any]


@pytest.fixture(params=RIGS)
def make_rig(request: pytest.FixtureRequest) -> Iterator[MakeRig]:
    """Makes rigs of one adapter, and closes them."""
    module, name, package = RIGS[request.param]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    rig_class = getattr(__import__(module, fromlist=[name]), name)
    made: list[Rig] = []

    def make(*answers: Any, **options: Any) -> Rig:
        made.append(rig_class(*answers, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def test_observes_a_success(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(run("echo hello", thought="Now greet. Next: write the report.")))
    step, *_ = window(rig.session)
    assert step["outcome"] == "ok" and "echo hello" in step["call"] and "hello" in step["digest"]
    assert step["thought"] == "Now greet. Next: write the report."
    assert rig.session.on_manual() is None
    snapshot = rig.session.prepare()
    assert snapshot is None or snapshot.task_messages == ("Build the report.",)


def test_observes_an_error(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(run(FAILS)))
    step, *_ = window(rig.session)
    assert "kaboom" in step["digest"] and step["outcome"] == "error"


def test_a_repeated_failure_is_annotated_where_the_agent_reads_it(make_rig: MakeRig) -> None:
    rig = make_rig(cadence=100)
    played = rig.play(turn(run(FAILS), run(FAILS), run("echo on")))
    told = [request.count("already failed at step 1 with the same error") for request in played.requests]
    assert told[:4] == [0, 0, 1, 1], "with the second failure, and it stays there"
    assert outcomes(rig.session)[0] == "injected/intervened"
    assert [event.channel for event in rig.delivered] == ["annotation"]


def test_bad_arguments_are_an_error(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(Act((), kind="bad_args"), run("echo on")))
    assert [step["outcome"] for step in window(rig.session)][:2] == ["error", "ok"]


def test_an_unknown_tool_is_an_error(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(Act((), kind="unknown_tool"), run("echo on")))
    assert [step["outcome"] for step in window(rig.session)][:2] == ["error", "ok"]


def test_parallel_calls_stand_in_the_order_of_the_calls(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(run("sleep 0.3; echo first", FAILS, "echo third")))
    found = [(step["outcome"], step["call"]) for step in window(rig.session)][:3]
    assert [outcome for outcome, _ in found] == ["ok", "error", "ok"]
    assert "first" in found[0][1] and "third" in found[2][1]


def test_a_reminder_is_carried_once_and_declared_transient_or_not(make_rig: MakeRig) -> None:
    rig = make_rig(says(REMIND))
    played = rig.play(turn(run("echo one"), run("echo two"), run("echo three")))
    assert [event.text for event in rig.delivered] == [REMIND]
    if rig.transient:
        assert sorted(played.carried(rig.block)) == [0, 0, 0, 1] and rig.block not in played.history
    else:
        assert played.carried(rig.block)[-1] == 1 and max(played.carried(rig.block)) == 1 and played.history.count(rig.block) == 1
    assert rig.session.peek() is None
    assert played.answer == "done"


def test_a_failed_call_keeps_it_and_the_retry_carries_it_once(make_rig: MakeRig) -> None:
    rig = make_rig(says(REMIND))
    played = rig.play_with_failing_call(turn(run("echo one"), run("echo two"), run("echo three")))
    assert [event.text for event in rig.delivered] == [REMIND], "counted once"
    assert played.history.count(rig.block) == (0 if rig.transient else 1)
    assert any(played.carried(rig.block)) and max(played.carried(rig.block)) == 1
    entry = rig.session.bank.get("tm-k-1")
    assert entry is not None and entry.injections == 1


def test_an_interruption_is_no_error_and_a_resumed_call_is_observed_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play_interrupted()
    found = [(step["outcome"], step["call"].split("echo ")[-1]) for step in window(rig.session) if "COMPLETE" not in step["call"]]
    assert found == [("ok", "one"), ("ok", "two")]


def test_the_asynchronous_twin_does_the_same(make_rig: MakeRig) -> None:
    rig = make_rig(says(REMIND))
    if not rig.has_async_twin:
        pytest.skip("this host has no asynchronous interface")
    from tests.integrations.rig_langchain import LangChainAsyncRig, LangChainRig

    script = turn(run("echo one", thought="First."), run(FAILS), run(FAILS), run("echo four"))
    found = []
    for kind in (LangChainRig, LangChainAsyncRig):
        twin = kind(says(REMIND))
        played = twin.play(script)
        found.append((played.requests, played.history, window(twin.session), outcomes(twin.session)))
    assert found[0] == found[1]


def test_a_compaction_restores_the_bank_once(make_rig: MakeRig) -> None:
    rig = make_rig(cadence=100)
    if not rig.sees_compaction:
        pytest.skip("this host never compacts")
    played = rig.play_compaction()
    restored = [request.count("execution state restored after compaction") for request in played.requests]
    assert max(restored) == 1 and any("The report is JSON" in request for request in played.requests)
    assert sum(restored) == 1 or not rig.transient
    assert outcomes(rig.session) == ["injected/intervened"], "once, however many events tell of it"


def test_what_the_core_raises_changes_nothing_and_is_counted(make_rig: MakeRig) -> None:
    script = turn(run("echo one"), run(FAILS), run(FAILS), run("echo two"))
    untouched = make_rig(cadence=100)
    untouched.kind = BrokenSession
    unharmed = untouched.play(script)
    assert unharmed.answer == "done" and untouched.num_faults() > 0
    assert "Memory:" not in unharmed.history and "kaboom" in unharmed.history

    rig = make_rig(says(REMIND))
    rig.clock = clock = Clockless()
    rig.play(turn(run("echo zero")))
    clock.broken = True
    played = rig.play(script)
    assert played.answer == "done" and rig.num_faults() > 0


def test_the_agent_never_waits_for_a_model_that_hangs(make_rig: MakeRig) -> None:
    hang = threading.Event()
    rig = make_rig(says(REMIND), hang=hang)
    script = turn(run("echo one"), run("echo two"))
    started = time.monotonic()
    played = rig.play(script)
    took = time.monotonic() - started
    hang.set()
    assert played.answer == "done" and took < 10 and not any(played.carried(rig.block))
    assert "dropped/step_in_flight" in outcomes(rig.session)


def test_our_own_words_are_not_observed_as_the_agents(make_rig: MakeRig) -> None:
    rig = make_rig(says(REMIND))
    echo = f"printf '%s' '{rig.block}'"
    acts = [run("echo one"), run("echo two"), run("echo three", thought=f"I was told {rig.block} so I will."), run(echo)]
    rig.play(turn(*acts), turn(prompt=rig.block))
    steps = [step for step in window(rig.session) if "COMPLETE" not in step["call"]]
    assert len(rig.delivered) == 1 and not any(REMIND in (step["digest"] + (step["thought"] or "")) for step in steps)
    rig.session.on_manual()
    snapshot = rig.session.prepare()
    assert snapshot is not None and snapshot.task_messages == ("Build the report.",)
    assert len(rig.session.bank.state().entries) == 1


def test_what_a_person_approved_is_told_first_and_stays_before_the_agent(make_rig: MakeRig) -> None:
    rig = make_rig()
    told: list[int] = []
    rig.opening = Opening(as_block("Approved earlier: the unit is EUR."), lambda: told.append(1))
    played = rig.play(turn(run("echo one"), run(FAILS), run("echo three")))
    assert [request.count("the unit is EUR") for request in played.requests] == [1] * len(played.requests)
    assert told == [1], "recorded once"
    rig.session.on_manual()
    snapshot = rig.session.prepare()
    assert snapshot is not None and snapshot.task_messages == ("Build the report.",), "it never enters the policy's prompt"
    assert not any("EUR" in str(step) for step in window(rig.session))


def test_two_threads_never_see_each_other(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play(turn(run("echo alpha"), prompt="the alpha task"), thread="a")
    rig.play(turn(run("echo beta"), prompt="the beta task"), thread="b")
    rig.play(turn(run("echo gamma"), prompt="more alpha"), thread="a")
    assert len(rig.sessions) == 2
    alpha, beta = ([step["call"] for step in window(session)] for session in rig.sessions)
    assert [word for word in ("alpha", "beta", "gamma") if any(word in call for call in alpha)] == ["alpha", "gamma"]
    assert [word for word in ("alpha", "beta", "gamma") if any(word in call for call in beta)] == ["beta"]


def test_a_subagent_has_a_memory_of_its_own(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.play_subagent()
    assert len(rig.sessions) == 2
    calls = [" ".join(step["call"] for step in window(session)) for session in rig.sessions]
    main, sub = sorted(calls, key=lambda text: "echo sub" in text)
    assert "echo main" in main and "echo sub" not in main
    assert "echo sub" in sub and "echo main" not in sub
