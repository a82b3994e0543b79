"""The task families. `FAMILIES` maps a name to the function that makes what a seed offers; `HELDOUT` are never trained on."""

from data.envs import archives, cleaning, config, desk, files, git, logs, project, refactor, sql, textworld
from data.envs.base import Task
from data.envs.script import OfferOf, compose
from pmem.errors import UserError

_MODULES = (files, git, sql, config, archives, cleaning, project, logs, refactor, desk)
FAMILIES: dict[str, OfferOf] = {module.NAME: module.offer for module in _MODULES}
EXTRAS: dict[str, OfferOf] = {textworld.NAME: textworld.offer}
"""Families that need a package of the extra of their name: drawn only when they are named."""
HELDOUT: tuple[str, ...] = (logs.NAME, refactor.NAME, desk.NAME)


def require_family(family: str) -> OfferOf:
    """What makes a family's offers. Raises UserError on an unknown family, or one whose package is not installed."""
    if family == textworld.NAME:
        textworld.require()
    if family not in FAMILIES | EXTRAS:
        raise UserError(f"unknown family {family!r}; known are {', '.join(sorted(FAMILIES | EXTRAS))}")
    return (FAMILIES | EXTRAS)[family]


def make_task(family: str, seed: int, num_acts: int) -> Task:
    """The task of a family and seed. Raises UserError as `require_family`."""
    return compose(family, seed, num_acts, require_family(family), heldout=family in HELDOUT)
