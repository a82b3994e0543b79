"""Finds the envelopes in a model's text: one walk over the tags that matter; knows thoughts, quoted tags and cut-offs.

Linear in the length of the text: every tag is visited a fixed number of times at most, and a bracket scan stops at the first `<`
or backslash outside a JSON string, so at most two scans ever cover the same character.
"""

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["absent", "silent", "reminder", "cut_off"]

_WS = "[\\s\u200b-\u200f\u2060\ufeff]*+"
_TAIL = "(?=[\\s/>\u200b-\u200f\u2060\ufeff])[^<>]*+>"
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
    "silent_close": "silent", "thought_token": "thought_open", "answer_token": "thought_close", "channel_end": "thought_close",
    "turn_gemma": "turn", "turn_deepseek": "turn", "think_bracket": "thought_open", "think_bracket_end": "thought_close",
    "turn_bracket": "turn", "kimi": "thought_open", "kimi_end": "thought_close",
}
_LEAD = re.compile("(?:[\\s\u200b-\u200f\u2060\ufeff]++|(?:`{3,}+|~{3,}+)[\\w+.-]*+)*+")
_ATOM = re.compile(r'[^"\[\]{}<\\]*+(?:"(?:[^"\\]++|\\.)*+"|([\[{])|([\]}]))', re.DOTALL)
_MAX_DEPTH = 64
_JUNK = re.compile(r"[\[\]{}\"]")


def _refuse(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse)  # float: Python refuses to read integers of 4,301 digits


@dataclass(frozen=True, slots=True)
class Draft:
    """One complete list (opening tag, one JSON array, closing tag) with its own phase two."""

    items: list[Any]
    phase: Phase
    reminder: str | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """All drafts in order of appearance. `thought_open`: the text ends inside a reasoning block, the model was cut off."""

    drafts: tuple[Draft, ...]
    thought_open: bool


@dataclass(frozen=True, slots=True)
class _Tag:
    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _List:
    items: list[Any] | None
    """None: brackets in order, but not JSON, or no closing tag."""
    next_tag: int
    """Index of the first tag after the list and its closing tag."""
    silent: bool = False
    """A phase-two tag stood between the array and the closing tag: nothing may be said."""


def locate(text: str, *, cut: bool) -> Located:
    """Every complete envelope of `text`. `cut`: the model stopped because its tokens ran out."""
    return _Walk(text, cut).run()


class _Walk:
    def __init__(self, text: str, cut: bool) -> None:
        self.text, self.cut = text, cut
        self.tags = _tags(text)
        self.starts = [tag.start for tag in self.tags]
        self.last_speak_close = max((i for i, tag in enumerate(self.tags) if tag.kind == "speak_close"), default=-1)
        self.lists: dict[int, _List] = {}
        self.drafts: list[Draft] = []

    def run(self) -> Located:
        i, thought_ended = 0, False
        while i < len(self.tags):
            kind = self.tags[i].kind
            if kind == "thought_open":
                end = self._thought_end(i)
                if end is None:
                    return Located(tuple(self.drafts), True)
                i = end + 1
                continue
            if kind == "turn" and self.drafts:
                break  # the model went on to play the other side: not its answer any more
            if kind == "thought_close":
                thought_ended = bool(self.drafts)
            elif thought_ended and (kind in ("silent", "speak_open") or self._is_attempt(i)):
                self.drafts.clear()  # what stood before the orphan close was thought, the answer comes after it
                thought_ended = False
            i = self._draft(i) if kind == "list_open" else i + 1
        if thought_ended and self.cut:
            return Located((), True)
        return Located(tuple(self.drafts), False)

    def _draft(self, i: int) -> int:
        """Read the list opened by tag `i`, and its phase two. Returns the index of the next tag to look at."""
        found = self._list(i)
        if found.items is None:
            return found.next_tag
        if found.silent:
            self.drafts.append(Draft(found.items, "silent"))
            return found.next_tag
        phase, reminder, following = self._phase_two(found.next_tag)
        self.drafts.append(Draft(found.items, phase, reminder))
        return following

    def _phase_two(self, i: int) -> tuple[Phase, str | None, int]:
        """The first phase-two tag after a list decides; a thought is skipped, the next envelope ends the search."""
        while i < len(self.tags):
            tag = self.tags[i]
            if tag.kind == "thought_open":
                end = self._thought_end(i)
                if end is None:
                    return "absent", None, i
                i = end
            elif tag.kind == "speak_open":
                close = None if self._self_closing(tag) else self._reminder_end(i)
                if close is not None:
                    return "reminder", self.text[tag.end:self.tags[close].start], close + 1
                return ("silent" if self._self_closing(tag) else "cut_off"), None, i + 1
            elif tag.kind in ("silent", "speak_close"):
                return "silent", None, i + 1
            elif tag.kind == "turn" or self._is_attempt(i):
                return "absent", None, i
            i += 1
        return "absent", None, i

    def _thought_end(self, i: int) -> int | None:
        """Index of the tag that closes the thought opened by tag `i` (any listed name closes it); None when it never closes."""
        depth, last_close = 0, None
        for j in range(i, len(self.tags)):
            kind = self.tags[j].kind
            if kind == "thought_open":
                depth += 1
            elif kind == "thought_close":
                depth, last_close = depth - 1, j
                if depth == 0:
                    return j
        return None if self.cut else last_close  # more openings than closes: it mentions the tag, unless it was cut off

    def _reminder_end(self, i: int) -> int | None:
        """Index of the tag that closes the reminder opened by tag `i`. None: never closed, or the model began anew first."""
        if self.last_speak_close < i:
            return None
        j, relisted = i + 1, False
        while j < len(self.tags):
            kind = self.tags[j].kind
            if kind == "speak_close":
                return j
            if relisted and kind == "speak_open":
                return None
            if kind == "list_open":
                found = self._list(j)
                if found.items is not None and self._begins_line(j):
                    following = self.tags[found.next_tag].kind if found.next_tag < len(self.tags) else ""
                    if following == "silent":
                        return None
                relisted = relisted or found.items is not None
                j = found.next_tag
            else:
                j += 1
        return None

    def _list(self, i: int) -> _List:
        if i not in self.lists:
            self.lists[i] = self._read_list(i)
        return self.lists[i]

    def _read_list(self, i: int) -> _List:
        begin = self._lead(i)
        end = _bracket_end(self.text, begin) if self.text[begin:begin + 1] == "[" else None
        if end is None:
            return _List(None, i + 1)
        after = bisect_left(self.starts, end, lo=i)
        items = _json_array(self.text[begin:end])
        close, silent = self._list_close(after)
        if items is None or close is None or _JUNK.search(self.text, end, self.tags[close].start if not silent else end):
            return _List(None, after)
        return _List(items, close + 1, silent)

    def _list_close(self, i: int) -> tuple[int | None, bool]:
        """Index of the closing tag of a list, and whether a phase-two tag stood before it."""
        silent = False
        while i < len(self.tags):
            kind = self.tags[i].kind
            if kind == "list_close":
                return i, silent
            if kind == "thought_open":
                end = self._thought_end(i)
                if end is None:
                    return None, silent
                i = end
            elif kind in ("list_open", "turn"):
                return None, silent
            elif kind in ("silent", "speak_open", "speak_close"):
                silent = True
            i += 1
        return None, silent

    def _is_attempt(self, i: int) -> bool:
        """Whether tag `i` opens a list, well formed or not, rather than being mentioned in prose."""
        if self.tags[i].kind != "list_open":
            return False
        begin = self._lead(i)
        return self.text[begin:begin + 1] in ("[", "{") or (i + 1 < len(self.tags) and self.tags[i + 1].kind == "list_close")

    def _lead(self, i: int) -> int:
        match = _LEAD.match(self.text, self.tags[i].end)
        assert match is not None
        return match.end()

    def _begins_line(self, i: int) -> bool:
        start = self.tags[i].start
        return not self.text[self.text.rfind("\n", 0, start) + 1:start].strip("`~ \t\ufeff\u200b")

    def _self_closing(self, tag: _Tag) -> bool:
        return self.text[tag.start:tag.end - 1].rstrip().endswith("/")


def _tags(text: str) -> list[_Tag]:
    tags = []
    for match in _TAG.finditer(text):
        kind = match.lastgroup or ""
        kind = _KIND.get(kind, kind)
        if kind in ("thought_open", "list_open") and text[match.end() - 2:match.end()] == "/>":
            continue  # <think/> opens nothing
        tags.append(_Tag(kind, match.start(), match.end()))
    return tags


def _bracket_end(text: str, begin: int) -> int | None:
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


def _json_array(text: str) -> list[Any] | None:
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None
