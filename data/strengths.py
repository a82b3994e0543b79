"""How strong a simulated agent is: the parameters of the decaying agent and its three strengths.

Chosen so that without memory about 0.3-0.45 (weak), 0.5-0.65 (medium) and 0.75-0.85 (strong) of the tasks pass.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParams:
    """How strong an agent is."""

    name: str
    loose: float
    """Facts held loosely, per six facts of the task (at least one task in two has one); which ones is drawn per run."""
    ceiling: float
    """Chance to lapse on a very old, loosely held fact."""
    firm: float = 0.06
    """Factor on the lapse of all other facts."""
    decay_acts: float = 3.0
    """Age, in acts, at which 63 % of the ceiling is reached."""
    interference: float = 1.3
    """Factor on the lapse of a fact that was superseded: the old value pushes in."""
    stale: float = 0.7
    """Share of lapses on a superseded fact that fall back to an old value."""
    rival: float = 0.6
    """Share of the other lapses that take a value which stands elsewhere in the task."""
    obey: float
    """Chance to follow a reminder that states a lost fact."""
    retry: float
    """Chance, after an unexpected error, to repeat the same command once."""
    rediagnose: float
    """Chance, after an unexpected error and no retry, to look the fact up again; else the act is given up."""
    review: float
    """Chance, for each wrong or missing result, to see and mend it when looking over the results at the end."""
    recall_acts: int = 1
    """A reminder about something done wrong leads to mending it up to this many acts later; what it did is then still in sight."""
    redundant_cost: float
    """Chance that a reminder of something known costs an act of checking."""
    irrelevant_cost: float = 1.0
    """Chance that a reminder that states nothing of the task costs an act."""
    patience: int = 2
    """Sentences beside the helpful one that a reminder may hold before it costs like a needless one; each lowers obedience."""
    distraction: float = 2.0
    """Factor on lapses while distracted by a reminder that did not help."""
    distraction_acts: int = 3
    slack: int = 4
    """Acts beyond the script before the agent runs out of budget."""


STRENGTHS: dict[str, AgentParams] = {
    params.name: params
    for params in (
        AgentParams(
            name="weak",
            loose=1.6,
            ceiling=0.9,
            obey=0.88,
            retry=0.4,
            rediagnose=0.3,
            review=0.3,
            redundant_cost=0.4,
        ),
        AgentParams(
            name="medium",
            loose=1.25,
            ceiling=0.75,
            obey=0.92,
            retry=0.3,
            rediagnose=0.4,
            review=0.35,
            redundant_cost=0.3,
        ),
        AgentParams(
            name="strong",
            loose=1.15,
            ceiling=0.65,
            obey=0.96,
            retry=0.2,
            rediagnose=0.5,
            review=0.5,
            redundant_cost=0.2,
        ),
    )
}
