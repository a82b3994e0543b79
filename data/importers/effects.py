"""What a tool call did, as far as tool name, arguments and result tell: changed the workspace, was a probe, failed how.

The general rules are the runtime's own (`pmem.tool_kinds`); added here are the verbs of service-desk and household tools
(`cancel_reservation`, `take`), which change a database or a world rather than files.
"""

import re
from dataclasses import dataclass
from typing import Any

from pmem.tool_kinds import changes_workspace, is_probing_read, shell_command


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READING_VERBS = _words("""
    get find search list read view show check calculate think grep glob ls cat fetch lookup query describe status
    open look examine inspect goto go navigate screenshot scroll todowrite finish
""")
CHANGING_VERBS = _words("""
    write edit create update modify cancel book send delete remove insert apply patch install commit set add move
    rename replace toggle enable disable refuel reset exchange return transfer put take submit multiedit
    notebookedit turn reboot reseat grant connect disconnect resume suspend heat cool clean close
""")
_KINDS = (
    ("timeout", re.compile(r"timed? ?out|time limit|killed by timeout", re.IGNORECASE)),
    ("missing_command", re.compile(r"command not found|not recognized as", re.IGNORECASE)),
    ("missing_file", re.compile(r"no such file|file (?:\S+ )?(?:does not exist|not found)|cannot access", re.IGNORECASE)),
    ("permission", re.compile(r"permission denied|operation not permitted|forbidden|access denied", re.IGNORECASE)),
    ("syntax", re.compile(r"syntax ?error|parse error|unexpected (?:token|eof|indent)|invalid syntax", re.IGNORECASE)),
    ("failed_test", re.compile(r"\b\d+ failed\b|\bFAILED\b|AssertionError|tests? failed", re.IGNORECASE)),
    ("missing_module", re.compile(r"ModuleNotFoundError|ImportError|cannot find module", re.IGNORECASE)),
    ("not_found", re.compile(r"not found|does not exist|unknown|no match", re.IGNORECASE)),
    ("bad_arguments", re.compile(r"invalid|usage:|unrecognized|missing (?:required )?argument|required property", re.IGNORECASE)),
    ("exception", re.compile(r"traceback|exception|\w+Error\b", re.IGNORECASE)),
)
_SCANNED = 2_000
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|^\w*Error:|command not found|No such file or directory|syntax error|"
    r"Your proposed edit has introduced new syntax|^FAILED|\bfatal: |^bash: |cannot access|^E   \w+|Usage: |No matches found|"
    r"EXECUTION TIMED OUT|^File \S+ not found",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Effects:
    """`changes_workspace` is None for a failed call that would have changed something: nobody knows how far it came."""

    changes_workspace: bool | None
    is_probe: bool | None
    error_kind: str | None


def effects(tool: str, args: dict[str, Any], text: str, is_error: bool) -> Effects:
    """Judge one finished call."""
    changes: bool | None = _changes(tool, args)
    if not is_error:
        return Effects(changes, False, None)
    return Effects(None if changes else False, is_probing_read(tool, args, text), error_kind(text))


def error_kind(text: str) -> str:
    """A coarse class of an error message, from its head and its tail."""
    shown = text if len(text) <= 2 * _SCANNED else text[:_SCANNED] + text[-_SCANNED:]
    return next((name for name, pattern in _KINDS if pattern.search(shown)), "other")


def reads_like_error(text: str) -> bool:
    """For results without an exit code: the words at either end decide, not those in the middle of a listing."""
    return bool(_ERROR.search(text[:1_500]) or _ERROR.search(text[-600:]))


def _changes(tool: str, args: dict[str, Any]) -> bool:
    if shell_command(tool, args) is None:
        name = tool.split("__")[-1].split(".")[-1]
        words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
        for word in (name.lower(), *words[:1]):
            if word in CHANGING_VERBS:
                return True
            if word in READING_VERBS:
                return False
    return changes_workspace(tool, args)
