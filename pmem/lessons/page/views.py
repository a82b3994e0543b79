"""What the page's templates are given: plain values, few queries however long the queue is."""

import json
from typing import Any

from pmem.lessons.changes import history
from pmem.lessons.records import Record
from pmem.lessons.search import search
from pmem.lessons.store import LessonStore

PAGE_SIZE = 200
_QUEUED = ("guidance", "preference", "session_memory", "instruction", "directory", "checkpoint")


def queue_view(store: LessonStore, page: int) -> dict[str, Any]:
    """Proposals that wait for a person, newest first, with what earned them beside each."""
    marks = ",".join("?" * len(_QUEUED))
    ids = store.rows(
        f"SELECT id FROM nodes WHERE state = 'proposed' AND +kind IN ({marks}) "
        "ORDER BY updated DESC, number DESC LIMIT ? OFFSET ?",
        [*_QUEUED, PAGE_SIZE, page * PAGE_SIZE],
    )
    num = store.rows(f"SELECT count(*) FROM nodes WHERE state = 'proposed' AND kind IN ({marks})", _QUEUED)[0][0]
    names = [row["id"] for row in ids]
    found = store.by_ids(names)
    proposals = [found[name] for name in names if name in found]
    return {
        "title": "Review", "proposals": proposals, "num": num, "page": page, "pages": max(1, -(-num // PAGE_SIZE)),
        "observations": _grouped(store, "observations", names), "reviews": _grouped(store, "reviews", names),
    }  # fmt: skip


def record_view(store: LessonStore, record_id: str) -> dict[str, Any]:
    """One record with its evidence, relations and history."""
    record = store.get(record_id)
    return {
        "title": record.title, "record": record,
        "observations": store.observations(record.id), "reviews": store.reviews(record.id),
        "relations": store.relations(record.id), "changes": history(store, record.id, limit=50),
        "payload": json.dumps(record.payload, indent=2, ensure_ascii=False) if record.payload else "",
    }  # fmt: skip


def search_view(store: LessonStore, query: str) -> dict[str, Any]:
    found: list[Record] = [hit.record for hit in search(store, query, limit=100)] if query.strip() else []
    return {"title": "Search", "query": query, "found": found}


def deliveries_view(store: LessonStore) -> dict[str, Any]:
    """What was delivered to whom, newest first, and what the budget cut."""
    rows = [dict(row) for row in store.rows("SELECT * FROM deliveries ORDER BY number DESC LIMIT 200")]
    for row in rows:
        row["delivered"], row["cut"] = json.loads(row["delivered"]), json.loads(row["cut"])
    titles = store.by_ids(name for row in rows for name in row["delivered"])
    return {"title": "Deliveries", "deliveries": rows, "titles": {name: record.title for name, record in titles.items()}}


def _grouped(store: LessonStore, table: str, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    if names:
        rows = store.rows(f"SELECT * FROM {table} WHERE node IN ({','.join('?' * len(names))}) ORDER BY at", names)
        for row in rows:
            grouped.setdefault(row["node"], []).append(dict(row))
    return grouped
