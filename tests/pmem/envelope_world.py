"""What the envelope tests share: one bank, canonical pieces, and the one way to read a text."""

from dataclasses import dataclass

from pmem.envelope import Malformed, parse_envelope, resolve
from pmem.snapshot import BankState, Entry

BANK = BankState(
    entries=(
        Entry(id="tm-k-1", kind="knowledge", content="Output must be JSON lines.", created=1, touched=1),
        Entry(id="tm-k-2", kind="knowledge", content="Tests may not be edited.", created=2, touched=2),
        Entry(id="tm-p-3", kind="procedural", content="make failed twice: missing libfoo.", created=3, touched=3),
    ),
    next_number=4,
)
SAVE = '{"op":"save_knowledge","content":"x"}'
LIST = f"<operations>[{SAVE}]</operations>"
EMPTY = "<operations>[]</operations>"
SILENCE = "<no_intervention/>"
REMINDER = "<context_for_action>Output must be JSON lines [tm-k-1]</context_for_action>"
QUIET = f"{LIST}\n{SILENCE}"
SPOKEN = f"{EMPTY}\n{REMINDER}"


@dataclass(frozen=True)
class Read:
    """What a text comes to against `BANK`."""

    status: str
    reason: str | None = None
    ops: tuple[str, ...] = ()
    dropped: int = 0
    reminder: str | None = None


def read(text: str, finish_reason: str | None = "stop") -> Read:
    """Parse and resolve."""
    envelope = parse_envelope(text, finish_reason=finish_reason)
    if isinstance(envelope, Malformed):
        return Read("malformed", envelope.reason)
    resolved = resolve(envelope, BANK)
    return Read("ok", resolved.reason, tuple(op.op for op in resolved.operations), resolved.dropped, resolved.reminder)


def ok(*ops: str, reminder: str | None = None, dropped: int = 0, reason: str | None = None) -> Read:
    """An accepted answer."""
    return Read("ok", reason, ops, dropped, reminder)


def malformed(reason: str = "unparseable") -> Read:
    """A refused answer."""
    return Read("malformed", reason)


SAVED = ok("save_knowledge")
SAID = ok(reminder="Output must be JSON lines [tm-k-1]")
