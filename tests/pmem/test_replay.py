"""Events become session calls by one driver; a rehearsal says what would have been said, where, and why not."""

from collections.abc import Iterator

import pytest

from pmem.rehearsal import Finding, Rehearsal
from pmem.replay import feed
from pmem.rollout import Event
from pmem.session import MemorySession
from pmem.settings import Settings
from pmem.telemetry import Ledger
from tests.pmem.policies import PlayedPolicy, ends, says
from tests.pmem.recorded import recorded


def fed_session(cadence: int = 1) -> tuple[MemorySession, list[tuple[Event, object, object]]]:
    session = MemorySession(Settings(cadence_tool_calls=cadence), telemetry=Ledger(), clock=lambda: 1.0)
    seen = []
    for event in recorded().events:
        fed = feed(session, event)
        seen.append((event, fed, session.prepare() if fed.boundary else None))
    return session, seen


def test_every_tool_step_is_a_boundary_and_a_batch_is_one() -> None:
    _, seen = fed_session()
    steps = [snapshot.window[-1].step for _, _, snapshot in seen if snapshot is not None]  # type: ignore[attr-defined]
    assert steps == [1, 2, 3, 4, 5, 7]


def test_a_result_gets_tool_and_arguments_of_its_call() -> None:
    session, _ = fed_session()
    assert [step.call for step in session.window()][:2] == ["bash make a.o", "bash ls"]
    assert [step.digest for step in session.window()][-2:] == ["one", "two"], "call order, not arrival"


def test_the_failing_result_is_annotated_once() -> None:
    _, seen = fed_session()
    noted = [event.i for event, fed, _ in seen if fed.annotation]  # type: ignore[attr-defined]
    assert noted == [8]


def test_thoughts_stand_with_the_step_they_came_before() -> None:
    _, seen = fed_session()
    snapshots = [snapshot for _, _, snapshot in seen if snapshot is not None]
    assert snapshots[0].window[-1].thought == "Now make. Next: make again."  # type: ignore[attr-defined]
    assert snapshots[1].window[-1].thought is None  # type: ignore[attr-defined]
    assert snapshots[-1].window[-2].thought == "Built it."  # type: ignore[attr-defined]


def test_own_reminders_in_a_recording_are_not_observed() -> None:
    _, seen = fed_session()
    last = [snapshot for _, _, snapshot in seen if snapshot is not None][-1]
    assert last.task_messages == ("Build a.o and write out/report.json as JSON.", "Now the report.")  # type: ignore[attr-defined]


def test_results_without_ids_pair_in_order() -> None:
    session = MemorySession(Settings(cadence_tool_calls=1))
    for number in (1, 2):
        feed(session, Event(i=number, kind="tool_call", tool=f"t{number}", args={}))
    for number in (1, 2):
        assert feed(session, Event(i=2 + number, kind="tool_result", text="x")).boundary
    assert [step.tool for step in session.window()] == ["t1", "t2"]


def test_a_result_without_a_call_still_counts() -> None:
    session = MemorySession(Settings(cadence_tool_calls=1))
    assert feed(session, Event(i=0, kind="tool_result", text="x", call_id="lost")).boundary
    assert session.window()[0].tool == "tool"


def test_replay_does_not_hide_faults() -> None:
    session = MemorySession(Settings(cadence_tool_calls=1), on_delivered=lambda event: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        for event in recorded().events:
            feed(session, event)


def test_the_same_rollout_gives_the_same_snapshots() -> None:
    one = [snapshot for _, _, snapshot in fed_session()[1]]
    assert one == [snapshot for _, _, snapshot in fed_session()[1]]


def findings(policy: PlayedPolicy | None = None, **settings: object) -> list[Finding]:
    return list(Rehearsal(Settings(**settings), policy).run(recorded().events))  # type: ignore[arg-type]


def test_rehearsal_with_rules_only() -> None:
    found = findings()
    said = [finding for finding in found if finding.said]
    assert [(finding.channel, finding.step) for finding in said] == [("annotation", 3), ("reminder", None)]
    assert "error: expected ';'" in (said[0].said or "") and "restored after compaction" in (said[1].said or "")
    quiet = [finding for finding in found if finding.kind == "step" and not finding.said]
    assert next(finding.why for finding in quiet) == "not due: 1 of 10 tools since the last step"


def test_rehearsal_with_a_model() -> None:
    policy = PlayedPolicy(ends("model_silent"), says("Write JSON [tm-p-1]"), ends("below_threshold"))
    found = findings(policy, cadence_tool_calls=1)
    outcomes = [(finding.decision, finding.why) for finding in found if finding.kind == "step"]
    assert outcomes[:3] == [("silent", "model_silent"), ("injected", "intervened"), ("injected", "repeated failure")]
    delivered = [finding for finding in found if finding.kind == "delivery"]
    assert delivered[0].said is not None and "Write JSON [tm-p-1]" in delivered[0].said
    assert len(policy.seen) == 6


@pytest.fixture(autouse=True)
def _no_files(tmp_path, monkeypatch) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """Replay writes nothing anywhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []
