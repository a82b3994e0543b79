"""The session's face: boundaries, detached steps, what is shown, what is kept, who is told."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmem.envelope import Operation
from pmem.settings import Settings
from tests.pmem.hosts import Host
from tests.pmem.policies import PlayedPolicy, ends, says

FACT = Operation("save_knowledge", "The report is JSON.")


def test_a_healthy_boundary_is_silent_and_writes_no_row() -> None:
    host = Host(PlayedPolicy(), cadence_tool_calls=10)
    host.ask()
    host.run()
    assert host.boundary() is False
    assert host.last == "silent/None" and host.ledger.steps == []


def test_no_new_tool_and_no_signal_is_no_boundary() -> None:
    host = Host(cadence_tool_calls=10)
    host.ask()
    host.fail()
    host.fail()
    host.session.evaluate()
    shown, rows = host.last, len(host.ledger.steps)
    for _ in range(3):
        assert host.boundary() is False
    assert (host.last, len(host.ledger.steps)) == (shown, rows)


def test_cadence_counts_tools_since_the_last_prompted_step() -> None:
    policy = PlayedPolicy()
    host = Host(policy, cadence_tool_calls=3)
    host.ask()
    launched = []
    for _ in range(9):
        host.run()
        launched.append(host.boundary())
        host.settled()
    assert launched == [False, False, True] * 3
    assert [row.triggers for row in host.ledger.steps] == [("interval",)] * 3


def test_every_tool_is_a_boundary_at_cadence_one() -> None:
    host = Host()
    host.ask()
    for number in range(1, 5):
        host.run(f"echo {number}")
        snapshot = host.session.prepare()
        assert snapshot is not None and snapshot.window[-1].step == number
        assert host.session.prepare() is None


def test_snapshot_holds_what_the_policy_may_see() -> None:
    host = Host(trajectory_steps=3)
    host.ask("Build it. " + "x" * 3000)
    for number in range(5):
        host.ask(f"also {number} " + "y" * 400)
    host.session.apply_operations([FACT, Operation("update_status", "started")])
    for number in range(6):
        host.session.on_agent_text(f"Now {number}. Next: {number + 1}.")
        host.run(f"echo {number}", f"out {number}")
    snapshot = host.session.prepare()
    assert snapshot is not None
    first, *later = snapshot.task_messages
    assert len(first) <= 2000 and [text[:6] for text in later] == ["also 2", "also 3", "also 4"]
    assert all(len(text) <= 300 for text in later)
    assert [step.step for step in snapshot.window] == [4, 5, 6]
    assert snapshot.window[-1].thought == "Now 5. Next: 6."
    assert snapshot.bank.status == "started" and snapshot.triggers == ("interval",)


def test_a_thought_belongs_to_the_next_completed_step_only() -> None:
    host = Host()
    host.ask()
    host.session.on_agent_text("Plan A.")
    host.session.on_agent_text("Next: B.")
    host.run()
    host.run("pwd")
    snapshot = host.session.prepare()
    assert snapshot is not None
    assert [step.thought for step in snapshot.window] == ["Plan A. Next: B.", None]


def test_the_turn_is_never_held() -> None:
    gate = threading.Event()
    policy = PlayedPolicy(says("late [tm-k-1]"), gate=gate)
    host = Host(policy)
    host.session.apply_operations([FACT])
    host.ask()
    host.run()
    assert host.boundary() is True
    assert host.session.inspect()["in_flight"] is True and host.session.peek() is None
    host.run()
    assert host.boundary() is False
    assert host.outcomes == ["dropped/step_in_flight"] and host.last == "none"
    gate.set()
    host.settled()
    assert host.last == "injected/intervened" and host.session.peek() is not None
    assert host.boundary() is True, "the dropped boundary's triggers stayed pending"
    host.settled()
    assert policy.seen[1].triggers == ("interval",)


def test_a_drop_is_one_row_a_boundary() -> None:
    gate = threading.Event()
    host = Host(PlayedPolicy(gate=gate))
    host.ask()
    host.run()
    host.boundary()
    host.run()
    for _ in range(4):
        host.boundary()
    assert host.outcomes == ["dropped/step_in_flight"]
    gate.set()


def test_annotation_takes_the_boundary() -> None:
    policy = PlayedPolicy()
    host = Host(policy)
    host.session.apply_operations([FACT])
    host.ask()
    host.fail()
    host.boundary()
    host.settled()
    note = host.fail()
    assert note is not None and note.startswith("<system-reminder>\nMemory: ") and "[tm-p-2]" in note
    (event,) = host.delivered
    assert (event.tier, event.channel, event.entry_ids) == ("rules", "annotation", ("tm-p-2",))
    host.boundary()
    host.settled()
    assert "repeated_failure" in policy.seen[1].triggers
    rows = [row for row in host.ledger.steps if row.tier == "rules"]
    assert len(rows) == 1 and rows[0].decision == "injected" and rows[0].num_cited == 1
    entry = host.session.bank.get("tm-p-2")
    assert entry is not None and entry.injections == 1


def test_rules_only_keeps_what_the_rules_said_on_show() -> None:
    host = Host(cadence_tool_calls=2)
    host.ask()
    host.fail()
    host.fail()
    host.boundary()
    assert host.outcomes == ["injected/intervened"] and host.last == "injected/intervened", "one row, not two"
    host.run("ls")
    host.run("pwd")
    host.boundary()
    assert host.last == "silent/no_client"


def test_a_suppressed_step_keeps_what_the_rules_said_on_show() -> None:
    host = Host(PlayedPolicy(ends("model_silent"), ends("suppressed", operations=[FACT])))
    host.ask()
    host.fail()
    host.boundary()
    host.settled()
    host.fail()
    host.boundary()
    host.settled()
    assert host.outcomes == ["silent/model_silent", "injected/intervened", "silent/suppressed"]
    assert host.last == "injected/intervened" and len(host.session.bank.state().entries) == 2


def test_writes_stay_whatever_the_decision() -> None:
    host = Host(PlayedPolicy(ends("uncited", operations=[FACT]), ends("model_silent", operations=[FACT])))
    host.ask()
    host.step()
    host.step()
    assert [entry.content for entry in host.session.bank.state().entries] == ["The report is JSON."]
    added, updated = host.ledger.steps
    assert added.bank_delta.knowledge.added == 1 and added.decision == "gated"
    assert updated.bank_delta.knowledge.updated == 1 and updated.num_operations == 1


def test_overload_leaves_triggers_pending() -> None:
    policy = PlayedPolicy(ends("overloaded", tokens=0), ends("client_error", tokens=0), ends("endpoint_busy", tokens=0))
    host = Host(policy, cadence_tool_calls=5)
    host.ask()
    for _ in range(5):
        host.run()
    assert host.boundary()
    host.settled()
    assert host.last == "error/overloaded" and host.session.inspect()["pending_triggers"] == ["interval"]
    assert host.boundary()
    host.settled()
    assert host.last == "error/client_error" and host.session.inspect()["pending_triggers"] == []


def test_endpoint_busy_never_replaces_the_shown_decision() -> None:
    host = Host(PlayedPolicy(ends("model_silent"), ends("endpoint_busy", tokens=0)))
    host.ask()
    host.step()
    host.step()
    assert host.outcomes == ["silent/model_silent", "dropped/endpoint_busy"] and host.last == "silent/model_silent"
    assert host.session.inspect()["pending_triggers"] == ["interval"]


def test_attempts_are_billed_to_who_spent_them() -> None:
    from dataclasses import replace

    def answer(snapshot):  # type: ignore[no-untyped-def]
        first = replace(ends("client_error", tokens=7)(snapshot), route="dedicated", model="small")
        return replace(ends("model_silent", tokens=50)(snapshot), route="chat", model="big", earlier=(first,))

    host = Host(PlayedPolicy(answer))
    host.ask()
    host.step()
    assert [(row.route, row.model, row.tokens_in) for row in host.ledger.usages] == [
        ("dedicated", "small", 7),
        ("chat", "big", 50),
    ]
    assert host.outcomes == ["error/client_error", "silent/model_silent"] and host.last == "silent/model_silent"


def test_last_reminder_is_what_waits_or_was_delivered_last() -> None:
    policy = PlayedPolicy(says("one [tm-k-1]"))
    host = Host(policy)
    host.session.apply_operations([FACT])
    host.ask()
    for _ in range(3):
        host.step()
        host.call_model()
    assert [snapshot.last_reminder for snapshot in policy.seen] == [None, "one [tm-k-1]", "one [tm-k-1]"]


def test_ids_are_settled_against_the_live_bank() -> None:
    """While the model thought, a failure took the number that its own entry had on the copy of the bank."""
    gate = threading.Event()

    def answer(snapshot):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        from pmem.bank import Bank

        copy = Bank.from_state(snapshot.bank, clock=lambda: 5000.0)
        copy.apply([Operation("save_knowledge", "Port is 5433.")])
        said = says("Use 5433 [tm-k-2], JSON [tm-k-1]", operations=[Operation("save_knowledge", "Port is 5433.")])
        return replace(said(snapshot), bank_after=copy.state())

    host = Host(PlayedPolicy(answer, gate=gate))
    host.session.apply_operations([FACT])
    host.ask()
    host.session.on_loop_signal()
    host.run()
    host.boundary()
    host.fail("make docs")
    gate.set()
    host.settled()
    reminder = host.session.peek()
    assert reminder is not None and reminder.text == "Use 5433 [tm-k-3], JSON [tm-k-1]" and reminder.cited == ("tm-k-3", "tm-k-1")


def test_a_late_reminder_about_a_failure_solved_meanwhile_is_not_said() -> None:
    gate = threading.Event()
    host = Host(PlayedPolicy(says("make all fails [tm-p-1]"), gate=gate), cadence_tool_calls=1)
    host.ask()
    host.fail()
    host.boundary()
    host.run("make all", "built")
    gate.set()
    host.settled()
    assert host.session.peek() is None and host.outcomes[-1] == "gated/resolved_failure"


def test_a_call_id_is_observed_once() -> None:
    host = Host()
    host.ask()
    host.fail()
    first = host.run("make all", "make: *** No rule to make target 'all'.  Stop.", error=True, call_id="c2")
    again = host.run("make all", "make: *** No rule to make target 'all'.  Stop.", error=True, call_id="c2")
    assert first is not None and again == first
    assert len(host.session.window()) == 2 and len(host.delivered) == 1


def test_equal_text_of_different_calls_is_observed_twice() -> None:
    host = Host()
    host.run("a", "same", call_id="1")
    host.run("b", "same", call_id="2")
    assert len(host.session.window()) == 2


def test_parallel_results_stand_in_call_order() -> None:
    host = Host()
    for number in (1, 2, 3):
        host.session.on_tool_call(tool="bash", args={"command": str(number)}, call_id=str(number), batch_id="b")
    for number in (3, 1, 2):
        host.run(str(number), f"out {number}", call_id=str(number), batch_id="b")
    assert [step.digest for step in host.session.window()] == ["out 1", "out 2", "out 3"]
    assert [step.step for step in host.session.window()] == [1, 2, 3]


def test_a_restore_waits_for_a_boundary_that_can_carry_it() -> None:
    host = Host(cadence_tool_calls=100)
    host.session.apply_operations([FACT])
    host.ask()
    host.run()
    host.session.on_compaction()
    assert host.session.peek() is None
    host.run()
    host.session.on_batch_end()
    reminder = host.session.peek()
    assert reminder is not None and reminder.restores


def test_inspect_is_json_ready_and_detached() -> None:
    import json

    host = Host(PlayedPolicy(says("x [tm-k-1]")))
    host.session.apply_operations([FACT])
    host.ask()
    host.step()
    seen = host.session.inspect()
    assert json.loads(json.dumps(seen)) == seen
    assert seen["tier"] == "llm" and seen["waiting_reminder"]["text"] == "x [tm-k-1]" and len(seen["history"]) == 1
    seen["bank"]["entries"].clear()
    assert len(host.session.inspect()["bank"]["entries"]) == 1


def test_history_is_the_last_twenty() -> None:
    host = Host(PlayedPolicy())
    host.ask()
    for _ in range(25):
        host.step()
    assert len(host.session.inspect()["history"]) == 20 and host.session.inspect()["totals"]["silent"] == 25


def test_secrets_reach_no_place() -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    policy = PlayedPolicy(says(f"key {secret} [tm-k-1]", operations=[Operation("save_knowledge", f"token is {secret}")]))
    host = Host(policy)
    host.session.apply_operations([Operation("save_knowledge", f"use {secret}")])
    host.ask(f"deploy with {secret}")
    host.session.on_agent_text(f"I export {secret}")
    host.run(f"curl -H 'Authorization: Bearer {secret}' x", f"token={secret}")
    host.boundary()
    host.settled()
    host.call_model()
    everything = (
        str(host.session.inspect()) + str([row.model_dump_json() for row in host.ledger.steps]) + policy.seen[0].model_dump_json()
    )
    assert "ghp_" not in everything
    assert "ghp_" not in str(host.delivered)


def test_prepare_and_complete_are_the_two_halves() -> None:
    detached, halves = Host(PlayedPolicy(says("a [tm-k-1]"))), Host(PlayedPolicy(says("a [tm-k-1]")))
    for host in (detached, halves):
        host.session.apply_operations([FACT])
        host.ask()
        host.run()
    detached.boundary()
    detached.settled()
    snapshot = halves.session.prepare()
    assert snapshot is not None
    halves.session.complete(snapshot, says("a [tm-k-1]")(snapshot))
    assert detached.outcomes == halves.outcomes
    one, two = detached.session.inspect(), halves.session.inspect()
    for key in ("bank", "window", "last_decision", "pending_triggers"):
        assert one[key] == two[key]


def test_a_rules_policy_is_the_sessions_own_tier() -> None:
    class Named(PlayedPolicy):
        name = "rules"

    host = Host(Named())
    host.ask()
    host.run()
    assert host.boundary() is False and host.session.inspect()["tier"] == "rules"
    assert host.outcomes == ["silent/no_client"]


def test_a_callback_that_raises_is_counted_and_survived() -> None:
    from pmem.session import MemorySession

    def broken(event: object) -> None:
        raise OSError("ledger is gone")

    session = MemorySession(Settings(cadence_tool_calls=1), on_delivered=broken)
    for _ in range(2):
        note = session.on_tool_result(tool="bash", args={"command": "make"}, text="error: x", is_error=True)
    assert note is not None and session.num_faults == 1


@pytest.mark.parametrize("bad", [None, 7, object(), b"bytes"])
def test_a_host_that_passes_nonsense_is_survived(bad: object) -> None:
    host = Host()
    host.session.on_user_message(bad)  # type: ignore[arg-type]
    host.session.on_agent_text(bad)  # type: ignore[arg-type]
    assert host.session.on_tool_result(tool=bad, args=bad, text=bad) is None  # type: ignore[arg-type]
    host.session.commit(bad)  # type: ignore[arg-type]
    assert host.boundary() is False
    assert host.session.num_faults > 0


EVENTS = st.lists(
    st.sampled_from(
        ["ok", "fail", "fail2", "change", "probe", "user", "abort", "end", "compact", "loop", "say", "quiet", "deliver", "retry",
         "forget", "switch", "again"]
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_whatever_happens_each_word_is_said_once_and_booked(events: list[str]) -> None:
    host = Host(cadence_tool_calls=2)
    session, said = host.session, 0
    for event in events:
        waiting = session.peek()
        if event in ("ok", "fail", "fail2", "change", "probe"):
            command = {"ok": "ls", "fail": "make", "fail2": "make test", "change": "touch x", "probe": "cat nothing"}[event]
            text = "cat: nothing: No such file or directory" if event == "probe" else "error: broken"
            host.run(command, text, error=event in ("fail", "fail2", "probe"))
            session.on_batch_end()
        elif event in ("user", "again"):
            host.ask("run it again" if event == "again" else "go on")
        elif event in ("abort", "end"):
            session.on_turn_end(aborted=event == "abort")
        elif event == "compact":
            session.on_compaction()
        elif event == "loop":
            session.on_loop_signal()
        elif event in ("say", "quiet"):
            session.apply_operations([FACT])
            snapshot = session.prepare()
            if snapshot is not None:
                cited = snapshot.bank.entries[-1].id
                answer = says(f"word {len(host.ledger.steps)} [{cited}]") if event == "say" else ends("uncited")
                session.complete(snapshot, answer(snapshot))
        elif event == "forget":
            session.apply_operations([Operation("delete", id=entry.id) for entry in session.bank.state().entries])
        elif event == "switch":
            session.on_session_change()
        elif waiting is not None:
            assert session.peek() == waiting
            if event == "deliver":
                session.commit(waiting)
                session.commit(waiting)
                said += 1
                assert session.peek() != waiting
        session.evaluate()
    assert session.num_faults == 0, list(session.faults)
    ids = [event.step_id for event in host.delivered]
    assert len(set(ids)) == len(ids) and said == sum(event.channel == "reminder" for event in host.delivered)
    assert len(session.window()) <= 8 and all(1 <= len(row.triggers) <= 3 for row in host.ledger.steps)
    annotated = [row for row in host.ledger.steps if row.tier == "rules" and row.triggers == ("repeated_failure",)]
    assert len(annotated) == sum(event.channel == "annotation" for event in host.delivered)
    for entry in session.bank.state().entries:
        assert entry.touched >= entry.created


def test_the_scored_model_tier_end_to_end() -> None:
    """List, decision read on the edited bank, reminder, gates, delivery; then the same bank fact is not repeated."""
    from pmem.policy import ModelPolicy
    from pmem.scripted import ScriptedBackend
    from pmem.threshold import Threshold

    saves = '<operations>[{"op":"save_knowledge","content":"Output is JSON."}]</operations>'
    empty = "<operations>[]</operations>"
    remind = "Output is JSON, not CSV [tm-k-1]</context_for_action>"
    backend = ScriptedBackend(lists=[saves, empty, empty, empty], probs=[0.2, 0.9, 0.95, 0.3], reminders=[remind, remind])
    host = Host(ModelPolicy(backend, threshold=Threshold.plain(0.5)))
    host.ask("Write the report as JSON.")
    for _ in range(4):
        host.session.on_agent_text("Next: write out/report.csv.")
        host.step()
        host.call_model()
    assert host.outcomes == ["silent/model_silent", "injected/intervened", "silent/duplicate_reminder", "silent/model_silent"]
    assert [row.prob_speak for row in host.ledger.steps] == [0.2, 0.9, 0.95, 0.3]
    assert host.ledger.steps[0].bank_delta.knowledge.added == 1 and host.ledger.steps[1].num_cited == 1
    assert all(row.threshold_id for row in host.ledger.steps)
    (event,) = host.delivered
    assert event.entry_ids == ("tm-k-1",) and event.tier == "llm"
    assert "Next: write out/report.csv." in backend.requests[0].messages[1]["content"]
