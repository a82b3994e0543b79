"""A completed tool call as the policy sees it: fingerprint, redacted call and digest, and the bounded window of such steps.

Order matters: text is redacted BEFORE it is cut, so that a secret that straddles the cut is still seen whole.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from pmem.canonical import canonical_json
from pmem.diagnosis import diagnostic_line
from pmem.redaction import redact
from pmem.snapshot import Step

CALL_MAX_CHARS = 180
DIGEST_MAX_BYTES = 240
THOUGHT_MAX_BYTES = 240
REDACTION_REACH = 16_384
"""Characters redacted on either side of the line that is kept; longer than any private key block in use."""

Clean = Callable[[str], tuple[str, int]]
"""Text -> text without secrets, and how many were taken out."""

SEARCHED_CHARS = 524_288
"""Of a longer result only so much of its beginning and its end is searched for the diagnostic line."""
_ENDS = 2_000
_VOLATILE = re.compile(
    r"0x[0-9a-f]+|\b\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds|us|µs)\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d.,Z+:]*"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?|/tmp/[\w.-]+|\bpid[ =:]?\d+",
    re.IGNORECASE,
)


def fingerprint(tool: str, args: Any) -> str:
    """First 16 hex of SHA-256 over the canonical tool name and the canonical JSON of the arguments. Total on any arguments."""
    text = f"{tool.strip().lower()}\n{_arguments(args)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def describe_call(tool: str, args: Any) -> str:
    """`tool arguments`, redacted, then cut to 180 characters. A single string argument stands bare, as one would type it."""
    if isinstance(args, dict) and len(args) == 1 and isinstance(only := next(iter(args.values())), str):
        shown = only
    else:
        shown = _arguments(args) if args else ""
    clean, _ = redact(_head(shown))
    return cut_chars(collapse(f"{tool.strip()} {clean}"), CALL_MAX_CHARS)


def digest(text: str, *, is_error: bool, clean: Clean = redact) -> str:
    """What remains of a result in 240 bytes: redacted, then the diagnostic line of an error, head and tail of a success.

    `clean` may be a stream's redactor, which knows what earlier results ended with. Of a text over 32,768 characters only the
    surroundings of what is kept are redacted and looked at.
    """
    if is_error:
        return cut_bytes(_diagnosis(text, clean), DIGEST_MAX_BYTES) or "error without text"
    if len(text) <= 2 * REDACTION_REACH:
        whole = clean(text)[0]
        head, tail = whole[:_ENDS], whole[_ENDS:][-_ENDS:]
    else:
        head, tail = clean(text[:REDACTION_REACH])[0][:_ENDS], clean(text[-REDACTION_REACH:])[0][-_ENDS:]
    return cut_middle(collapse(f"{head}{tail}"), DIGEST_MAX_BYTES) or "ok"


def error_key(error_digest: str) -> str:
    """The digest without what changes from run to run (addresses, durations, times, temporary names): equal key, same failure."""
    return _VOLATILE.sub("#", error_digest).casefold()


def stated_thought(pieces: Iterable[str]) -> str | None:
    """The agent's words before a call, redacted; of a long text the END is kept, for that is where the next plan stands."""
    joined = " ".join(pieces)
    clean = collapse(redact(joined[-2 * REDACTION_REACH :])[0])
    return cut_front(clean, THOUGHT_MAX_BYTES) or None


class Window:
    """The last `size` completed steps, in the order of their calls. Steps are numbered from 1 for the life of the session."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._steps: list[Step] = []
        self._last_number = 0

    def reserve(self) -> int:
        """The number of the next step. Taken at the call, so that parallel results stand in call order whenever they arrive."""
        self._last_number += 1
        return self._last_number

    def add(self, step: Step) -> None:
        """Put a completed step in its place; the oldest leaves when the window is full."""
        place = len(self._steps)
        while place and self._steps[place - 1].step > step.step:
            place -= 1
        self._steps.insert(place, step)
        del self._steps[: -self._size]

    def reaches(self, number: int) -> bool:
        """True while step `number` still stands in the window."""
        return bool(self._steps) and number >= self._steps[0].step

    def steps(self) -> tuple[Step, ...]:
        """Oldest first."""
        return tuple(self._steps)


def collapse(text: str) -> str:
    """Whitespace runs to one space, ends trimmed."""
    return " ".join(text.split())


def cut_chars(text: str, limit: int) -> str:
    """At most `limit` characters, the last one `…` when something was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def cut_bytes(text: str, limit: int) -> str:
    """At most `limit` UTF-8 bytes, cut on a character, `…` at the end when something was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    return raw[: limit - 3].decode("utf-8", "ignore").rstrip() + "…"


def cut_front(text: str, limit: int) -> str:
    """Like `cut_bytes`, but the end is kept."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    return "…" + raw[len(raw) - limit + 3 :].decode("utf-8", "ignore").lstrip()


def cut_middle(text: str, limit: int) -> str:
    """Two thirds from the head and one third from the tail of a text over `limit` bytes: a summary often stands last."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    head = raw[: limit * 2 // 3 - 5].decode("utf-8", "ignore").rstrip()
    return f"{head} … {raw[-limit // 3 :].decode('utf-8', 'ignore').lstrip()}"


def _diagnosis(text: str, clean: Clean) -> str:
    """The redacted line that names the problem. Of a long text only the surroundings of that line are redacted."""
    if len(text) > 2 * SEARCHED_CHARS:
        text = f"{text[:SEARCHED_CHARS]}\n{text[-SEARCHED_CHARS:]}"
    if len(text) <= 2 * REDACTION_REACH:
        around = clean(text)[0]
    else:
        start, _ = diagnostic_line(text)
        around = clean(text[max(0, start - REDACTION_REACH) : start + REDACTION_REACH])[0]
        clean(text[-REDACTION_REACH:])  # a stream's redactor must know how this text ended
    start, end = diagnostic_line(around)
    return collapse(around[start:end])


def _head(text: str) -> str:
    return text[: 2 * REDACTION_REACH]


def _arguments(args: Any) -> str:
    """Canonical JSON of the arguments; values JSON does not know are shown by their `repr`."""
    try:
        return canonical_json(args if args is not None else {})
    except (ValueError, TypeError, RecursionError):
        return json.dumps(_plain(args), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr)


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` with string keys and a bounded depth, so that JSON can always be made of it."""
    if depth > 8:
        return "…"
    if isinstance(value, dict):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)
