"""The lessons store with 100,000 records: session start, search and the page.

    python benchmarks/bench_lessons.py                  # builds the store, measures; about three minutes on two free cores
    python benchmarks/bench_lessons.py --store FOLDER   # keeps the store there and uses it again

Records come in by the store's own doors (import, proposals, a person's decisions), all of them in one transaction.

Budget: session-start delivery p95 <= 20 ms (opening the file included), search p95 <= 50 ms, page p95 <= 300 ms (queue with 200
proposals, rendered). Exit code 1 when a figure is over budget. Wall time; processor time of the process stands beside it, because
a busy machine makes the first say little.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from pmem.lessons import curation
from pmem.lessons.doors import Observation, propose, take_in
from pmem.lessons.page.app import make_app
from pmem.lessons.records import Draft, this_person
from pmem.lessons.search import search
from pmem.lessons.session_start import session_start
from pmem.lessons.store import LessonStore

NUM = 100_000
NUM_PROPOSED = 2_000
"""Of them by automatic proposals with three observations each; the others are imported."""
BUDGET_MS = {"session start": 20.0, "search": 50.0, "page": 300.0}
DECISIONS = ((curation.approve, 0.3), (curation.reject, 0.15), (curation.withdraw, 0.05))
PERSON = this_person("bench")
COMMON = ["the", "build", "test", "of", "a", "file", "with", "unit", "path", "error", "run", "make", "report", "json", "config"]


def build(path: Path, num: int) -> None:
    """`num` records of 20 repositories, half of them in the first; words common and rare; half of them decided."""
    rng = random.Random(5)
    ticks = itertools.count(1_000_000)
    store = LessonStore(path, clock=lambda: float(next(ticks)))
    with store.transaction():
        names = list(take_in(store, (drawn(rng, number) for number in range(num - NUM_PROPOSED)), PERSON, source="bench").added)
        for number in range(num - NUM_PROPOSED, num):
            draft = drawn(rng, number, kind="guidance")
            for step in range(3):
                record = propose(
                    store, draft, Observation(session=f"s{number}", step=f"s{number}-{step}", entry="tm-k-1", text=draft.title)
                )
            names.append(record.id)
        decided = rng.sample(names[: -NUM_PROPOSED // 2], k=num // 2)
        for name, decide in zip(
            decided, rng.choices([act for act, _ in DECISIONS], [share for _, share in DECISIONS], k=num // 2)
        ):
            decide(store, name, PERSON, "as the benchmark says")
    assert store.count() == num
    store.close()


def drawn(rng: random.Random, number: int, *, kind: str | None = None) -> Draft:
    """One random draft."""
    place = 0 if rng.random() < 0.5 else rng.randrange(1, 20)
    words = [rng.choice(COMMON) for _ in range(25)] + [f"rare{rng.randrange(5_000)}" for _ in range(3)]
    rng.shuffle(words)
    kind = kind or rng.choice(["guidance", "guidance", "guidance", "preference", "session_memory"])
    return Draft.model_validate({
        "kind": kind, "title": " ".join([*words[:8], str(number)]), "body": " ".join(words[8:]), "tags": (words[0],),
        "repository": f"/src/{place}", "collection": "bank" if kind == "guidance" else None,
        "relevance_required": kind == "session_memory",
    })  # fmt: skip


def measured(name: str, act: Callable[[int], object], num: int) -> tuple[str, float]:
    """Prints median and p95 of wall time, and of processor time; gives the p95."""
    act(0)
    wall, cpu = [], []
    for number in range(num):
        before, spent = time.perf_counter(), time.process_time()
        act(number)
        wall.append((time.perf_counter() - before) * 1e3)
        cpu.append((time.process_time() - spent) * 1e3)
    wall.sort()
    cpu.sort()
    at = int(num * 0.95)
    print(
        f"{name:<14} wall median {wall[num // 2]:7.2f} ms, p95 {wall[at]:7.2f} ms; "
        f"processor median {cpu[num // 2]:7.2f} ms, p95 {cpu[at]:7.2f} ms (budget {BUDGET_MS[name]:.0f})"
    )
    return name, wall[at]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=NUM)
    parser.add_argument("--store", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = (options.store or Path(folder)) / "lessons.db"
        if not path.exists():
            before = time.perf_counter()
            build(path, options.records)
            print(
                f"built {options.records:,} records in {time.perf_counter() - before:.0f} s, {path.stat().st_size / 1e6:.0f} MB"
            )
        figures = dict(_figures(path))
    over = [name for name, figure in figures.items() if figure > BUDGET_MS[name]]
    print("over budget: " + ", ".join(over) if over else "all figures within budget")
    return 1 if over else 0


def _figures(path: Path) -> list[tuple[str, float]]:
    rng = random.Random(6)

    def start(number: int) -> object:
        with LessonStore(path) as store:
            return session_start(store, repository=f"/src/{number % 20}", session="bench")

    store = LessonStore(path)

    def find(number: int) -> object:
        words = [rng.choice(COMMON), rng.choice(COMMON), f"rare{rng.randrange(5_000)}"][: 1 + number % 3]
        return search(store, " ".join(words), repository=f"/src/{number % 20}" if number % 2 else None)

    app = make_app(store, PERSON, token="t", port=80)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:80", headers={"host": "127.0.0.1:80"},
        cookies={"pmem_lessons_80": "t"},
    )  # fmt: skip
    with asyncio.Runner() as runner:

        def page(number: int) -> object:
            answer = runner.run(client.get(f"/?page={number % 5}"))
            assert answer.status_code == 200 and answer.text.count("<article") == 200
            return answer

        return [measured("session start", start, 200), measured("search", find, 200), measured("page", page, 40)]


if __name__ == "__main__":
    sys.exit(main())
