"""Cleaning of the two texts a model writes: the content of a bank entry and the reminder. Every function is total and linear.

A reminder rides inside a block of the host (`<system-reminder>`); after `clean_reminder` it holds nothing that could close that
block: no `</name`, no control character, no ANSI escape, no zero-width character that could hide one (runtime.md section 2).
"""

import re

MAX_CONTENT_CHARS = 1200
"""Unicode code points of one entry, counted after white space is collapsed."""

_ANSI = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+[@-~]?"  # CSI: colours, cursor
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*+(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, APC with their text
    "|\x1b[ -/]*+[0-~]?"
)
_LINE_BREAK = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"  # joiners stay between two non-ASCII letters or emoji
)
UNSEEN: tuple[tuple[int, int], ...] = (
    (0x00, 0x20),
    (0x7F, 0xA0),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xE0000, 0xE0FFF),
)
"""Ranges of characters that leave no mark on the page: a text of these alone is blank. `pmem.grammar` uses the same table."""
_BLANK = re.compile("[" + "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in UNSEEN) + "]*+")

STOP_TOKEN = re.compile(
    r"<\|[^<>|\s]{1,40}\|?>|<[^<>|\s]{1,40}\|>"  # ChatML, Llama 3, Phi, Cohere, harmony, Gemma 4
    r"|<｜[^<>｜]{1,40}｜>"  # DeepSeek
    r"|<(?:start|end)_of_(?:turn|image|audio)>|</?s>|<(?:eos|bos|pad|unk|sep|cls|mask|eod|eop|sop|eot|bot)>"
    r"|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT|BOS|EOS|PAD|UNK|gMASK|sMASK)\]|<</?SYS>>"
)
"""Control tokens of chat templates. Inside a reminder they mean that the model ran past its end."""

_RESERVED = (
    r"operations|context_for_action|no_intervention|think(?:ing)?|reasoning|scratchpad|analysis|thought|reflection|memory"
    r"|system|user|assistant|human|developer|tool(?:_?(?:call|use|result|response|output)s?)?|function(?:_?(?:call|result|response)s?)?|invoke"
    r"|parameter|instructions?|answer|result|output|env|environment|context|task|document"
)
_TAG_SHAPE = re.compile(
    r"</\s*+[\w:.-]++(?:[^<>\n]*+>)?+"  # a closing tag, finished or not
    r"|<\s++/\s*+[\w:.-]++\s*+>"  # one with a space, but not `< /dev/null`
    r"|<[!?][\w\[-][^<>]*+>"
    rf"|<(?:{_RESERVED})(?:[\s/][^<>]*+)?+>"
    r"|<[A-Za-z]\w*+-[\w:-]*+(?:[\s/][^<>]*+)?+>"  # <system-reminder>
    r"|(?<![\w\])<])<[A-Za-z][\w:]*+(?:\s*+/?+|\s[^<>=]*+=[^<>]*+)>",  # <b>, <br/>, <a href="…">; not list<int>, <<EOF >
    re.IGNORECASE,
)
_MAX_PASSES = 4
_CLOSER = re.compile(r"<(?=/\s*+\w|\s++/\s*+[\w:.-]++\s*+>)")
_FENCE_LINE = re.compile(r"\s*+(?:`{3,}+|~{3,}+)[\w+.-]*+\s*+")

_IDS = r"tm-[kp]-[0-9]{1,12}"
_CITATION = re.compile(rf"\[\s*+({_IDS}(?:\s*+,\s*+{_IDS})*+)\s*+\]")


def clean_content(text: str) -> str:
    """The text of an entry as the bank keeps it: no control characters, white space collapsed, beginning with a visible one."""
    if not text.isprintable():
        text = _SURROGATE.sub("\ufffd", _CONTROL.sub("", _ANSI.sub("", text)))
    text = " ".join(text.split())
    blank = _BLANK.match(text)
    return text[blank.end() :] if blank else text


def clean_reminder(text: str) -> str:
    """A reminder that cannot leave the block it rides in. Line breaks stay (the gate counts lines); may be empty."""
    if not text.isprintable():
        text = _LINE_BREAK.sub("\n", _ANSI.sub("", text))
        text = _SURROGATE.sub("\ufffd", _INVISIBLE.sub("", _CONTROL.sub("", text)))
    text = "\n".join(line for line in text.split("\n") if not _FENCE_LINE.fullmatch(line))  # first: a fence must not part a tag
    if "<" in text or "[" in text:
        text = STOP_TOKEN.sub(" ", text)
    if "<" in text:
        for _ in range(_MAX_PASSES):  # what a pass joins, the next one takes: `</sys</b>tem>`
            text, num_stripped = _TAG_SHAPE.subn(" ", text)
            if not num_stripped:
                break
        text = _CLOSER.sub("(", text)  # and what no number of passes would end: nothing is left that closes
    lines = (" ".join(line.split()) for line in text.split("\n"))
    text = "\n".join(line for line in lines if line)
    return "" if _BLANK.fullmatch(text) else text


def citations(text: str) -> tuple[str, ...]:
    """Ids cited as `[tm-k-1]`, `[tm-k-1, tm-p-2]` or `[tm-k-1][tm-p-2]`, each once, in order; case counts."""
    found = (name for group in _CITATION.finditer(text) for name in group[1].split(","))
    return tuple(dict.fromkeys(name.strip() for name in found))
