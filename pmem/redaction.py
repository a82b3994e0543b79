"""Secret-shaped values out of a text, before anything is kept, sent or logged.

    redact("export GH=ghp_16C7e42F292c6912E7710c838347Ae178B4a")  ->  ("export GH=[redacted:github_token]", 1)

Substring searches first, precise rules only where one of them hits; linear in the length of the text; a second pass changes
nothing. General detectors (detect-secrets and its kin) read a text line by line with every rule and take over a hundred times
longer (benchmarks/bench_redaction.py measures it), which the host's thread cannot pay.
"""

from collections.abc import Iterable, Iterator

from pmem.secret_tokens import Span, key_remainder, leaves_key_open, private_keys, tokens
from pmem.secret_values import logins, named_values


def redact(text: str) -> tuple[str, int]:
    """Text without secrets, each replaced by `[redacted:kind]`, and how many there were."""
    spans = _merged(_secrets(text, 0))
    return (_without(text, spans), len(spans)) if spans else (text, 0)


class Redactor:
    """Redaction of a stream of texts: a secret that begins in one and ends in the next is taken out of both.

    One object for each source of texts; not safe for several threads.
    """

    MAX_TAIL_CHARS = 256

    def __init__(self) -> None:
        self._in_key = False
        self._tail = ""

    def redact(self, text: str) -> tuple[str, int]:
        """Like the function `redact`, knowing how the text before this one ended."""
        offset = len(self._tail)
        spans = [
            (max(0, start - offset), end - offset, kind) for start, end, kind in _secrets(self._tail + text, 0) if end > offset
        ]
        remainder = key_remainder(text) if self._in_key else 0
        if remainder:
            spans.append((0, remainder, "private_key"))
        still_open = bool(remainder) and not text[remainder:].strip() and "-----END" not in text[:remainder]
        self._in_key = leaves_key_open(text) or still_open
        self._tail = text[-self.MAX_TAIL_CHARS :].rpartition("\n")[2]
        merged = _merged(spans)
        return (_without(text, merged), len(merged)) if merged else (text, 0)


def _secrets(text: str, depth: int) -> Iterator[Span]:
    folded = (text if text.isascii() else text.replace("\u0130", "i")).lower()  # İ is the one letter that would grow
    if "private key" in folded:
        yield from private_keys(text)
    yield from tokens(text, depth, _secrets)
    yield from named_values(text, folded)
    yield from logins(text, folded)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """In order and without overlap; of two that overlap the one that begins first names the kind."""
    merged: list[Span] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end, merged[-1][2])
            continue
        merged.append((start, end, kind))
    return merged


def _without(text: str, spans: list[Span]) -> str:
    parts, position = [], 0
    for start, end, kind in spans:
        parts += [text[position:start], f"[redacted:{kind}]"]
        position = end
    return "".join([*parts, text[position:]])
