"""A small task to learn: the bank holds facts, the agent's newest plan keeps to them or breaks one. Speak when it breaks one.

Right and wrong values come from the same pools, so only comparing the plan with the bank tells. For tests and measurements.
"""

import random
from typing import Any

from pmem.canonical import content_id
from pmem.envelope import render_envelope
from pmem.prompt import render_messages
from pmem.snapshot import BankState, Entry, Snapshot, Step

KINDS: dict[str, tuple[str, str, list[str]]] = {
    "format": ("Write the report as {v}.", "write the report as {v}", ["JSON", "CSV", "YAML", "XML", "TOML", "HTML"]),
    "folder": ("Put all output into {v}.", "save the result into {v}", ["out/", "build/", "dist/", "results/", "final/", "run/"]),
    "branch": ("Work on branch {v}.", "commit on branch {v}", ["main", "dev", "release", "hotfix", "staging", "feature-x"]),
    "port": ("The service is on port {v}.", "call the service on port {v}", ["8080", "5000", "9090", "3000", "7001", "4433"]),
    "column": ("The key column is {v}.", "join on column {v}", ["user_id", "order_id", "sku", "email", "region", "batch"]),
    "tool": ("Use {v} for tests.", "run the tests with {v}", ["pytest", "nose2", "unittest", "tox", "nox", "ward"]),
    "table": ("The data is in table {v}.", "query table {v}", ["orders", "clients", "events", "stock", "visits", "prices"]),
    "unit": ("Give amounts in {v}.", "print the amounts in {v}", ["euros", "dollars", "cents", "pounds", "yen", "francs"]),
    "user": ("Run commands as user {v}.", "run the command as user {v}", ["root", "deploy", "build", "www", "postgres", "guest"]),
    "limit": ("Keep at most {v} rows.", "keep {v} rows", ["10", "25", "50", "100", "200", "500"]),
}  # fmt: skip
HELD_OUT = ("user", "limit")
FILLER = ("Listed the files.", "Read the log.", "Checked the state.", "Opened the notes.", "Looked at the diff.")


def contradiction_rows(num_rows: int, *, seed: int, split: str, kinds: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Rows of `sft.parquet`: half of them break a fact."""
    generator = random.Random(seed)
    known = kinds or tuple(kind for kind in KINDS if kind not in HELD_OUT)
    return [_row(generator, known, speaks=bool(index % 2), split=split, index=index) for index in range(num_rows)]


def contradiction_pivots(num_rows: int, *, seed: int) -> list[dict[str, Any]]:
    """Rows of `pivots.parquet`: the fact that is broken repairs the plan, any other reminder costs a little."""
    generator = random.Random(seed)
    known = tuple(kind for kind in KINDS if kind not in HELD_OUT)
    return [
        _pivot(_snapshot(generator, known, speaks=bool(index % 2), index=index), bool(index % 2)) for index in range(num_rows)
    ]


def _pivot(made: tuple[Snapshot, Entry], speaks: bool) -> dict[str, Any]:
    snapshot, target = made
    silent = 0.2 if speaks else 0.9
    candidates = [
        {
            "candidate_id": entry.id,
            "text": f"{entry.content} [{entry.id}]",
            "cited_ids": [entry.id],
            "value": 0.9 if speaks and entry.id == target.id else silent - 0.1,
            "std_error": 0.1,
        }
        for entry in snapshot.bank.entries
    ]
    return {
        "snapshot_id": content_id(snapshot.model_dump(mode="json")),
        "split": "train",
        "prompt_messages": list(render_messages(snapshot)),
        "value_silent": silent,
        "std_error_silent": 0.1,
        "candidates": candidates,
        "pivot_mean": silent,
        "pivot_var": 0.1,
        "policy_hash": None,
    }


def _row(generator: random.Random, kinds: tuple[str, ...], *, speaks: bool, split: str, index: int) -> dict[str, Any]:
    snapshot, cited = _snapshot(generator, kinds, speaks=speaks, index=index)
    completion = render_envelope((), f"{cited.content} [{cited.id}]" if speaks else None)
    row = {
        "snapshot_id": content_id([split, index, snapshot.window[-1].thought]),
        "split": split,
        "prompt_messages": list(render_messages(snapshot)),
        "completion": completion,
        "decision": "reminder" if speaks else "silence",
        "weight": 1.0,
    }
    return {"row_id": content_id(row), **row}


def _snapshot(generator: random.Random, kinds: tuple[str, ...], *, speaks: bool, index: int) -> tuple[Snapshot, Entry]:
    """A snapshot and the entry that its plan is about."""
    target = generator.choice(kinds)
    others = generator.sample([kind for kind in KINDS if kind != target], k=generator.randint(1, 3))
    facts = {kind: generator.choice(KINDS[kind][2]) for kind in (target, *others)}
    order = list(facts)
    generator.shuffle(order)
    entries = tuple(
        Entry(id=f"tm-k-{number}", kind="knowledge", content=KINDS[kind][0].format(v=facts[kind]), created=number, touched=number)
        for number, kind in enumerate(order, start=1)
    )
    planned = facts[target]
    if speaks:
        planned = generator.choice([value for value in KINDS[target][2] if value != planned])
    thought = f"{generator.choice(FILLER)} Next: {KINDS[target][1].format(v=planned)}."
    step = Step(step=index % 20 + 1, tool="bash", call='{"cmd":"ls"}', fingerprint=f"{index:016x}"[::-1], outcome="ok",
                digest=generator.choice(["done", "ok", "3 files", "clean"]), thought=thought)  # fmt: skip
    snapshot = Snapshot(task_messages=("Finish the job in this repository.",), window=(step,), bank=BankState(entries=entries))
    return snapshot, entries[order.index(target)]
