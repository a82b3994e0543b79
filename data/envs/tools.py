"""What several families share: two small shell tools that stand in a task's folder, and the usual shapes of a deliverable."""

from collections.abc import Callable, Sequence

from data.envs.base import Probe
from data.envs.script import Deliverable
from data.phrasing import Kind

_PICKY = """#!/bin/bash
for way in {good}; do [ "$1" = $way ] && {{ echo "$1" > "{done}_$2"; exit; }}; done
echo "{subject}: {noun} {bad} failed here; {subject} by {noun} {only}" >&2; exit 3
"""
_QUEUE = """#!/bin/bash
grep -qx "$1" {log} && {{ echo "{subject}: $1 is through already" >&2; exit 4; }}
echo "$1" >> {log}
for name in {order}; do grep -qx "$name" {log} || {{ echo "through; {subject} to take next: $name"; exit; }}; done
"""


def picky_tool(subject: str, noun: str, good: Sequence[str], bad: str, done: str) -> str:
    """`tool WAY PART`: writes `<done>_PART` when WAY is one of `good`; refuses any other and says what works."""
    return _PICKY.format(subject=subject, noun=noun, good=" ".join(good), only=good[0], bad=bad, done=done)


def picky_text(subject: str, noun: str, good: str, bad: str) -> str:
    """What the picky tool says when it refuses."""
    return f"{subject}: {noun} {bad} failed here; {subject} by {noun} {good}"


def queue_tool(subject: str, order: Sequence[str], log: str) -> str:
    """`tool NAME`: takes NAME once and says which of `order` comes next; an empty order takes anything, any number of times."""
    return _QUEUE.format(subject=subject, order=" ".join(order), log=log) if order else "#!/bin/bash\necho through\n"


def queue_stages(subject: str, order: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(value, text) of each place in the queue: the first stands in the task, the others in the tool's output."""
    first = (order[0], f"The {subject} to take first: {order[0]}.")
    return (first, *((name, f"{subject} to take next: {name}") for name in order[1:]))


def written(
    subject: str, of: Kind, command: str, path: str, expected: Callable[[str], str], reads: tuple[str, ...]
) -> Deliverable:
    """An act that writes a file whose text must be what `expected` gives for the right code; `<V>` in `path` is that code."""
    return Deliverable(
        subject, of, command, lambda code: Probe(subject, lambda end: end.text(path.replace("<V>", code)), expected(code)), reads
    )


def present(subject: str, of: Kind, command: str, path: str, reads: tuple[str, ...]) -> Deliverable:
    """An act that leaves a file at `path` (`<V>` = the code) only when its value is right."""
    return Deliverable(
        subject,
        of,
        command,
        lambda code: Probe(subject, lambda end: str(path.replace("<V>", code) in end.state.entries), "True"),
        reads,
    )


def taken(subject: str, of: Kind, command: str, log: str, reads: tuple[str, ...]) -> Deliverable:
    """A use of the queue tool: the name must stand in its log."""
    return Deliverable(
        subject, of, command, lambda code: Probe(subject, lambda end: str(code in end.text(log).split()), "True"), reads
    )
