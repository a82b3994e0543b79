"""Secrets known by their own shape: tokens with a published prefix, JWTs, PEM blocks, and base64 that hides one of these.

Tokens are looked for only inside runs of 16 or more characters [A-Za-z0-9_-], which one byte translation and a substring search
find; a text without such runs costs microseconds.
"""

import binascii
import re
from collections.abc import Callable, Iterator

Span = tuple[int, int, str]
"""Start, end and kind of one secret."""

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?P<aws_key>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9]))"
    r"|(?P<github_token>gh[pousr]_[A-Za-z0-9]{12,}|github_pat_\w{12,})"
    r"|(?P<gitlab_token>gl(?:pat|dt|rt|ptt|ft|soat|imt|cbt|agent|oas)-[\w-]{12,}|GR1348941[\w-]{12,})"
    r"|(?P<slack_token>xox[abeoprs]-[\w-]{8,}|xapp-\d-[\w-]{8,})"
    r"|(?P<sk_key>sk-(?:[A-Za-z0-9]{20,}+|(?=[\w-]{0,80}\d)[\w-]{16,}))"  # OpenAI, Anthropic, OpenRouter, DeepSeek
    r"|(?P<stripe_key>(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9]{16,})"
    r"|(?P<google_key>AIza[\w-]{20,}|GOCSPX-[\w-]{20,})"
    r"|(?P<huggingface_token>(?:hf|api_org)_[A-Za-z0-9]{20,})"
    r"|(?P<npm_token>npm_[A-Za-z0-9]{30,})"
    r"|(?P<pypi_token>pypi-(?:Ag[\w-]{14,}|(?=[\w-]{0,80}\d)[\w-]{40,}))"
    r"|(?P<service_token>do[opr]_v1_[a-f0-9]{16,}|dapi[a-f0-9]{32}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{16,}|lin_api_\w{16,}"
    r"|ntn_[A-Za-z0-9]{20,}|gl(?:sa|c)_\w{20,}|sntry[su]_\w{20,}|PMAK-[\w-]{20,}|ATATT3[\w-]{20,}|fm2_\w{20,}"
    r"|(?:gsk|xai|pplx|r8|sbp)[_-][A-Za-z0-9]{24,}|NRAK-[A-Z0-9]{20,}|key-[a-f0-9]{32}(?![\w-])|sq0(?:csp|atp|idp)-[\w-]{20,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,})"
    r")"
)
_JWT = re.compile(r"eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)*")
_DOTTED = {
    "SG.": "service_token",
    "ya29.": "google_key",
    "1//0": "google_key",
    "hvs.": "service_token",
    "hvb.": "service_token",
    "dp.pt.": "service_token",
    "8Q~": "azure_secret",
    "7Q~": "azure_secret",
}
"""What stands directly before the long run of a token that holds a dot, a slash or a tilde."""
_MARKS = frozenset(".~/:")
_HEADS = frozenset(
    "AKI ASI ABI ACC ghp gho ghu ghs ghr git glp gld glr glf gls gli glc gla glo GR1 xox xap sk- sk_ rk_ whs AIz GOC hf_ api npm "  # noqa: SIM905
    "pyp eyJ dop doo dor dap shp lin ntn snt PMA ATA fm2 gsk xai ppl r8_ sbp NRA key sq0 AGE".split()
)
_GLUED = re.compile(
    r"[_-](?:A(?:KIA|SIA|BIA|CCA|Iza|TATT3|GE-SEC)|g(?:h[pousr]_|ithub_|l[a-z]{1,5}[-_]|sk_)|G(?:R13|OCSPX)|x(?:ox|app|ai-)|[sr]k[-_]|whsec_"
    r"|hf_|api_org_|npm_|pypi-|do[opr]_v1|dapi|shp[acs]|lin_api|ntn_|sntry|PMAK|fm2_|pplx-|r8_|sbp_|NRAK|key-|sq0)"
)
"""First characters of the tokens above: at the head of a run, and glued behind a name."""
_DOTTED_REST = re.compile(r"[\w.~+/=-]*")
_TELEGRAM = re.compile(r"(?<!\d)\d{8,10}:\Z")

_MIN_RUN = 16
_RUN = b"a" * _MIN_RUN
_RUN_TABLE = bytes(97 if (chr(code).isalnum() and code < 128) or chr(code) in "_-" else 32 for code in range(256))

_BLOB = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_BLOB_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_MAX_BLOB_CHARS = 65_536
_MAX_BLOB_BACK = 64
_URL_SAFE = str.maketrans("-_", "+/")
_BINARY = re.compile(rb"[^\t\n\r\x20-\x7e]")
_WRAPPED = re.compile(r"(?:\s{1,4}[A-Za-z0-9+/]{16,}={0,2}(?![\w-]))*+(?:\s{1,4}[A-Za-z0-9+/]{1,76}={1,2})?")

_MAX_PEM_CHARS = 16_384
_PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_MARK = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LEAD = r"(?:\s|\\[nrt]|[0-9]{1,5}(?=[\s→:|])|[+>|:→-])"  # line ends, also escaped, line numbers, diff and quote marks
_PEM_BODY = re.compile(
    rf"(?:{_LEAD}*+(?:[A-Z][A-Za-z0-9-]{{3,20}}: [^\n\\]{{0,200}}|[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w-])))*+"
    rf"(?:{_LEAD}*+[A-Za-z0-9+/]{{1,76}}={{1,2}}|{_LEAD}*+[A-Za-z0-9+/]{{2,15}}\s*\Z)?"
)
_PEM_LINE = re.compile(rf"{_LEAD}*+[A-Za-z0-9+/]{{1,96}}={{0,2}}{_LEAD}*+\Z")

Search = Callable[[str, int], Iterator[Span]]
"""All secrets of a text at a depth of encoding."""


def private_keys(text: str) -> Iterator[Span]:
    """PEM blocks; also one whose end or beginning stands in another text."""
    position = 0
    for mark in _PEM_MARK.finditer(text):
        if mark.start() < position:
            continue
        if mark[1] == "END":
            begin, position = _body_start(text, mark.start(), position), mark.end()
        else:
            end = _PEM_END.search(text, mark.end(), mark.end() + _MAX_PEM_CHARS)
            begin, position = mark.start(), end.end() if end else _body_end(text, mark.end())
        yield begin, position, "private_key"


def key_remainder(text: str) -> int:
    """Length of the part of `text` that goes on with a private key begun in an earlier text."""
    end = _PEM_END.search(text, 0, _MAX_PEM_CHARS)
    return end.end() if end else _body_end(text, 0)


def leaves_key_open(text: str) -> bool:
    """Whether the last private key that begins in `text` does not end in it."""
    begin = text.rfind("-----BEGIN ")
    while begin >= 0 and _PEM_BEGIN.match(text, begin) is None:
        begin = text.rfind("-----BEGIN ", 0, begin)
    return begin >= 0 and _PEM_END.search(text, begin) is None


def tokens(text: str, depth: int, search: Search) -> Iterator[Span]:
    """Tokens and encoded secrets. `search` finds secrets in a decoded text."""
    runs = text.encode("ascii", "replace").translate(_RUN_TABLE)
    blob_end, glued = 0, -1
    at = runs.find(_RUN)
    while at >= 0:
        end = runs.find(b" ", at + _MIN_RUN)
        end = end if end >= 0 else len(text)
        if glued < at:
            glued = match.start() if (match := _GLUED.search(text, at)) else len(text)
        found = _known(text, at, end, glued=glued < end)
        if not found and at >= blob_end and not text[at : at + 20].islower():
            found, blob_end = _blob(text, at, end, depth, search)
        yield from found
        at = runs.find(_RUN, max(end, found[-1][1]) if found else end)


def _known(text: str, start: int, end: int, *, glued: bool) -> list[Span]:
    """Tokens in the run [start, end), which may go on behind a dot, slash or tilde. `glued`: one may stand behind a name."""
    before = text[start - 1 : start]
    if before in _MARKS and before and (span := _dotted(text, start, end)) is not None:
        return [span]
    if text[start : start + 3] in _HEADS:
        if text.startswith("eyJ", start) and (match := _JWT.match(text, start)):
            return [(start, match.end(), "jwt")]
    elif not glued:
        return []
    return [(match.start(), match.end(), match.lastgroup or "token") for match in _TOKEN.finditer(text, start, end)]


def _dotted(text: str, start: int, end: int) -> Span | None:
    before = text[max(0, start - 12) : start]
    for prefix, kind in _DOTTED.items():
        if before.endswith(prefix):
            rest = _DOTTED_REST.match(text, start)
            return start - len(prefix), rest.end() if rest else end, kind
    if text.startswith("AA", start) and _TELEGRAM.search(before):
        return start, end, "service_token"
    return None


def _blob(text: str, start: int, end: int, depth: int, search: Search) -> tuple[list[Span], int]:
    """Base64 (also URL-safe, wrapped, or of UTF-16) that decodes to a text with a secret in it, and where the blob ends."""
    begin = start
    while begin > 0 and start - begin < _MAX_BLOB_BACK and text[begin - 1] in _BLOB_CHARS:
        begin -= 1
    match = _BLOB.match(text, begin) if depth < 2 else None
    if match is None or not _decoded(match.group()[:24]):
        return [], match.end() if match else end
    decoded = _decoded(match.group()[:_MAX_BLOB_CHARS])
    if decoded and next(search(decoded, depth + 1), None) is not None:
        rest = _WRAPPED.match(text, match.end())
        return [(begin, rest.end() if rest else match.end(), "encoded_secret")], match.end()
    return [], match.end()


def _decoded(blob: str) -> str | None:
    """The printable text that `blob` is the base64 of, or None."""
    blob = blob.rstrip("=").translate(_URL_SAFE)
    blob = blob[: len(blob) - 1] if len(blob) % 4 == 1 else blob
    raw = binascii.a2b_base64(blob + "=" * (-len(blob) % 4))
    if raw[1:2] == b"\0":
        raw = raw.replace(b"\0", b"")
    return None if not raw or _BINARY.search(raw) else raw.decode("ascii")


def _body_end(text: str, start: int) -> int:
    match = _PEM_BODY.match(text, start)
    return match.end() if match else start


def _body_start(text: str, end: int, floor: int) -> int:
    """Go back over the lines of a key that stand before its last line."""
    start = end
    while start > floor:
        line = max(text.rfind("\n", floor, start - 1) + 1, text.rfind("\\n", floor, max(floor, start - 2)) + 2, floor)
        if line >= start or start - line > 200 or not _PEM_LINE.match(text[line:start]):
            break
        start = line
    return start
