"""Sessions never see each other, one session takes many threads, and what comes late stays out."""

import threading
from concurrent.futures import ThreadPoolExecutor

from pmem.envelope import Operation
from tests.pmem.hosts import Host, wait_for
from tests.pmem.policies import PlayedPolicy, ends, says

FACT = Operation("save_knowledge", "The report is JSON.")


def test_eight_threads_on_one_session() -> None:
    policy = PlayedPolicy()
    host = Host(policy, cadence_tool_calls=3)
    host.ask()
    session = host.session
    per_thread = 150

    def work(name: int) -> list[str | None]:
        notes = []
        for number in range(per_thread):
            session.on_agent_text(f"{name} plans {number}")
            notes.append(session.on_tool_result(tool="bash", args={"command": f"make {name} {number // 2}"}, text="error: no",
                                                is_error=True, call_id=f"{name}-{number}"))  # fmt: skip
            session.on_batch_end()
            session.evaluate()
            reminder = session.peek()
            if reminder is not None:
                session.commit(reminder)
            if number % 50 == 0:
                session.on_compaction()
                session.on_turn_end()
                session.on_turn_start()
            session.inspect()
        return notes

    with ThreadPoolExecutor(8) as pool:
        notes = [note for notes in pool.map(work, range(8)) for note in notes]
    host.settled()
    assert session.num_faults == 0, list(session.faults)
    assert session.window()[-1].step == 8 * per_thread
    bank = session.bank.state()
    assert len(bank.entries) == 30 and len({entry.id for entry in bank.entries}) == 30
    annotations = [event for event in host.delivered if event.channel == "annotation"]
    assert len(annotations) == sum(note is not None for note in notes) > 0
    assert len({event.step_id for event in host.delivered}) == len(host.delivered)


def test_eight_threads_save_the_same_fact_once() -> None:
    host = Host()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: host.session.apply_operations([FACT]), range(64)))
    (entry,) = host.session.bank.state().entries
    assert entry.id == "tm-k-1"


def test_one_reminder_is_committed_once_by_eight_threads() -> None:
    host = Host(PlayedPolicy(says("JSON [tm-k-1]")))
    host.session.apply_operations([FACT])
    host.ask()
    host.step()
    reminder = host.session.peek()
    assert reminder is not None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: host.session.commit(reminder), range(32)))
    entry = host.session.bank.get("tm-k-1")
    assert len(host.delivered) == 1 and entry is not None and entry.injections == 1


def test_two_sessions_share_nothing_but_the_policy() -> None:
    policy = PlayedPolicy(says("A only [tm-k-1]", operations=[Operation("save_knowledge", "A's fact")]))
    one, two = Host(policy), Host(policy)
    one.session.apply_operations([FACT])
    for host in (one, two):
        host.ask(f"task of {id(host)}")
    one.step()
    two.run("cat b")
    snapshot = two.session.prepare()
    assert (
        snapshot is not None and "A's fact" not in snapshot.model_dump_json() and str(id(one)) not in snapshot.model_dump_json()
    )
    assert two.session.peek() is None and two.ledger.steps == [] and one.session.peek() is not None
    assert one.session.session_id != two.session.session_id


def late(answer, cause) -> Host:  # type: ignore[no-untyped-def]
    """A step is in flight when `cause` happens; then it answers."""
    gate = threading.Event()
    host = Host(PlayedPolicy(answer, gate=gate))
    host.session.apply_operations([FACT])
    host.ask()
    host.run()
    assert host.boundary()
    cause(host.session)
    gate.set()
    wait_for(lambda: bool(host.ledger.steps))
    return host


def test_a_late_answer_after_a_session_change_is_discarded_and_billed() -> None:
    writes = [Operation("save_knowledge", "of the old session")]
    host = late(says("old [tm-k-1]", operations=writes), lambda session: session.on_session_change())
    assert host.outcomes == ["cancelled/scope_changed"]
    assert host.session.peek() is None and host.session.bank.state().entries == ()
    assert host.last == "none" and host.session.inspect()["history"] == []
    (bill,) = host.ledger.usages
    assert bill.tokens_in == 100 and bill.outcome == "cancelled/scope_changed"
    assert host.ledger.steps[0].num_operations == 0 and host.ledger.steps[0].tokens_total == 110


def test_the_new_session_starts_from_nothing() -> None:
    host = Host(PlayedPolicy(says("JSON [tm-k-1]")))
    host.session.apply_operations([FACT])
    host.ask("old task")
    host.fail()
    host.step()
    before = host.session.session_id
    host.session.on_session_change()
    assert host.session.session_id != before
    assert host.outcomes[-1] == "cancelled/scope_changed", "the waiting reminder went with its session"
    host.ask("new task")
    host.fail()
    snapshot = host.session.prepare()
    assert snapshot is not None
    assert snapshot.task_messages == ("new task",) and len(snapshot.window) == 1 and snapshot.last_reminder is None
    assert host.fail() is not None, "a failure of the old session does not count: this is the second of the new"


def test_a_step_of_an_aborted_turn_is_discarded() -> None:
    host = late(says("x [tm-k-1]", operations=[FACT]), lambda session: session.on_turn_end(aborted=True))
    assert host.outcomes == ["cancelled/turn_aborted"] and host.session.peek() is None
    assert len(host.ledger.usages) == 1


def test_a_compaction_while_the_model_thinks() -> None:
    kept = late(says("JSON [tm-k-1]"), lambda session: session.on_compaction())
    assert kept.outcomes == ["injected/intervened"]
    reminder = kept.session.peek()
    assert reminder is not None and reminder.cited == ("tm-k-1",)

    def forget_and_compact(session):  # type: ignore[no-untyped-def]
        session.on_loop_signal()
        session.apply_operations([Operation("delete", id="tm-k-1")])
        session.on_compaction()

    gone = late(says("JSON [tm-k-1]"), forget_and_compact)
    assert gone.session.peek() is None
    assert gone.outcomes[-1] in ("gated/uncited", "expired/compacted")


def test_a_step_that_outlives_two_turns_says_nothing() -> None:
    def two_turns(session):  # type: ignore[no-untyped-def]
        for _ in range(2):
            session.on_turn_end()
            session.on_turn_start()

    host = late(says("JSON [tm-k-1]"), two_turns)
    assert host.outcomes == ["injected/intervened", "expired/stale"] and host.session.peek() is None


def test_a_closed_session_only_bills() -> None:
    host = late(ends("model_silent", operations=[Operation("save_knowledge", "late")]), lambda session: session.close())
    assert host.outcomes == ["cancelled/scope_changed"] and len(host.ledger.usages) == 1
    assert len(host.session.bank.state().entries) == 1
