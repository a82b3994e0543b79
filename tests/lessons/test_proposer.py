"""From the session's delivery event to an unapproved proposal; and nothing from anywhere else."""

import subprocess
import time
from pathlib import Path

import pytest

from pmem.connect import open_session
from pmem.delivery import Delivered
from pmem.envelope import Operation
from pmem.lessons.background import BackgroundWriter, flush_all
from pmem.lessons.proposer import Proposer
from pmem.lessons.repository import repository_of
from pmem.lessons.session_start import start_of
from pmem.lessons.store import open_store
from pmem.session import MemorySession
from pmem.settings import Settings
from tests.pmem.hosts import wait_for
from tests.pmem.policies import PlayedPolicy, says


def settings_in(folder: Path) -> Settings:
    return Settings(state_dir=folder / "state", data_dir=folder / "data", cadence_tool_calls=1)


def repository(folder: Path) -> Path:
    place = folder / "app"
    place.mkdir()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    (place / "src").mkdir()
    return place / "src"


def event(entry: str, tier: str = "llm") -> Delivered:
    return Delivered(step_id="s-1", tier=tier, entry_ids=(entry,), text=f"Unit [{entry}]", channel="reminder")  # type: ignore[arg-type]


def test_a_delivered_cited_model_reminder_becomes_a_proposal_of_this_repository(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    folder = repository(tmp_path)
    session = open_session(settings.model_copy(update={"lessons": True}), folder=folder, session_id="s1")
    save = Operation("save_knowledge", "The unit is EUR")
    session.use_policy(PlayedPolicy(says("The unit is EUR [tm-k-1].", operations=[save])))
    session.on_user_message("Write the report")
    session.on_turn_start()
    session.apply_operations([save])
    session.on_tool_result(tool="bash", args={"command": "ls"}, text="ok")
    session.on_batch_end()
    assert session.evaluate()
    wait_for(lambda: session.peek() is not None)
    reminder = session.peek()
    assert reminder is not None
    assert flush_all() and not (settings.data_dir / "lessons").exists(), "decided is not delivered"
    session.commit(reminder)
    assert flush_all(10) and session.num_faults == 0
    with open_store(settings) as store:
        (record,) = store.records()
        assert (record.state, record.kind, record.collection, record.repository) == (
            "proposed", "guidance", "bank", str((tmp_path / "app").resolve()),
        )  # fmt: skip
        assert record.provenance.session == "s1" and record.provenance.entry_ids == ("tm-k-1",)
        assert store.observations(record.id)[0]["text"] == reminder.text


@pytest.mark.parametrize(("tier", "inside"), [("rules", True), ("llm", False)])
def test_rules_and_sessions_outside_a_repository_propose_nothing(tmp_path: Path, tier: str, inside: bool) -> None:
    settings = settings_in(tmp_path)
    writer = BackgroundWriter(settings)
    session = MemorySession(settings)
    session.apply_operations([Operation("save_knowledge", "The unit is EUR")])
    proposer = Proposer(writer, repository_of(repository(tmp_path)) if inside else None, session)
    proposer.on_delivered(event("tm-k-1", tier))
    assert writer.flush() and not settings.data_dir.exists()


def test_the_handler_is_quick_and_a_broken_store_is_one_sentence(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (settings.data_dir / "lessons").mkdir(parents=True)
    (settings.data_dir / "lessons" / "lessons.db").write_bytes(b"no database" * 500)
    said: list[str] = []
    writer = BackgroundWriter(settings, said.append)
    session = MemorySession(settings)
    session.apply_operations([Operation("save_knowledge", "The unit is EUR")])
    proposer = Proposer(writer, "/src/app", session)
    times = []
    for _ in range(50):
        before = time.thread_time()
        proposer.on_delivered(event("tm-k-1"))
        times.append(time.thread_time() - before)
    assert sorted(times)[25] < 0.001
    assert writer.flush() and writer.lost == 50
    assert len(said) == 1 and "damaged or no lessons store" in said[0] and "\n" not in said[0]
    start = start_of(settings, folder=repository(tmp_path), session="s2", notice=said.append)
    assert start.block == "" and len(said) == 2


def test_disabled_memory_proposes_and_delivers_nothing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path).model_copy(update={"enabled": False})
    writer = BackgroundWriter(settings)
    writer.put(lambda store: pytest.fail("ran"))
    assert writer.flush()
    assert start_of(settings, folder=tmp_path, session="s").block == "" and not settings.data_dir.exists()


def test_worktrees_and_links_lead_to_one_repository(tmp_path: Path) -> None:
    source = repository(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "app")
    assert repository_of(tmp_path / "link" / "src") == repository_of(source) == str((tmp_path / "app").resolve())
    assert repository_of(Path("/")) is None
