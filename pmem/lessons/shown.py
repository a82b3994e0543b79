"""Stored text as text: for a terminal without escapes, for a prompt without anything that closes its block."""

from pmem.envelope_text import clean_reminder

_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F], 0xFFFD)


def visible(text: str) -> str:
    """For terminals and the page: control characters as pictures, so that no escape sequence acts; line breaks stay."""
    return text.translate(_PICTURES).encode("utf-8", "replace").decode()


def plain(text: str) -> str:
    """For a prompt, on one line: no control characters, no tag that could close the block."""
    return " ".join(clean_reminder(text).split())
