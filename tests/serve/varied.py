"""Snapshots of different lengths and banks, made from the golden one by a seed."""

import random

from pmem.prompt import golden_snapshot
from pmem.snapshot import BankState, Entry, Snapshot


def varied(count: int, seed: int = 0) -> list[Snapshot]:
    """`count` snapshots with 2 to 6 steps and 1 to 5 entries."""
    draw, base = random.Random(seed), golden_snapshot()
    return [_one(draw, base, index) for index in range(count)]


def _one(draw: random.Random, base: Snapshot, index: int) -> Snapshot:
    steps = tuple(
        base.window[place % 2].model_copy(update={"step": place, "digest": f"value {draw.random():.6f} of file{place}.txt"})
        for place in range(draw.randint(2, 6))
    )
    entries = tuple(
        Entry(id=f"tm-k-{place + 1}", kind="knowledge", content=f"Fact {draw.randint(0, 999)}.", created=place, touched=place)
        for place in range(draw.randint(1, 5))
    )
    bank = BankState(entries=entries, next_number=len(entries) + 1)
    task = f"Build report {index} and write it as {draw.choice(['JSON', 'CSV', 'YAML'])}."
    return base.model_copy(update={"task_messages": (task,), "window": steps, "bank": bank})
