"""What a session hands over: redacted, without status, all or nothing; seeding is explicit and once."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.envelope import Operation
from pmem.errors import UserError
from pmem.handoff import FENCE, export_handoff, handoff_of, newest_handoff, parse_handoff, read_handoff, render_handoff, seed
from pmem.settings import Settings
from tests.pmem.hosts import Host

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
FACTS = [
    Operation("update_status", "half way"),
    Operation("save_knowledge", "The report is JSON."),
    Operation("save_knowledge", "Separators and ``` fences stay inside."),
    Operation("save_procedural", "make all fails"),
]


def bank_state(operations: list[Operation] = FACTS):  # type: ignore[no-untyped-def]
    host = Host()
    host.session.apply_operations(operations)
    return host.session.bank.state()


def test_round_trip_without_status() -> None:
    text = render_handoff(handoff_of(bank_state(), "s1"))
    handoff = parse_handoff(text)
    assert handoff is not None
    assert [entry.content for entry in handoff.knowledge] == [operation.content for operation in FACTS[1:3]]
    assert "half way" not in text and text.count("\n```") == 2


def test_secrets_do_not_cross() -> None:
    from pmem.snapshot import BankState, Entry

    entry = Entry(id="tm-k-1", kind="knowledge", content=f"use {SECRET}", created=1, touched=1)
    handoff = handoff_of(BankState(entries=(entry,)), "s1")
    assert "ghp_" not in render_handoff(handoff) and handoff.source.redactions == 1


def valid_line() -> dict:  # type: ignore[type-arg]
    return json.loads(handoff_of(bank_state(), "s1").model_dump_json())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value.update(format="pmem.handoff/9"),
        lambda value: value.update(extra=1),
        lambda value: value.pop("source"),
        lambda value: value["knowledge"][0].update(content=""),
        lambda value: value["knowledge"][0].update(content="x" * 1201),
        lambda value: value["knowledge"][0].update(injections=-1),
        lambda value: value["knowledge"][0].pop("id"),
        lambda value: value["knowledge"].extend(value["knowledge"][:1] * 20),
        lambda value: value.update(status="private"),
    ],
)
def test_any_violation_rejects_the_whole(damage) -> None:  # type: ignore[no-untyped-def]
    value = valid_line()
    damage(value)
    assert parse_handoff(f"```{FENCE}\n{json.dumps(value)}\n```\n") is None


def test_shape_of_the_block() -> None:
    line = json.dumps(valid_line())
    assert parse_handoff(f"notes\n```{FENCE}\n{line}\n```\nmore") is not None
    assert parse_handoff(f"```{FENCE}\n{line}") is None
    assert parse_handoff(f"```{FENCE}\n{line}\n{line}\n```") is None
    assert parse_handoff(f"```{FENCE}\n{line}\n```\n```{FENCE}\n{line}\n```\n") is None
    assert parse_handoff("") is None
    assert parse_handoff(f"```{FENCE}\n{line}\n```\n" + "x" * 1_000_001) is None


@given(st.text(max_size=300))
def test_parse_is_total(text: str) -> None:
    assert parse_handoff(text) is None
    assert parse_handoff(f"```{FENCE}\n{text}\n```\n") is None


def test_seeding_is_explicit_deduplicated_and_starts_anew(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    path = export_handoff(bank_state(), settings, session_id="old", clock=lambda: 5.0)
    assert path is not None and newest_handoff(settings) == path
    host = Host()
    host.session.apply_operations([Operation("save_knowledge", "the report is json.")])
    seeded = seed(host.session, read_handoff(path), source=str(path))
    assert seeded is not None and (seeded.num_seeded, seeded.num_skipped) == (2, 1)
    entries = host.session.bank.state().entries
    assert len(entries) == 3 and all(entry.injections == 0 for entry in entries)
    assert host.session.bank.state().status is None
    again = seed(host.session, read_handoff(path), source=str(path))
    assert again is not None and again.num_seeded == 0


def test_an_invalid_newest_file_does_not_fall_back(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    good = export_handoff(bank_state(), settings, session_id="a", clock=lambda: 1.0)
    assert good is not None
    bad = settings.handoff_dir / "handoff-9.md"
    bad.write_text("damaged", encoding="utf-8")
    os.utime(good, (1, 1))
    newest = newest_handoff(settings)
    assert newest == bad
    with pytest.raises(UserError, match="nothing was seeded"):
        read_handoff(bad)


def test_an_empty_bank_hands_nothing_over(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert export_handoff(bank_state([FACTS[0]]), settings, session_id="s") is None
    assert not settings.handoff_dir.exists()


def test_disabled_neither_offers_nor_seeds(tmp_path: Path) -> None:
    on, off = Settings(data_dir=tmp_path), Settings(data_dir=tmp_path, enabled=False)
    path = export_handoff(bank_state(), on, session_id="s")
    assert path is not None
    assert newest_handoff(off) is None and export_handoff(bank_state(), off, session_id="s") is None
    assert seed(Host(enabled=False).session, read_handoff(path), source="x") is None
