"""What of a model's text may be structure: the tags of the envelope and of reasoning, and the JSON array behind an opening tag.

Regular expressions here use possessive repeats bounded by the next `<`, so that no text makes them back up.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_WS = "[\\s\u200b-\u200f\u2060\ufeff]*+"
_TAIL = (
    "(?=[\\s/>\u200b-\u200f\u2060\ufeff])"
    """(?:[^<>=]++|=\\s*+(?:"[^"<\n]*+"|'[^'<\n]*+')?+)*+>"""  # a quoted attribute may hold `>`
)
_THOUGHT = r"(?:[\w.-]{1,16}:)?(?P<%s>think|thinking|reasoning|scratchpad|analysis)" + _TAIL
_SILENT = r"no[_\s-]?intervention(?![\w-])[^<>\n]*+(?:>|(?=[<\n])|\Z)"
_TAG = re.compile(
    "[<\\[\u25c1](?:"
    f"(?<=<){_WS}(?:"
    f"(?P<list_open>operations){_TAIL}|(?P<speak_open>context_for_action){_TAIL}"
    f"|(?P<silent>{_SILENT})|{_THOUGHT % 'thought_open'}"
    f"|/{_WS}(?:(?P<list_close>operations){_TAIL}|(?P<speak_close>context_for_action){_TAIL}"
    f"|(?P<silent_close>{_SILENT})|{_THOUGHT % 'thought_close'})"
    r"|\|(?:(?P<thought_token>START_THINKING\|>|channel\|?>\s*+(?:analysis|commentary|thought))"
    r"|(?P<answer_token>END_THINKING\|>|channel\|>\s*+final)"
    r"|(?P<turn>(?:im_start|start_header_id|start)\|>\s*+(?:user|system|tool|ipython|developer)|(?:user|system|USER_TOKEN)\|>"
    r"|turn>\s*+(?:user|system)))"
    r"|(?P<channel_end>channel\|>)|(?P<turn_gemma>start_of_turn>\s*+user)|(?P<turn_deepseek>\uff5cUser\uff5c>)"
    r")|(?<=\[)(?:(?P<think_bracket>THINK\])|(?P<think_bracket_end>/THINK\])|(?P<turn_bracket>INST\]))"
    "|(?<=\u25c1)(?:(?P<kimi>think\u25b7)|(?P<kimi_end>/think\u25b7)))",
    re.IGNORECASE,
)
_KIND = {
    "silent_close": "silent",
    "thought_token": "thought_open",
    "answer_token": "thought_close",
    "channel_end": "thought_close",
    "turn_gemma": "turn",
    "turn_deepseek": "turn",
    "think_bracket": "thought_open",
    "think_bracket_end": "thought_close",
    "turn_bracket": "turn",
    "kimi": "thought_open",
    "kimi_end": "thought_close",
}
_LEAD = re.compile("(?:[\\s\u200b-\u200f\u2060\ufeff]++|(?:`{3,}+|~{3,}+)[\\w+.-]*+)*+")
_ATOM = re.compile(r'[^"\[\]{}<\\]*+(?:"(?:[^"\\]++|\\.)*+"|([\[{])|([\]}]))', re.DOTALL)
_MAX_DEPTH = 64


def _refuse(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse)  # float: Python refuses to read integers of 4,301 digits


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag; `kind`: list, speak or thought with `_open` or `_close`, `silent`, or `turn` (the other side begins to talk)."""

    kind: str
    start: int
    end: int


def find_tags(text: str) -> list[Tag]:
    """Every tag, in order, wherever it stands; whether it is structure or quoted is for the walk to say."""
    tags = []
    for match in _TAG.finditer(text):
        kind = match.lastgroup or ""
        kind = _KIND.get(kind, kind)
        if kind in ("thought_open", "list_open") and text[match.end() - 2 : match.end()] == "/>":
            continue  # <think/> opens nothing
        tags.append(Tag(kind, match.start(), match.end()))
    return tags


def array_start(text: str, after: int) -> int:
    """Where the array of an opening tag that ends at `after` should begin: past white space and a fence."""
    lead = _LEAD.match(text, after)
    assert lead is not None
    return lead.end()


def bracket_end(text: str, begin: int) -> int | None:
    """One past the bracket that closes the one at `begin`, aware of JSON strings. None when it never closes or cannot be JSON."""
    depth, position = 0, begin
    while (atom := _ATOM.match(text, position)) is not None:
        position = atom.end()
        if atom[1]:
            depth += 1
            if depth > _MAX_DEPTH:
                return None
        elif atom[2]:
            depth -= 1
            if depth == 0:
                return position
    return None


def json_array(text: str) -> list[Any] | None:
    """The array, strictly read: no repair, no NaN; of two equal keys the last counts. None when it is no JSON array."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None
