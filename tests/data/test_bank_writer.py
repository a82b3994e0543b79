"""The scripted writer: saves what stands in the text, when it stands there, updates in place, misses and errs as stated."""

from data.bank_writer import BankWriter, WriterConfig, task_writer, writer_for
from data.envs import make_task
from data.envs.base import Fact
from data.replay import replay_rollout
from data.simulate import SimulateConfig, simulate
from pmem.bank import Bank
from pmem.snapshot import BankState, Snapshot, Step

PERFECT = WriterConfig(miss_rate=0.0, error_rate=0.0)


def snapshot(*messages: str, digest: str = "ok", bank: BankState | None = None) -> Snapshot:
    step = Step(step=1, tool="bash", call="bash ls", fingerprint="0" * 16, outcome="ok", digest=digest)
    return Snapshot(task_messages=messages, window=(step,), bank=bank or BankState())


def two_stage_fact(family: str = "files") -> tuple[int, Fact]:
    for seed in range(50):
        for fact in make_task(family, seed, 16).facts.values():
            if len(fact.stages) == 2 and fact.mechanism == "requirement":
                return seed, fact
    raise AssertionError("no task with a superseded rule")


def test_rules_are_saved_once_and_updated_in_place() -> None:
    seed, fact = two_stage_fact()
    task = make_task("files", seed, 16)
    writer, bank = task_writer(PERFECT, "k", "files", seed, 16), Bank(clock=lambda: 0.0)
    first = writer.operations(snapshot(task.text))
    assert fact.stages[0].text in {operation.content for operation in first}
    bank.apply(first)
    assert writer.operations(snapshot(task.text, bank=bank.state())) == ()
    change = writer.operations(snapshot(task.text, next(iter(task.turns.values())), bank=bank.state()))
    assert [operation.content for operation in change] == [fact.stages[1].text]
    bank.apply(change)
    contents = [entry.content for entry in bank.state().entries]
    assert fact.stages[1].text in contents and fact.stages[0].text not in contents


def test_a_fresh_writer_does_not_bring_an_old_value_back() -> None:
    seed, _fact = two_stage_fact()
    task = make_task("files", seed, 16)
    bank = Bank(clock=lambda: 0.0)
    bank.apply(task_writer(PERFECT, "k", "files", seed, 16).operations(snapshot(task.text, next(iter(task.turns.values())))))
    assert task_writer(PERFECT, "k", "files", seed, 16).operations(snapshot(task.text, bank=bank.state())) == ()


def test_miss_and_error_rate_are_those_stated() -> None:
    saved = wrong = 0
    for seed in range(150):
        task = make_task("git", seed, 16)
        stated = {fact.stages[0].text for fact in task.facts.values() if fact.stages[0].source == "task"}
        writes = task_writer(WriterConfig(miss_rate=0.3, error_rate=0.2), f"k{seed}", "git", seed, 16).operations(
            snapshot(task.text)
        )
        saved += len(writes)
        wrong += sum(operation.content not in stated for operation in writes)
        assert len(writes) <= len(stated)
    assert 0.6 <= saved / (150 * 2) <= 1.0
    assert 0.1 <= wrong / saved <= 0.3


def test_imported_tasks_save_sentences_that_sound_like_rules() -> None:
    writer = BankWriter(PERFECT, "k")
    text = "Hello there. You must never delete the data folder. The weather is nice."
    assert [operation.content for operation in writer.operations(snapshot(text))] == ["You must never delete the data folder."]
    assert writer.operations(snapshot(text)) == ()


def test_in_replay_every_fact_that_was_shown_stands_in_the_bank() -> None:
    rollouts, _ = simulate(SimulateConfig(families=("sql",), num_tasks=3, num_heldout=0, strengths=("strong",), num_workers=1))
    for rollout in rollouts:
        rows = list(replay_rollout(rollout, writer_for(PERFECT, rollout).operations, split="train"))
        contents = " ".join(entry["content"] for entry in rows[-1]["bank_before"]["entries"])
        assert rollout.seed is not None
        task = make_task("sql", rollout.seed, rollout.agent.params["num_acts"])
        said = " ".join(event.text or "" for event in rollout.events[:-2])
        newest = [[stage for stage in fact.stages if stage.text in said] for fact in task.facts.values()]
        assert all(stages[-1].value in contents for stages in newest if stages)
