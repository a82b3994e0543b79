"""Two channels, one block, exactly once: peek, deliver, commit; what drops, expires or keeps a reminder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.delivery import CLOSE, OPEN, Reminder, ReminderBuffer, as_block, without_own_text
from pmem.envelope import Operation
from tests.pmem.hosts import Host
from tests.pmem.policies import PlayedPolicy, says

FACT = Operation("save_knowledge", "The report is JSON.")
REMIND = "The report must be JSON [tm-k-1]"


def speaking_host(*more: str, **settings: object) -> Host:
    host = Host(PlayedPolicy(says(REMIND), *(says(text) for text in more)), **settings)
    host.session.apply_operations([FACT])
    host.ask()
    return host


def test_the_block_is_visible_and_labelled() -> None:
    assert as_block("x [tm-k-1]") == "<system-reminder>\nMemory: x [tm-k-1]\n</system-reminder>"


def test_delivered_once_and_attributed() -> None:
    host = speaking_host()
    host.step()
    reminder = host.call_model()
    assert reminder is not None and reminder.block == as_block(REMIND)
    assert host.session.peek() is None
    (event,) = host.delivered
    assert (event.entry_ids, event.tier, event.step_id, event.channel) == (("tm-k-1",), "llm", reminder.step_id, "reminder")
    entry = host.session.bank.get("tm-k-1")
    assert entry is not None and entry.injections == 1


def test_a_failed_call_keeps_it_and_the_retry_carries_it_once() -> None:
    host = speaking_host()
    host.step()
    first = host.call_model(fails=True)
    assert host.delivered == []
    second = host.call_model()
    assert first == second
    host.session.commit(second)  # a wrapper that commits again on its own
    assert len(host.delivered) == 1 and host.call_model() is None
    entry = host.session.bank.get("tm-k-1")
    assert entry is not None and entry.injections == 1


def test_an_aborted_turn_drops_its_reminder() -> None:
    host = speaking_host()
    host.step()
    host.session.on_turn_end(aborted=True)
    assert host.session.peek() is None
    assert host.outcomes[-1] == "cancelled/turn_aborted"


def test_an_aborted_turn_leaves_the_reminder_of_the_turn_before() -> None:
    host = speaking_host()
    host.step()
    host.session.on_turn_end()
    host.ask("next")
    host.session.on_turn_end(aborted=True)
    assert host.session.peek() is not None


def test_it_may_come_one_turn_later_and_not_two() -> None:
    host = speaking_host()
    host.step()
    host.session.on_turn_end()
    host.ask("next")
    assert host.session.peek() is not None
    host.session.on_turn_end()
    host.ask("and another")
    assert host.session.peek() is None
    assert host.outcomes[-1] == "expired/stale"


def test_a_compaction_keeps_it_while_what_it_cites_lives() -> None:
    host = speaking_host()
    host.step()
    host.session.on_compaction()
    restore = host.call_model()
    assert restore is None or not restore.restores, "the restore is offered at the next boundary, not before"
    host.boundary()
    kept = [reminder.text for reminder in iter(host.call_model, None)]
    assert any("restored after compaction" in text for text in kept)
    assert restore is not None and restore.text == REMIND


def test_a_compaction_expires_it_when_what_it_cites_is_gone() -> None:
    host = speaking_host()
    host.step()
    host.session.apply_operations([Operation("delete", id="tm-k-1")])
    host.session.on_compaction()
    assert host.session.peek() is None
    assert host.outcomes[-1] == "expired/compacted"


def test_an_uncited_reminder_does_not_outlive_a_compaction() -> None:
    host = Host(PlayedPolicy(says("look at the loop")))
    host.ask()
    host.session.on_loop_signal()
    host.step()
    assert host.session.peek() is not None
    host.session.on_compaction()
    assert host.session.peek() is None and host.outcomes[-1] == "expired/compacted"


def test_a_newer_reminder_takes_the_place_of_one_that_never_left() -> None:
    host = speaking_host("Port 5433 is meant [tm-k-1]")
    host.step()
    host.step()
    assert host.outcomes.count("expired/stale") == 1
    delivered = host.call_model()
    assert delivered is not None and delivered.text.startswith("Port 5433")
    assert host.session.peek() is None


def test_restore_is_consumed_only_when_installed() -> None:
    host = Host(cadence_tool_calls=100)
    host.session.apply_operations([FACT, Operation("update_status", "half way")])
    host.ask()
    host.session.on_compaction(committed=False)
    host.ask("two")
    assert host.session.peek() is None, "only a committed compaction restores"
    host.session.on_compaction()
    host.ask("three")
    offered = host.call_model(fails=True)
    assert offered is not None and offered.restores and "half way" in offered.text
    host.session.on_turn_end(aborted=True)
    assert host.session.peek() is None, "a cancelled offer waits for the next turn"
    host.ask("four")
    again = host.call_model()
    assert again is not None and again.restores
    host.ask("five")
    assert host.session.peek() is None, "once"
    assert host.outcomes == ["injected/intervened"] and host.ledger.steps[0].triggers == ("post_compaction",)


def test_a_compaction_between_offer_and_call_offers_anew() -> None:
    host = Host(cadence_tool_calls=100)
    host.session.apply_operations([FACT])
    host.session.on_compaction()
    host.ask()
    first = host.session.peek()
    host.session.on_compaction()
    assert first is not None
    host.session.commit(first)
    host.ask("next")
    second = host.session.peek()
    assert second is not None and second.step_id != first.step_id


def test_an_empty_bank_says_so() -> None:
    host = Host(cadence_tool_calls=100)
    host.session.on_compaction()
    host.ask()
    assert host.session.peek() is None and host.outcomes == ["silent/bank_empty"]


@pytest.mark.parametrize("where", ["user", "agent", "tool"])
def test_our_own_words_are_never_observed(where: str) -> None:
    host = Host()
    host.ask("The task.")
    own = as_block("Use JSON [tm-k-1]")
    if where == "user":
        host.session.on_user_message(f"{own}\nGo on.")
        host.session.on_user_message(own)
        host.session.on_user_message("not ours in form, but ours", own=True)
    elif where == "agent":
        host.session.on_agent_text(f"I see {own} so I will.")
    host.run("cat log", f"line one\n{own}\nline two" if where == "tool" else "x")
    snapshot = host.session.prepare()
    assert snapshot is not None
    assert "Use JSON" not in snapshot.model_dump_json() and "not ours" not in snapshot.model_dump_json()
    if where == "user":
        assert snapshot.task_messages == ("The task.", "Go on.")


def test_foreign_reminders_stay() -> None:
    text = f"{OPEN}\nThe date has changed.\n{CLOSE} and {as_block('x')} tail {OPEN}"
    assert without_own_text(text) == f"{OPEN}\nThe date has changed.\n{CLOSE} and  tail {OPEN}"


@given(st.lists(st.sampled_from([OPEN, CLOSE, "Memory:", " ", "\n", "x", "<"]), max_size=40))
def test_own_text_filter_is_total_and_idempotent_on_blocks(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert without_own_text(text + as_block("zzz")).count("zzz") == 0 or OPEN in text


def test_buffer_holds_one_of_each() -> None:
    buffer = ReminderBuffer()
    for number in range(1000):
        buffer.put(Reminder(step_id=str(number), tier="llm", text="t", cited=(), triggers=("interval",), turn=0))
        reminder = buffer.peek()
        assert reminder is not None and buffer.commit(reminder)
    assert buffer.peek() is None and len(buffer._committed) <= 64
