"""`lessons: true` in the settings: what hosts' sessions propose and what they are told. Nothing of it without that word."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pmem.connect import open_session
from pmem.delivery import Reminder
from pmem.envelope import Operation
from pmem.integrations.hook.conversation import Conversation
from pmem.integrations.hook.daemon import open_by_settings
from pmem.integrations.hook.dialects import CLAUDE, read_event
from pmem.lessons import curation
from pmem.lessons.background import flush_all
from pmem.lessons.doors import add
from pmem.lessons.session_start import HEADING
from pmem.lessons.store import LessonStore, open_store
from pmem.session import MemorySession
from pmem.settings import Settings
from tests.lessons.world import PERSON, guidance, proposed

REMINDER = Reminder(step_id="s-1", tier="llm", text="EUR [tm-k-1]", cited=("tm-k-1",), triggers=("interval",), turn=0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "app" / "src"
    place.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(place.parent)], check=True)
    return place


def settings_in(folder: Path, *, lessons: bool = True) -> Settings:
    return Settings(state_dir=folder / "state", data_dir=folder / "data", telemetry=False, lessons=lessons)


def store_with_a_lesson(settings: Settings, project: Path) -> LessonStore:
    store = open_store(settings)
    add(store, guidance("The unit is EUR", repository=str(project.parent.resolve())), PERSON)
    proposed(store, "Nobody approved this", repository=str(project.parent.resolve()))
    return store


def delivers(session: MemorySession) -> None:
    session.apply_operations([Operation("save_knowledge", "The unit is EUR in reports")])
    session.commit(REMINDER)


def test_without_the_word_nothing_is_proposed_told_or_opened(tmp_path: Path, project: Path) -> None:
    assert Settings().lessons is False
    session = open_session(settings_in(tmp_path, lessons=False), folder=project)
    delivers(session)
    assert flush_all() and session.opening is None and not (tmp_path / "data").exists()


def test_a_session_is_told_what_was_approved_and_proposes_what_it_delivered(tmp_path: Path, project: Path) -> None:
    settings = settings_in(tmp_path)
    store = store_with_a_lesson(settings, project)
    heard: list[object] = []
    session = open_session(settings, folder=project, session_id="s7", on_delivered=heard.append)
    assert session.opening is not None and HEADING in session.opening.block and "The unit is EUR" in session.opening.block
    assert "Nobody" not in session.opening.block
    assert flush_all() and store.rows("SELECT * FROM deliveries") == [], "prepared is not told"
    session.opening.told()
    session.opening.told()
    delivers(session)
    assert flush_all(10) and len(heard) == 1 and session.num_faults == 0
    (row,) = store.rows("SELECT * FROM deliveries")
    assert row["session"] == "s7" and len(json.loads(row["delivered"])) == 1
    made = next(record for record in store.records(state="proposed") if record.title == "The unit is EUR in reports")
    assert made.provenance.session == "s7" and made.provenance.door == "proposal"


def test_an_edit_reaches_the_next_preparation_and_not_this_session(tmp_path: Path, project: Path) -> None:
    settings = settings_in(tmp_path)
    store = store_with_a_lesson(settings, project)
    session = open_session(settings, folder=project)
    curation.withdraw(store, store.records(state="approved")[0].id, PERSON)
    assert session.opening is not None and "The unit is EUR" in session.opening.block
    assert open_session(settings, folder=project).opening is None


def test_a_broken_store_is_one_sentence_among_the_sessions_notices(tmp_path: Path, project: Path) -> None:
    settings = settings_in(tmp_path)
    (settings.data_dir / "lessons").mkdir(parents=True)
    (settings.data_dir / "lessons" / "lessons.db").write_bytes(b"no database" * 500)
    said: list[str] = []
    session = open_session(settings, folder=project, notice=said.append)
    for _ in range(5):
        session.commit(REMINDER)
    delivers(session)
    assert flush_all(10) and session.opening is None and session.num_faults == 0
    assert set(said) == set(said[:1]) and "damaged or no lessons store" in said[0]


def test_the_kill_switch_is_above_the_word(tmp_path: Path, project: Path) -> None:
    settings = settings_in(tmp_path)
    store_with_a_lesson(settings, project)
    assert open_session(settings.model_copy(update={"enabled": False}), folder=project).opening is None


@pytest.mark.parametrize("live", [True, False])
def test_the_hook_tells_it_at_the_start_and_again_after_a_compaction(tmp_path: Path, project: Path, live: bool) -> None:
    """In shadow nothing is said, so nothing is told, proposed or recorded."""
    settings = settings_in(tmp_path)
    store = store_with_a_lesson(settings, project)
    path = tmp_path / "settings.yaml"
    path.write_text(f"lessons: true\ntelemetry: false\nstate_dir: {settings.state_dir}\ndata_dir: {settings.data_dir}\n")
    event = {"session_id": "s1", "cwd": str(project)}

    def said(**more: str) -> str:
        told = conversation.handle(read_event(CLAUDE, {**event, **more}))
        conversation.delivered(told)
        return told.text(bare=True)

    first = read_event(CLAUDE, event)
    conversation = Conversation(open_by_settings(settings, path)(first.conversation, live, first.folder), CLAUDE, live)
    start = {"hook_event_name": "SessionStart"}
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": "Go on."}
    found = [
        "The unit is EUR" in said(**more)
        for more in (
            {**start, "source": "startup"}, prompt, {**start, "source": "compact"}, prompt, {**start, "source": "resume"}, prompt
        )
    ]  # fmt: skip
    assert found == ([True, False, True, False, False, False] if live else [False] * 6)
    delivers(conversation.session)
    assert flush_all(10)
    assert len(store.rows("SELECT * FROM deliveries")) == int(live)
    assert len(store.records(state="proposed")) == 1 + int(live)


def test_the_core_imports_nothing_of_lessons_until_the_word_is_said(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from pmem.connect import open_session
from pmem.settings import Settings
import pmem.cli, pmem.integrations.hook.daemon, pmem.integrations.adapter
folder = Path(sys.argv[1])
open_session(Settings(state_dir=folder, data_dir=folder))
before = [name for name in sys.modules if name.startswith(("pmem.lessons", "sqlite3"))]
open_session(Settings(state_dir=folder, data_dir=folder, lessons=True))
sys.exit(str(before) if before or "pmem.lessons.host" not in sys.modules else 0)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
