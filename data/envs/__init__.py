"""The task families. `FAMILIES` maps a name to the function that makes what a seed offers; `HELDOUT` are never trained on."""

from data.envs import archives, cleaning, config, files, git, logs, refactor, sql
from data.envs.base import Task
from data.envs.script import OfferOf, compose
from pmem.errors import UserError

FAMILIES: dict[str, OfferOf] = {module.NAME: module.offer for module in (files, git, sql, config, archives, cleaning, logs, refactor)}
HELDOUT: tuple[str, ...] = (logs.NAME, refactor.NAME)


def make_task(family: str, seed: int, num_acts: int) -> Task:
    """The task of a family and seed. Raises UserError on an unknown family."""
    if family not in FAMILIES:
        raise UserError(f"unknown task family {family!r}; known are {', '.join(sorted(FAMILIES))}")
    return compose(family, seed, num_acts, FAMILIES[family])
