"""What a tool call does to the workspace, when the host does not say: does it change files, is it a probing read?

A guess that errs towards silence: a call that may have changed something ends a "nothing changed in between".
"""

import re
from typing import Any

_WRITERS = re.compile(
    r"write|edit|patch|create|insert|replace|delete|remove|move|rename|save|update|append|mkdir|commit|install|"
    r"apply|undo",
    re.IGNORECASE,
)
_READERS = re.compile(r"read|view|open|cat|list|ls|glob|grep|search|find|stat|get|head|tail|fetch", re.IGNORECASE)
_SHELLS = re.compile(r"bash|shell|sh|terminal|command|exec|run|execute", re.IGNORECASE)
_EDITOR_READS = frozenset({"view", "open", "read", "list"})
_CHANGING_COMMAND = re.compile(
    r"(?:^|[;&|(]\s*|\bthen\s+|\bdo\s+|\bsudo\s+|\bxargs\s+)(?:"
    r"rm|mv|cp|mkdir|rmdir|touch|ln|chmod|chown|tee|patch|truncate|dd|install|unzip|rsync|wget|source|export|kill|pkill|"
    r"sed\s+(?:-\w+\s+)*-\w*i|perl\s+-\w*i|tar\s+-?\w*x|sort\s.{0,200}-o|curl\s.{0,200}-[oO]|"
    r"git\s+(?:-\S+\s+)*(?:add|commit|checkout|switch|merge|rebase|reset|stash|apply|am|clone|pull|push|rm|mv|restore|cherry-pick|revert|init|clean)|"
    r"(?:pip3?|uv|npm|pnpm|yarn|cargo|apt|apt-get|brew|conda|gem|go)\s+(?:-\S+\s+)*(?:install|i|add|remove|uninstall|update|upgrade|get|sync|ci|pip)|"
    r"make|cmake|systemctl|service|docker|createdb|dropdb"
    r")\b|(?<![0-9&<>=-])>{1,2}\s*(?!&|/dev/null)[\w./~$\"']"
    r"|\b(?:INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|(?:CREATE|DROP|ALTER)\s+(?:TABLE|INDEX|VIEW))\b",
    re.IGNORECASE,
)
_READING_COMMAND = re.compile(
    r"^\s*(?:cat|ls|head|tail|stat|test|\[|file|wc|find|less|readlink|realpath|which|command -v|type)"
    r"(?:\s|$)"
)
_LOOKING_COMMAND = re.compile(r"^\s*(?:grep|rg|ag|test|\[|diff|cmp|which|command -v|pgrep|git (?:diff|grep))\s")
_MISSING = re.compile(
    r"no such file|not found|does not exist|doesn't exist|enoent|cannot (?:access|open|stat|find)|filenotfound", re.IGNORECASE
)
_SCANNED = 4_096


def changes_workspace(tool: str, args: Any) -> bool:
    """Whether a successful call of this tool may have changed files or state."""
    command = shell_command(tool, args)
    if command is not None:
        return bool(_CHANGING_COMMAND.search(command[:_SCANNED]))
    if isinstance(args, dict) and str(args.get("command", "")).lower() in _EDITOR_READS:
        return False
    return bool(_WRITERS.search(tool))


def is_probing_read(tool: str, args: Any, text: str) -> bool:
    """Whether an error is only the answer to a look: the file is not there, the search found nothing."""
    command = shell_command(tool, args)
    if command is not None and not text.strip():
        return bool(_LOOKING_COMMAND.search(command[:_SCANNED]))
    reads = (
        bool(_READING_COMMAND.search(command[:_SCANNED]))
        if command is not None
        else (bool(_READERS.search(tool)) and not _WRITERS.search(tool))
    )
    return reads and bool(_MISSING.search(text[:_SCANNED])) and "command not found" not in text[:_SCANNED]


def shell_command(tool: str, args: Any) -> str | None:
    """The command line of a shell tool, or None for any other tool."""
    if not _SHELLS.fullmatch(tool.strip().rsplit("_", 1)[-1]) and not _SHELLS.match(tool.strip()):
        return None
    if isinstance(args, str):
        return args
    if not isinstance(args, dict):
        return None
    for key in ("command", "cmd", "script", "code", "input"):
        value = args.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return " ".join(str(part) for part in value)
    return None
