"""Long horizons: every family makes tasks of 80 acts that a faultless agent passes, and such a run is replayed and labelled."""

from importlib.util import find_spec

import pytest

from data.bank_writer import WriterConfig, writer_for
from data.envs import EXTRAS, FAMILIES, make_task
from data.episode import Episode
from data.label import LabelConfig, Unit, label_unit
from data.replay import replay_rollout
from data.simulate import SimulateConfig
from data.strengths import AgentParams
from pmem.errors import UserError

FAULTLESS = AgentParams(
    name="faultless", loose=0, ceiling=0, obey=1, retry=0, rediagnose=1, review=1, redundant_cost=0, irrelevant_cost=0
)
LONGEST = 80
INSTALLED = sorted(FAMILIES) + [name for name in EXTRAS if find_spec(name)]


@pytest.mark.parametrize("family", INSTALLED)
@pytest.mark.parametrize("num_acts", [15, 40, LONGEST])
def test_a_script_is_as_long_as_asked(family: str, num_acts: int) -> None:
    for seed in range(3):
        acts = make_task(family, seed, num_acts).acts
        assert abs(len(acts) - num_acts) <= 6 and len({act.name for act in acts}) == len(acts)


@pytest.mark.parametrize("family", INSTALLED)
def test_a_long_run_passes_and_is_replayed_and_labelled(family: str) -> None:
    episode = Episode(family, 5, FAULTLESS, 1, num_acts=LONGEST)
    while not episode.done:
        episode.advance()
    rollout = episode.rollout()
    assert rollout.outcome.success and episode.num_done == len(episode.task.acts) >= LONGEST - 6

    rows = list(replay_rollout(rollout, writer_for(WriterConfig(), rollout).operations, split="test"))
    assert [row["step"] for row in rows] == list(range(1, episode.num_done + 1))
    assert len(rows[-1]["bank_before"]["entries"]) > 5

    chosen = tuple(row for row in rows if row["step"] in (8, 40, 72))
    labelled = label_unit(Unit(chosen), LabelConfig(num_branches=2, max_candidates=1))
    assert not any(row["divergence"] for row in labelled.rows)
    assert [row["value"] for row in labelled.rows if row.get("candidate_id") is None] == [1.0, 1.0, 1.0]
    assert any(row.get("candidate_id") for row in labelled.rows)


def test_settings_allow_eighty_acts_and_no_more() -> None:
    assert SimulateConfig(min_acts=LONGEST, max_acts=LONGEST).max_acts == LONGEST
    with pytest.raises(UserError, match="max_acts <= 80"):
        SimulateConfig(max_acts=LONGEST + 1)
