"""Matched live trials: lockstep equals one by one, the baseline leaves no trace, reminders arrive, and anybody's tasks can
be run.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval import ab
from eval.arms import RandomPolicy, coin, make_arm
from eval.live import LiveArm, TrialSpec, bare_text, run_trials
from eval.trials import always_noisy_regression, compare, live_figures, power_json
from pmem.errors import UserError
from pmem.rollout import Event, Outcome
from pmem.settings import Settings
from pmem.snapshot import BankState, Entry, Snapshot, Step
from tests.eval.scripted import ScriptedBackend

SETTINGS = Settings(cadence_tool_calls=1, telemetry=False)
FACT = "the report belongs into out/summary.json"


class ToyEpisode:
    """Ten lines of somebody's own task: it passes only when the reminder of its fact arrives before the end."""

    def __init__(self, spec: TrialSpec, num_acts: int = 6) -> None:
        self.spec, self.num_acts, self.heard = spec, num_acts, []
        self.events: list[Event] = []
        self.closed = 0
        self._append(kind="user", text=f"Task {spec.seed}. {FACT}.")

    @property
    def done(self) -> bool:
        return sum(event.kind == "tool_result" for event in self.events) >= self.num_acts

    def advance(self, reminder: str | None = None) -> Sequence[Event]:
        if reminder:
            self.heard.append(reminder)
            self._append(kind="user", text=reminder, own_reminder=True)
        number = len(self.events)
        off = "plan-off" if number // 3 == self.spec.seed % 4 + 1 else "on course"
        self._append(kind="thought", text=f"step {number}: {off}")
        self._append(kind="tool_call", call_id=f"c{number}", tool="bash", args={"cmd": f"echo {number}"})
        self._append(
            kind="tool_result", call_id=f"c{number}", tool="bash", text=str(number), is_error=False, changes_workspace=True
        )
        return self.events[-3:]

    def finish(self) -> Outcome:
        return Outcome(success=any("summary.json" in text for text in self.heard) or self.spec.seed % 2 == 0)

    def truth(self) -> dict[str, Any]:
        need = self.spec.seed % 4 + 1 == len(self.events) // 3
        return {"need_true": need, "lost": {"f": "x"} if need else {}, "depends": ["f"], "facts": [{"key": "f", "text": FACT}]}

    def close(self) -> None:
        self.closed += 1

    def _append(self, **values: Any) -> None:
        self.events.append(Event(i=len(self.events), **values))


SPECS = [TrialSpec("toy", seed, "weak", seed) for seed in range(6)]


def writer(spec: TrialSpec) -> Any:
    """Saves the fact once."""
    from pmem.envelope import Operation

    def write(snapshot: Snapshot) -> Sequence[Operation]:
        return () if snapshot.bank.entries else (Operation("save_knowledge", FACT),)

    return write


def trials(arm: LiveArm, width: int = 10, cadence: int = 1) -> list[Any]:
    return list(run_trials(arm, SPECS, ToyEpisode, width=width, cadence=cadence, settings=SETTINGS, writer_for=writer))


def speaking(**changes: Any) -> LiveArm:
    return LiveArm(name="sft", policy=make_arm("sft", ScriptedBackend(), **changes))


def test_lockstep_equals_one_by_one() -> None:
    together, alone = trials(speaking(), width=6), trials(speaking(), width=1)
    assert [replace(trial, model_ms=0.0) for trial in together] == [replace(trial, model_ms=0.0) for trial in alone]


def test_a_speaking_policy_reaches_the_agent_and_passes() -> None:
    never, sft = trials(LiveArm(name="never", memory=False)), trials(speaking())
    assert [trial.success for trial in never] == [True, False] * 3
    assert all(trial.success for trial in sft) and all(trial.num_reminders >= 1 for trial in sft)
    paired = compare(sft, never)
    assert (paired.helped, paired.harmed, paired.pairs) == (3, 0, 6)


def test_the_baseline_leaves_no_row() -> None:
    assert all(
        trial.num_rows == trial.num_reminders == trial.tokens_in == 0 for trial in trials(LiveArm(name="never", memory=False))
    )


def test_rows_are_counted_exactly() -> None:
    """One row a boundary at cadence 1 but for the last act, which has no boundary after it."""
    for trial in trials(speaking()):
        assert trial.num_rows == trial.num_boundaries == trial.num_acts - 1 == sum(trial.outcomes.values())


def test_cadence_asks_less_often() -> None:
    assert all(trial.num_rows == 2 and trial.num_boundaries == 5 for trial in trials(speaking(), cadence=2))


def test_the_oracle_says_what_is_lost_and_needed() -> None:
    found = trials(LiveArm(name="oracle", memory=False, oracle=True))
    assert all(trial.success for trial in found) and all(trial.num_reminders == 1 for trial in found)


def test_random_is_asked_only_where_the_coin_falls() -> None:
    backend = ScriptedBackend()
    policy = make_arm("random", backend, rate=0.0)
    assert isinstance(policy, RandomPolicy)
    assert not any(trial.num_reminders for trial in trials(LiveArm(name="random", policy=policy))) and backend.calls == 0
    said = trials(LiveArm(name="random", policy=make_arm("random", ScriptedBackend(), rate=1.0)))
    assert all(trial.num_reminders >= 1 for trial in said)


def test_the_coin_is_fair_and_repeatable() -> None:
    snapshots = [Snapshot(task_messages=(str(number),), window=()) for number in range(2_000)]
    assert sum(coin(1, snapshot) < 0.3 for snapshot in snapshots) / 2_000 == pytest.approx(0.3, abs=0.03)
    assert coin(1, snapshots[0]) == coin(1, snapshots[0]) != coin(2, snapshots[0])


def snapshot_with(*contents: str, plan: str = "") -> Snapshot:
    entries = tuple(
        Entry(id=f"tm-k-{place}", kind="knowledge", content=text, created=0, touched=place)
        for place, text in enumerate(contents, start=1)
    )
    step = Step(step=1, tool="bash", call="ls", fingerprint="0" * 16, outcome="ok", digest="", thought=plan)
    return Snapshot(task_messages=("task",), window=(step,), bank=BankState(entries=entries, next_number=9))


def test_retrieval_finds_the_entry_of_the_plan() -> None:
    snapshot = snapshot_with(
        "the port is 8410", "reports go to out/summary.json", "tabs separate columns", plan="write the reports"
    )
    (result,) = make_arm("retrieval", None).step_many([snapshot])
    assert result.decision == "injected" and result.cited[0] == "tm-k-2"


def test_full_bank_lifts_budget_and_hygiene() -> None:
    (result,) = make_arm("full_bank", None).step_many([snapshot_with(*("word " * 60 + str(n) for n in range(8)))])
    assert result.decision == "injected" and len(result.cited) == 8 and len(result.reminder or "") > 500


def test_an_empty_bank_says_nothing() -> None:
    for arm in ("retrieval", "full_bank"):
        (result,) = make_arm(arm, None).step_many([snapshot_with()])
        assert (result.decision, result.reason) == ("silent", "bank_empty")


def test_bankless_arms_see_no_bank_and_write_none() -> None:
    (result,) = make_arm("advisor", ScriptedBackend()).step_many([snapshot_with("the port is 8410")])
    assert result.decision == "injected" and not result.cited and result.bank_after.entries[0].content == "the port is 8410"


def test_always_noisy_regression() -> None:
    never = trials(LiveArm(name="never", memory=False))
    noisy = [replace(trial, num_reminders=2) for trial in never]
    assert always_noisy_regression(noisy, never) and not always_noisy_regression(never, never)


def test_figures_without_reminders_are_not_measured() -> None:
    figures = live_figures(trials(LiveArm(name="never", memory=False)))
    assert figures["tokens_per_injection"].value is None and figures["pass_rate"].value == pytest.approx(0.5)


def test_power_is_stated() -> None:
    results = {"never": trials(LiveArm(name="never", memory=False)), "sft": trials(speaking())}
    power = power_json(results, "sft", 0.1)
    assert power["pairs"] == 6 and 0 < power["power"] < 0.5 and power["pairs_for_80_percent"] > 100


def test_a_block_loses_its_tags() -> None:
    assert bare_text("<system-reminder>\nMemory: use tabs [tm-k-1]\n</system-reminder>") == "use tabs [tm-k-1]"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["num_tasks=0"], "zero trials"),
        (["other_tasks=0"], "zero trials"),
        (["agents=[]"], "agents is empty"),
        (["agents=[superb]"], "unknown agent"),
        (["families=[astrology]"], "unknown family"),
        (["bank_writer=monkey"], "scripted or policy"),
        (["arms=[sft]", "num_tasks=1", "families=[files]"], "train.sft"),
        (["arms=[rules,oracel]"], "unknown arm 'oracel'"),
        (["candidate=best"], "unknown arm 'best'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        ab.main([f"run={tmp_path}", *overrides])
    assert not list(tmp_path.iterdir()), "no trial ran before the refusal"


def test_real_environments_end_to_end(tmp_path: Path) -> None:
    """Real tasks with real execution; a second call takes every arm from its cache."""
    command = [f"run={tmp_path}", "arms=[never,rules,oracle]", "num_tasks=3", "families=[files]", "num_acts=10"]
    assert ab.main(command) == 0
    first = (tmp_path / "ab.json").read_text()
    content = json.loads(first)
    assert content["arms"]["oracle"]["num_trials"] == 3 and content["arms"]["never"]["num_rows"] == 0
    assert ab.main(command) == 0 and (tmp_path / "ab.json").read_text() == first


def test_model_arms_through_the_harness(tmp_path: Path) -> None:
    """A tiny real model in this process, its own threshold file, and the ablation arms on the candidate's model."""
    pytest.importorskip("torch")
    from pmem.policy_file import model_hash
    from pmem.prompt import PROMPT_VERSION
    from pmem.threshold import Threshold, write_threshold
    from tests.tiny import tiny_model

    model = tiny_model(tmp_path)
    threshold = Threshold.plain(0.5, model_hash=model_hash(model), prompt_version=PROMPT_VERSION)
    write_threshold(tmp_path / "threshold.json", threshold)
    command = [
        f"run={tmp_path}", "candidate=sft", "arms=[sft,random,always,advisor,retrieval]", f"models={{sft: {model}}}",
        "num_tasks=2", "other_tasks=1", "families=[files]", "num_acts=8", "cadence=4",
        "list_max_tokens=12", "reminder_max_tokens=8",
    ]  # fmt: skip
    assert ab.main(command) == 0
    arms = json.loads((tmp_path / "ab.json").read_text())["arms"]
    assert (arms["sft"]["num_trials"], arms["always"]["num_trials"], arms["always"]["paired"]["never"]["pairs"]) == (2, 1, 1)
    assert arms["sft"]["num_rows"] > 0
    assert (
        {"malformed/truncated"} <= set(arms["sft"]["outcomes"]) <= {"malformed/truncated", "injected/intervened"}
    )  # the rules tier's
    write_threshold(tmp_path / "threshold.json", threshold.model_copy(update={"model_hash": "0" * 64}))
    with pytest.raises(UserError, match="was made for model"):
        ab.main(command)
