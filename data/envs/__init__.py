"""The task families. `FAMILIES` maps a name to the function that makes what a seed offers; `HELDOUT` are never trained on."""

from data.envs import archives, cleaning, config, desk, files, git, logs, project, refactor, sql
from data.envs.base import Task
from data.envs.script import OfferOf, compose
from pmem.errors import UserError

_MODULES = (files, git, sql, config, archives, cleaning, project, logs, refactor, desk)
FAMILIES: dict[str, OfferOf] = {module.NAME: module.offer for module in _MODULES}
HELDOUT: tuple[str, ...] = (logs.NAME, refactor.NAME, desk.NAME)


def make_task(family: str, seed: int, num_acts: int) -> Task:
    """The task of a family and seed. Raises UserError on an unknown family."""
    if family not in FAMILIES:
        raise UserError(f"unknown task family {family!r}; known are {', '.join(sorted(FAMILIES))}")
    return compose(family, seed, num_acts, FAMILIES[family], heldout=family in HELDOUT)
