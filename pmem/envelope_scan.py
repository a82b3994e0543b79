"""Finds the envelopes in a model's text: one walk over the tags that matter; knows thoughts, quoted tags and cut-offs.

Linear in the length of the text: every tag is visited a fixed number of times at most, and a bracket scan stops at the first `<`
or backslash outside a JSON string, so at most two scans ever cover the same character.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Literal

from pmem.envelope_tags import Tag, array_start, bracket_end, find_tags, json_array

Phase = Literal["absent", "silent", "reminder", "cut_off"]

_JUNK = re.compile(r"[\[\]{}]")


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
        self.tags = find_tags(text)
        self.starts = [tag.start for tag in self.tags]
        self.last_speak_close = max((i for i, tag in enumerate(self.tags) if tag.kind == "speak_close"), default=-1)
        self.arrays: dict[int, int | None] = {}
        self.lists: dict[int, _List] = {}
        self.thought_ends: dict[int, int] = {}
        self.thought_ends = self._thought_ends()
        self.arrays.clear()  # looked at before it was known which thoughts end
        self.drafts: list[Draft] = []

    def run(self) -> Located:
        i, thought_ended = 0, False
        while i < len(self.tags):
            kind = self.tags[i].kind
            if kind == "thought_open":
                end = self.thought_ends.get(i)
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
                end = self.thought_ends.get(i)
                if end is None:
                    return "absent", None, i
                i = end
            elif tag.kind == "speak_open":
                close = None if self._self_closing(tag) else self._reminder_end(i)
                if close is not None:
                    return "reminder", self.text[tag.end : self.tags[close].start], close + 1
                return ("silent" if self._self_closing(tag) else "cut_off"), None, i + 1
            elif tag.kind in ("silent", "speak_close"):
                return "silent", None, i + 1
            elif tag.kind == "turn" or self._is_attempt(i):
                return "absent", None, i
            i += 1
        return "absent", None, i

    def _thought_ends(self) -> dict[int, int]:
        """Index of each opening reasoning tag -> index of the tag that closes it, of whatever listed name; not of unclosed ones.

        With more openings than closes the thought mentions the tag, and the last close ends it, unless the model was cut off.
        """
        ends: dict[int, int] = {}
        open_tags: list[int] = []
        i, last_close = 0, -1
        while i < len(self.tags):
            kind = self.tags[i].kind
            if kind == "thought_open":
                open_tags.append(i)
            elif kind == "thought_close":
                last_close = i
                if open_tags:
                    ends[open_tags.pop()] = i
            elif kind == "list_open" and open_tags and (end := self._array_end(i)) is not None:
                i = bisect_left(self.starts, end, lo=i + 1)  # what a list in the thought quotes does not end the thought
                continue
            i += 1
        if not self.cut:
            ends.update({i: last_close for i in open_tags if i < last_close})
        return ends

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
        end = self._array_end(i)
        if end is None:
            return _List(None, i + 1)
        after = bisect_left(self.starts, end, lo=i)
        items = json_array(self.text[self._begin(i) : end])
        close, silent = self._list_close(after)
        if items is None or close is None or _JUNK.search(self.text, end, self.tags[close].start if not silent else end):
            return _List(None, after)
        return _List(items, close + 1, silent)

    def _array_end(self, i: int) -> int | None:
        """Where the array behind the opening tag `i` ends, JSON or not."""
        if i not in self.arrays:
            begin = self._begin(i)
            self.arrays[i] = bracket_end(self.text, begin) if self.text[begin : begin + 1] == "[" else None
        return self.arrays[i]

    def _begin(self, i: int) -> int:
        """Where the array of the opening tag `i` should begin; one thought in front of it is skipped."""
        begin = array_start(self.text, self.tags[i].end)
        thought = i + 1
        if thought in self.thought_ends and self.tags[thought].start == begin:
            begin = array_start(self.text, self.tags[self.thought_ends[thought]].end)
        return begin

    def _list_close(self, i: int) -> tuple[int | None, bool]:
        """Index of the closing tag of a list, and whether a phase-two tag stood before it."""
        silent = False
        while i < len(self.tags):
            kind = self.tags[i].kind
            if kind == "list_close":
                return i, silent
            if kind == "thought_open":
                end = self.thought_ends.get(i)
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
        begin = self._begin(i)
        return self.text[begin : begin + 1] in ("[", "{") or (i + 1 < len(self.tags) and self.tags[i + 1].kind == "list_close")

    def _begins_line(self, i: int) -> bool:
        start = self.tags[i].start
        before = self.text[max(0, start - 40) : start]
        line = before.rpartition("\n")[2]
        return (len(line) < 40 or start == len(line)) and not line.strip("`~ \t\r\ufeff\u200b")

    def _self_closing(self, tag: Tag) -> bool:
        return self.text[tag.start : tag.end - 1].rstrip().endswith("/")
