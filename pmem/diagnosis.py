"""Which line of a failing result names the problem.

The last exception line of a traceback, else the first line that has the form of an error, else the first that only speaks of
one, else the last line. Substring search finds the candidates and a pattern looks at those lines alone, because this runs on the
host's thread: some ten microseconds a kilobyte, linear in the length of the text.
"""

import re
from collections.abc import Iterator

_FORM = re.compile(
    r"^[ \t]*(?:E[ \t]+)?(?:[\w.]{0,80}(?:Error|Exception|Warning)|error|fatal|panic|FAILED|FAIL|ERROR)\b[ \t]*(?:\[\w+\])?[:!(]"
    r"|: (?:fatal )?error\b|: \*\*\* |command not found|[Nn]o such file|[Pp]ermission denied|not found$",
    re.MULTILINE,
)
_FORM_ANCHORS = (
    "error",
    "exception",
    "warning",
    "fatal",
    "panic",
    "fail",
    ": *** ",
    "not found",
    "no such file",
    "permission denied",
)
_HINTS = (
    "error", "fail", "cannot", "can't", "unable", "expected", "refused", "denied", "missing", "not found", "no such", "timed out",
    "timeout", "fatal", "invalid", "unknown", "undefined", "unrecognized", "conflict", "exception",
)  # fmt: skip
_TRACEBACK = "Traceback (most recent call last)"
_MAX_TRIES = 40
"""Lines looked at for one anchor; a text that says "error" in every line is decided by its first lines."""
_MAX_LINE = 2_000
_MAX_LABEL = 20
_WORDS = re.compile(r"\S")


def diagnostic_line(text: str) -> tuple[int, int]:
    """Start and end of the line that names the problem; (0, 0) for a text without any."""
    folded = text.replace("\u0130", "i").lower()  # same length as the text, so positions agree
    start = _last_form(text, folded) if _TRACEBACK in text else _first_form(text, folded)
    if start is None:
        start = _first_hint(text, folded)
    if start is None:
        start = _last_line(text)
    return start, _with_its_text(text, start)


def _with_its_text(text: str, start: int) -> int:
    """End of the line, or of the next one with words when the line is only a label such as `ERROR:`."""
    end = _end_of_line(text, start)
    label = text[start:end].strip()
    if len(label) > _MAX_LABEL or not label.endswith(":"):
        return end
    words = _WORDS.search(text, end, end + _MAX_LINE)
    return _end_of_line(text, words.start()) if words else end


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)


def _first_form(text: str, folded: str) -> int | None:
    """Start of the first line that has the form of an error."""
    found: int | None = None
    for anchor in _FORM_ANCHORS:
        for start in _lines_with(text, folded, anchor, found if found is not None else len(text)):
            if _FORM.search(text, start, _line_end(text, start)):
                found = start
                break
    return found


def _last_form(text: str, folded: str) -> int | None:
    """Start of the last line that has the form of an error."""
    found: int | None = None
    for anchor in _FORM_ANCHORS:
        for start in _lines_with_backwards(text, folded, anchor, found if found is not None else 0):
            if _FORM.search(text, start, _line_end(text, start)):
                found = start
                break
    return found


def _lines_with(text: str, folded: str, anchor: str, until: int) -> Iterator[int]:
    """Starts of the first lines that hold `anchor`, before `until`."""
    position = 0
    for _ in range(_MAX_TRIES):
        at = folded.find(anchor, position, until)
        if at < 0:
            return
        yield text.rfind("\n", 0, at) + 1
        position = text.find("\n", at)
        if position < 0:
            return


def _lines_with_backwards(text: str, folded: str, anchor: str, down_to: int) -> Iterator[int]:
    """Starts of the last lines that hold `anchor`, from the end down to `down_to`."""
    position = len(text)
    for _ in range(_MAX_TRIES):
        at = folded.rfind(anchor, down_to, position)
        if at < 0:
            return
        start = text.rfind("\n", 0, at) + 1
        yield start
        position = start


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start, start + _MAX_LINE)
    return end if end >= 0 else min(len(text), start + _MAX_LINE)


def _first_hint(text: str, folded: str) -> int | None:
    at = len(text)
    for hint in _HINTS:
        found = folded.find(hint, 0, at)
        at = found if found >= 0 else at
    return text.rfind("\n", 0, at) + 1 if at < len(text) else None


def _last_line(text: str) -> int:
    """Start of the last line with words, a closing tag of the host's frame left out."""
    end = len(text.rstrip())
    if text.endswith("</output>", 0, end):
        end = len(text[: end - len("</output>")].rstrip())
    return text.rfind("\n", 0, end) + 1
