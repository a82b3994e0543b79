"""Teacher labels: a majority of a real endpoint's answers, and the recorded decisions of a memory agent."""

import json
from pathlib import Path
from typing import Any

import pytest

from data.labels import read_labels
from data.snapshots import read_snapshots, write_snapshots
from data.teacher import TEACHER_VERSION, TeacherConfig, run
from pmem.errors import UserError
from tests.data.make import snapshot_row
from tests.pmem.fake_server import FakeServer, Say, Status

SHARED = Path(__file__).parents[3] / "shared" / "data" / "memory_decisions"
LIST = "<operations>[]</operations>\n"
QUIET = Say(LIST + "<no_intervention/>")
SPOKEN = Say(LIST + "<context_for_action>Semicolons. [tm-k-4]</context_for_action>")
LONGER = Say(LIST + "<context_for_action>Remember to use semicolons there. [tm-k-4]</context_for_action>")
UNCITED = Say(LIST + "<context_for_action>Be careful.</context_for_action>")


def asked(folder: Path, *answers: Any, **changes: Any) -> list[dict[str, Any]]:
    write_snapshots(folder / "s.parquet", [snapshot_row()])
    with FakeServer(*answers) as server:
        settings = {"url": server.url, "model": "m", "votes": len(answers), "snapshots": folder / "s.parquet", **changes}
        run(TeacherConfig(out=folder / "l.parquet", **settings))
        asked_body = server.requests[0].json
    assert len(asked_body["messages"]) == 2 and "watch an agent" in asked_body["messages"][0]["content"]
    return list(read_labels(folder / "l.parquet"))


def test_most_votes_decide_and_the_shortest_cited_reminder_stands(tmp_path: Path) -> None:
    rows = asked(tmp_path, SPOKEN, LONGER, QUIET)
    assert [row["verdict"] for row in rows] == ["need", "need"] and {row["label_kind"] for row in rows} == {"teacher"}
    silence, said = rows
    assert (silence["num_branches"], silence["num_success"], silence["value"]) == (3, 2, None)
    assert said["reminder_text"] == "Semicolons. [tm-k-4]" and said["cited_ids"] == ["tm-k-4"]
    assert TEACHER_VERSION in said["continuation"] and said["agent"] == "m"


@pytest.mark.parametrize(
    ("answers", "verdict", "num_votes"),
    [
        ((QUIET, QUIET, SPOKEN), "not_needed", 3),
        ((QUIET, SPOKEN), "unknown", 2),
        ((UNCITED, UNCITED, UNCITED), "not_needed", 3),
        ((Say("I think so"), SPOKEN, Say("no")), "need", 1),
        ((Say("hm"), Say("hm")), "unknown", 0),
    ],
)
def test_ties_uncited_and_malformed_answers(answers: tuple[Say, ...], verdict: str, num_votes: int, tmp_path: Path) -> None:
    silence = asked(tmp_path, *answers)[0]
    assert (silence["verdict"], silence["num_branches"]) == (verdict, num_votes)


def test_an_endpoint_that_refuses_or_is_not_named_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the teacher does not answer"):
        asked(tmp_path, Status(401))
    with pytest.raises(UserError, match="needs url= and model="):
        run(TeacherConfig(snapshots=tmp_path / "s.parquet"))
    with pytest.raises(UserError, match="no snapshot with a bank in the splits test"):
        asked(tmp_path, QUIET, splits=("test",))


STEPS = [
    {"step_id": 1, "source": "user", "message": "Task Description:\nBuild it with gcc version thirteen."},
    *({"step_id": number, "source": "agent", "message": f"Plan {number}.", "observation": [f"out {number}"],
       "tool_calls": [{"header": f"Tool Call: bash_command (c{number})", "args": json.dumps({"keystrokes": f"make {number}\n"})}]}
      for number in (2, 3)),
]  # fmt: skip
DECISIONS = [
    {"task": "t", "action_step": 0, "decision": "NO-OP", "operations": [
        {"action": "SAVE_KNOWLEDGE [aZ9x]", "content": "compiler gcc version thirteen required"}]},
    {"task": "t", "action_step": 1, "decision": "INJECT", "injected_context": "Entry [aZ9x] says which compiler.",
     "operations": [{"action": "DELETE [aZ9x]", "content": ""}, {"action": "DANCE", "content": "x"}]},
]  # fmt: skip


def imported(folder: Path, decisions: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    run_file, lines = folder / "run.json", folder / "d.jsonl"
    run_file.write_text(json.dumps({"task": "t", "variant": "memory-v1", "header": {}, "steps": STEPS}))
    lines.write_text("\n".join(json.dumps(decision) for decision in decisions))
    run(TeacherConfig(action="import", decisions=lines, runs=(run_file,), snapshots_out=folder / "s", out=folder / "l"))
    return sorted(read_snapshots(folder / "s"), key=lambda row: int(row["step"])), list(read_labels(folder / "l"))


def test_recorded_decisions_come_with_the_bank_the_agent_wrote(tmp_path: Path) -> None:
    snapshots, labels = imported(tmp_path, DECISIONS)
    assert [len(row["bank_before"]["entries"]) for row in snapshots] == [0, 1]
    verdicts = {row["snapshot_id"]: row["verdict"] for row in labels}
    assert [verdicts[row["snapshot_id"]] for row in snapshots] == ["not_needed", "need"]
    (said,) = [row for row in labels if row["candidate_id"]]
    assert said["reminder_text"] == "Entry [tm-k-1] says which compiler." and said["cited_ids"] == ["tm-k-1"]


def test_a_reminder_that_names_nothing_cites_what_it_shares_its_words_with(tmp_path: Path) -> None:
    spoken = {**DECISIONS[1], "injected_context": "Use the compiler gcc in version thirteen, it is required."}
    (said,) = [row for row in imported(tmp_path, [DECISIONS[0], spoken])[1] if row["candidate_id"]]
    assert said["cited_ids"] == ["tm-k-1"] and said["reminder_text"].endswith("required. [tm-k-1]")
    (said,) = [
        row for row in imported(tmp_path, [DECISIONS[0], {**spoken, "injected_context": "Hurry."}])[1] if row["candidate_id"]
    ]
    assert said["cited_ids"] == []


def test_a_missing_trajectory_or_a_wrong_line_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no trajectory of task 'other'"):
        imported(tmp_path, [{**DECISIONS[0], "task": "other"}])
    with pytest.raises(UserError, match=r"d\.jsonl line 1: not a decision"):
        imported(tmp_path, [{"task": "t"}])


@pytest.mark.skipif(not SHARED.exists(), reason="the collections are not here")
def test_the_published_decisions_find_their_snapshots(tmp_path: Path) -> None:
    runs = tuple(sorted(SHARED.glob("*.memory-*.derived.json")))
    config = TeacherConfig(
        action="import", decisions=SHARED / "decisions.jsonl", runs=runs, snapshots_out=tmp_path / "s", out=tmp_path / "l"
    )
    labels = [row for row in run(config) if row["candidate_id"] is None]
    assert len(labels) == 40 and sum(row["verdict"] == "need" for row in labels) == 23
