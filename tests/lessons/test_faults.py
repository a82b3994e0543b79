"""Killed at any moment, eight at once, a full disk, a read-only folder: nothing acknowledged is lost, nothing stands half."""

import contextlib
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pmem.errors import UserError
from pmem.lessons.checkpoints import recover
from pmem.lessons.doors import add
from pmem.lessons.records import Draft
from pmem.lessons.search import search
from pmem.lessons.session_start import start_of
from pmem.lessons.store import LessonStore, open_store
from pmem.settings import Settings
from tests.lessons.abuse import started
from tests.lessons.world import PERSON, REPOSITORY, guidance, new_store, proposed

ROOT = Path(__file__).parents[2]
NUM_KILLS = int(os.environ.get("PMEM_TEST_KILLS", "200"))


def with_counter(folder: Path) -> None:
    store = new_store(folder)
    add(store, Draft(kind="preference", title="counter", body="0", repository=REPOSITORY), PERSON)
    store.close()


def lines_of(pipe: Connection) -> list[str]:
    """Everything the process still said before it ended."""
    lines: list[str] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            lines.append(pipe.recv())
    return lines


def acknowledged(lines: list[str]) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.startswith("ack")]


def check_whole(folder: Path, acks: list[list[str]]) -> LessonStore:
    """The next start is clean, everything acknowledged is there, and a change is all or nothing."""
    store = LessonStore(folder / "lessons" / "lessons.db")
    recover(store)
    assert store.rows("PRAGMA integrity_check")[0][0] == "ok"
    store.rows("INSERT INTO search (search) VALUES ('integrity-check')")
    assert not store.rows("SELECT * FROM publications WHERE state != 'complete'")
    names = [name for ack in acks if ack[0] != "edit" for name in ack[1:]]
    assert set(store.by_ids(names)) == set(names)
    for row in store.rows("SELECT change, count(*) AS num FROM history WHERE action = 'merge' GROUP BY change"):
        assert row["num"] == 3, "a merge stands whole or not at all"
    edits = [int(ack[1]) for ack in acks if ack[0] == "edit"]
    counter = int(store.records(kind="preference")[0].body)
    assert counter >= max(edits, default=0)
    assert counter == store.rows("SELECT count(*) FROM history WHERE action = 'edit'")[0][0], "an update was lost"
    return store


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Each process is killed a few acknowledged changes in, at a random moment of the next one."""
    rng = random.Random(8)
    with_counter(tmp_path)
    acks: list[list[str]] = []
    for number in range(NUM_KILLS):
        process, pipe = started(tmp_path, number)
        lines = [pipe.recv() for _ in range(1 + rng.randrange(6))]
        assert lines[0] == "ready"
        time.sleep(rng.uniform(0, 0.03))
        process.kill()
        process.join()
        acks += acknowledged(lines + lines_of(pipe))
        check_whole(tmp_path, acks).close()
    print(f"{NUM_KILLS} kills, {len(acks)} acknowledged changes, all there")
    assert {ack[0] for ack in acks} == {"propose", "publish", "edit", "merge"} or NUM_KILLS < 50
    for backup in tmp_path.glob("backup-*/target.db"):
        if backup.stat().st_size:
            LessonStore(backup).close()


@pytest.mark.slow
def test_eight_processes_at_once(tmp_path: Path) -> None:
    with_counter(tmp_path)
    running = [started(tmp_path, seed, 6) for seed in range(8)]
    said = [lines_of(pipe) for _, pipe in running]
    for process, _ in running:
        process.join(60)
        assert process.exitcode == 0
    acks = [ack for lines in said for ack in acknowledged(lines)]
    kinds = [ack[0] for ack in acks]
    assert (kinds.count("propose"), kinds.count("publish"), kinds.count("edit")) == (48, 48, 48)
    refused = [line for lines in said for line in lines if line.startswith("refused")]
    assert all("changed since the report" in line for line in refused), refused
    assert kinds.count("merge") + len(refused) == sum(number % 4 == seed % 4 for seed in range(8) for number in range(6))
    store = check_whole(tmp_path, acks)
    assert store.records(kind="preference")[0].body == "48"
    numbers = [row[0] for row in store.rows("SELECT DISTINCT change FROM history ORDER BY change")]
    assert numbers == list(range(1, len(numbers) + 1))


WRITES = """
import sys
from pathlib import Path
from pmem.errors import UserError
from pmem.lessons.doors import propose
from pmem.lessons.session_start import start_of
from pmem.lessons.store import LessonStore, open_store
from pmem.settings import Settings
from tests.lessons.abuse import started
from tests.lessons.world import guidance, seen
kept = 0
try:
    store = LessonStore(Path(sys.argv[1]))
    for number in range(3000):
        propose(store, guidance(f"lesson {number}", body="b" * 4000), seen())
        kept += 1
except UserError as error:
    print(error, file=sys.stderr)
print(kept)
"""


def written(path: Path, prepare: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", WRITES, str(path)], cwd=ROOT, capture_output=True, text=True, preexec_fn=prepare, timeout=300
    )  # type: ignore[call-overload]
    return int(done.stdout), done.stderr


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files is how the system says that there is no room: writes really fail in the middle."""
    path = new_store(tmp_path).path

    def limit() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    kept, err = written(path, limit)
    assert 0 < kept < 3000 and "disk is full or failing" in err and err.count("\n") == 1
    with LessonStore(path) as store:
        assert store.count() == kept and store.rows("PRAGMA integrity_check")[0][0] == "ok"
        assert len(search(store, "lesson", limit=500)) > 0
        proposed(store, "room again")


def _as_nobody(settings: Settings, out: Connection) -> None:
    """What somebody who may not write in the folder hears: from a command, and from a session's start."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    said: list[str] = []
    try:
        with open_store(settings) as store:
            proposed(store, "another")
        said.append("written")
    except UserError as error:
        said.append(str(error))
    start = start_of(settings, folder=Path("/"), session="s", notice=said.append)
    out.send((said, start.block))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become a user who may not write")
def test_a_read_only_folder_is_one_sentence() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        Path(folder).chmod(0o755)
        settings = Settings(data_dir=Path(folder), state_dir=Path(folder))
        with open_store(settings) as store:
            proposed(store)
            before = store.digest()
        store.folder.chmod(0o755)
        fork = multiprocessing.get_context("fork")
        reading, writing = fork.Pipe(duplex=False)
        process = fork.Process(target=_as_nobody, args=(settings, writing))
        process.start()
        assert reading.poll(60)
        said, block = reading.recv()
        process.join()
        assert block == "" and "cannot be written or opened" in said[0] and all("\n" not in sentence for sentence in said)
        with open_store(settings) as store:
            assert store.digest() == before


AGENT = """
import json, sys
from pathlib import Path
from pmem.envelope import Operation
from pmem.delivery import Reminder
from pmem.connect import open_session
from pmem.lessons.background import flush_all
from pmem.settings import Settings
said = []
settings = Settings(data_dir=Path(sys.argv[1]), state_dir=Path(sys.argv[2]), telemetry=False, lessons=True)
session = open_session(settings, folder=Path(sys.argv[3]), notice=said.append)
session.apply_operations([Operation("save_knowledge", "The unit is EUR")])
for number in range(5):
    reminder = Reminder(step_id=f"s-{number}", tier="llm", text="x [tm-k-1]", cited=("tm-k-1",), triggers=("interval",), turn=0)
    session.commit(reminder)
told = session.opening and session.opening.block
print(json.dumps({"flushed": flush_all(30), "faults": session.num_faults, "said": said, "told": told}))
"""


@pytest.mark.parametrize("what", ["full", "read-only"])
def test_the_agent_never_notices(tmp_path: Path, what: str) -> None:
    """A session whose lessons cannot be written goes on; the person gets one sentence."""
    (tmp_path / "app" / ".git").mkdir(parents=True)
    data, prepare = tmp_path / "data", None
    if what == "full":
        new_store(data).close()

        def prepare() -> None:
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    else:
        data.write_text("a file where the folder should be")
    done = subprocess.run(
        [sys.executable, "-c", AGENT, str(data), str(tmp_path / "state"), str(tmp_path / "app")],
        cwd=ROOT, capture_output=True, text=True, preexec_fn=prepare,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == 0 and found["flushed"] and found["told"] is None
    assert 1 <= len(found["said"]) <= 2 and all("\n" not in sentence for sentence in found["said"])


def test_other_writers_wait_for_a_long_transaction(tmp_path: Path) -> None:
    first, second = new_store(tmp_path), LessonStore(tmp_path / "lessons" / "lessons.db")
    with first.transaction():
        add(first, guidance("one"), PERSON)
        assert second.records() == [], "readers never wait"
    assert [record.title for record in second.records()] == ["one"]
