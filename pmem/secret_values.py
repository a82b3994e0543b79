"""Secrets known by the name before them: `password: …`, `API_KEY=…`, `--token …`, `Authorization: …`, `scheme://user:…@host`.

A name alone proves nothing: code (`token = get_token()`, `secret=process.env.X`), prose ("password: required"), placeholders
and paths stay. `is_secret_value` is the one judge of that.
"""

import re
from collections.abc import Iterator

from pmem.secret_tokens import Span

_KEYWORDS = ("pass", "pwd", "secret", "token", "key", "credential", "auth", "signature", "sig=", "sig%3d")
"""Lower-case beginnings of telling names."""
_NAME = re.compile(
    r"(?P<password>pass(?:word|wd|wort|phrase|code)?|pwd)|(?P<token>token)|(?P<secret>secret|credentials?)|(?P<key>key)"
    r"|(?P<header>authorization)|(?P<auth>auth)|(?P<sig>sig(?:nature)?)",
    re.IGNORECASE,
)
_FOLLOWS = frozenset("\"'`\\:= \t\n,>%_-0123456789")
"""What may stand behind a telling name: a sign, a quote, a gap, or one of the suffixes of `_ASSIGNED`."""
_KEY_BEFORE = re.compile(
    r"(?:api|access|secret|private|auth|encrypt(?:ion)?|signing|account|master|subscription|licen[cs]e|service|deploy|app(?:lication)?"
    r"|client|consumer|storage|admin|webhook|jwt|hmac|session|function|instrumentation|fernet|aes)[-_. ]?\Z",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(?:\d{1,3}|[_-](?:\d{1,3}|base|value|prod(?:uction)?|dev|staging|live|test|b64|base64))?"
    r"(?:\\?[\"'`])?(?P<left>\s{0,8})(?P<sep>:=|=>|===?|[:=]|%3[dD])(?P<right>\s{0,8})(?:[bfru]{0,2}(?P<quote>\\?[\"'`]))?",
    re.IGNORECASE,
)
_HEADER_SEP = re.compile(r"(?:\\?[\"'`])?\s{0,4}[:=,]\s{0,4}(?:[bfru]{0,2}\\?[\"'`])?(?P<scheme>[A-Za-z0-9-]{3,20}[ \t]{1,4})?")
_HEADER_VALUE = re.compile(r"[^\s\"'`,\\<>]{4,512}")
_HEADER_REST = re.compile(r"[^\s\"'`,\\<>]*")
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|apikey|api-key|negotiate|ntlm|aws4-hmac-sha256)\s", re.IGNORECASE)
_OPTION_BEFORE = re.compile(r"(?:^|[\s\"'`=\[(,])--?(?:[A-Za-z][\w-]{0,30}[-_])?\Z")
_OPTION_GAP = re.compile(r"(?:[ \t]{1,8}(?P<quote>\\?[\"'`])?|\\?[\"']\s{0,4},\s{0,4}(?P<item>\\?[\"']))(?=[^\s-])")
_BARE = re.compile(r"[^\s\"'`,;&|<>\\]{1,256}")
_BARE_REST = re.compile(r"[^\s\"'`,;&|<>\\]*")
_QUOTED = {
    '"': re.compile(r'(?:[^"\\\n]++|\\.)*+', re.DOTALL),
    "'": re.compile(r"(?:[^'\\\n]++|\\.)*+", re.DOTALL),
    "`": re.compile(r"[^`\n]*+"),
    '\\"': re.compile(r'[^"\\\n]*+'),
    "\\'": re.compile(r"[^'\\\n]*+"),
    "\\`": re.compile(r"[^`\\\n]*+"),
}
_XML = re.compile(r"(?:[_-]?\d{1,3})?>(?P<value>[^<>\n]{3,256})</")
_LINE_END = re.compile(r"[ \t]*(?:[\n\r\"'`;&}\]<|\\#]|\Z)")

_URL_LOGIN = re.compile(
    r"://(?!\[redacted:)(?:[^\s/:@\"'<>?#]{0,256}:(?P<secret>[^\s/\"'<>?#]{1,512})@|(?P<lone>[^\s/:@\"'<>?#]{16,256})@)"
)
_LINES = (
    ("bearer", re.compile(r"bearer[ \t]{1,4}(?=[\w.~+/=-]*\d)(?P<value>[\w.~+/=-]{12,})", re.IGNORECASE), "bearer"),
    (
        "cookie",
        re.compile(r"cookie\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?(?P<value>[^\s=;\"'\\]{1,64}+=[^\n\"'\\]{8,})", re.I),
        "cookie",
    ),
    ("curl", re.compile(r"(?<=\s)(?:-u|--user)[ =]?[\"']?[\w.@+-]{1,64}:(?P<value>[^\s\"'$<{][^\s\"']{0,255})"), "login"),
    ("sshpass", re.compile(r"sshpass\s{1,4}-p\s{0,2}[\"']?(?P<value>[^\s\"'$<{-][^\s\"']{2,255})"), "password"),
    ("mysql", re.compile(r"mysql\w{0,8}\s(?:[^\n]{0,120}?\s)?-p[\"']?(?P<value>[^\s\"'$<{-][^\s\"']{2,255})"), "password"),
    ("login", re.compile(r"login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<value>\S{1,256})"), "password"),
    ("$", re.compile(r"\$(?:2[abxy]|5|6|y|argon2(?:id?|d))(?P<value>\$[\w./$=,+-]{20,})"), "password_hash"),
)
"""Anchor, pattern whose group `value` is the secret, kind."""

MARK = "[redacted:"
"""Begins what stands in place of a secret."""
_PLACEHOLDER = re.compile(
    r"\$[A-Za-z_{(]|%[(sdr{]|\{|<|\(|\[[A-Z_ -]+\]|(.)\1{2,}\Z|\.\.\.|…|x{3,}|your[-_ ]"
    r"|(?:change|replace|insert|fill)[-_ ]?(?:me|this|with)"
    r"|(?:todo|tbd|redacted|masked|hidden|dummy|placeholder|sample)\W*\Z",
    re.IGNORECASE,
)
_PLAIN_WORD = re.compile(
    r"(?:str(?:ing)?|int(?:eger)?|float|bool(?:ean)?|bytes?|any|object|dict|list|optional|required|none|null|nil|undefined|void|true|false|yes"
    r"|no|on|off|empty|missing|invalid|incorrect|wrong|expired|unknown|changed|default|must|should|cannot|not|is|was|are|has|and|or|the|a|an|in"
    r"|for|if|at|of|to|from|with|new|await|async|self|this|super|lambda|function|return|import|process|type|field|text|flag|env|file|path"
    r"|prompt|never|ask|auto|manual|basic|bearer|digest|valid|ok|failed|success|set|unset|found|denied|refused|sent|updated|created)\W*",
    re.IGNORECASE,
)
_OWN_NAME = re.compile(r"pass(?:word|wd|phrase)|token|secret|credential|user|input|config|settings|args|params|api_?key", re.I)
_CODE = re.compile(
    r"[A-Za-z_$][\w$]*(?:\?\.|::|->|\.)[A-Za-z_$]"  # process.env.X
    r"|[A-Za-z_$][\w$.:]*[(\[{]"  # get_token(), os.environ["X"], frozenset({
    r"|[({\[!&*]"
)
_JOINED_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)+\Z|[a-z]+(?:[A-Z][a-z]+)+\Z")
_SHOUTED = re.compile(r"[A-Z][A-Z_]*\Z")
_PATH = re.compile(r"(?:~|\.{0,2})/|[A-Za-z]:\\")


def named_values(text: str, folded: str) -> Iterator[Span]:
    """Values behind telling names. `folded`: the text in lower case, character for character."""
    for keyword in _KEYWORDS:
        at = folded.find(keyword)
        while at >= 0:
            span = _named(text, at)
            if span is not None:
                yield span
            at = folded.find(keyword, max(span[1], at + 1) if span else at + len(keyword))


def logins(text: str, folded: str) -> Iterator[Span]:
    """Passwords in URLs, headers and command lines whose name is not the usual assignment."""
    if "://" in text and "@" in text:
        for match in _URL_LOGIN.finditer(text):
            group = "secret" if match["secret"] else "lone"
            if (
                MARK not in match.group()
                and not _is_placeholder(match[group])
                and (group == "secret" or _has_digit(match[group]))
            ):
                yield match.start(group), match.end(group), "url_login"
    for anchor, pattern, kind in _LINES:
        if anchor in folded:
            for match in pattern.finditer(text):
                value = match["value"]
                if not _is_placeholder(value) and (kind != "login" or not value.isdigit()):
                    yield match.start("value"), match.end("value"), kind


def _named(text: str, at: int) -> Span | None:
    name = _NAME.match(text, at)
    if name is None:
        return None
    kind, end = name.lastgroup or "", name.end()
    if text[end : end + 1] not in _FOLLOWS:
        return None
    if kind == "header":
        return _header(text, end)
    assigned = _ASSIGNED.match(text, end)
    gap = None if assigned else _OPTION_GAP.match(text, end)
    if assigned is None and gap is None and text[end : end + 1] not in (">", "_", "-"):
        return None
    if kind == "key" and not _KEY_BEFORE.search(text, max(0, at - 24), at):
        return None
    if assigned is not None:
        return _assigned_value(text, assigned, kind, short=name.group().lower() == "pass")
    if gap is not None:
        return _option_value(text, at, gap, kind)
    return _element(text, at, end, kind)


def _assigned_value(text: str, assigned: re.Match[str], kind: str, *, short: bool) -> Span | None:
    start, quote = assigned.end(), assigned["quote"]
    if kind == "sig" and (quote or assigned["sep"].lower() not in ("=", "%3d")):
        return None  # only in a signed URL: elsewhere a signature is public
    match = _QUOTED[quote].match(text, start) if quote else _BARE.match(text, start)
    if match is None:
        return None
    value = match.group() if quote else match.group().rstrip(")]}.:")
    spaced = assigned["left"] or assigned["right"]
    tight = assigned["sep"] == "=" and not spaced and text[match.end() : match.end() + 1] not in (",", ")")
    ends_line = tight or bool(_LINE_END.match(text, start + len(value)))
    if short and value.isdigit():
        return None  # a test summary: `pass: 1204`
    if not is_secret_value(value, kind, quoted=bool(quote), ends_line=ends_line):
        return None
    if quote:
        return start, match.end(), kind
    rest = _BARE_REST.match(text, start)
    return start, rest.end() if rest and len(match.group()) == 256 else start + len(value), kind


def _option_value(text: str, at: int, gap: re.Match[str], kind: str) -> Span | None:
    """`--token VALUE`, on a command line or in a list of arguments."""
    if not _OPTION_BEFORE.search(text, max(0, at - 40), at):
        return None
    quote = gap["quote"] or gap["item"]
    match = _QUOTED[quote].match(text, gap.end()) if quote else _BARE.match(text, gap.end())
    value = match.group().rstrip(")]}" if not quote else "") if match else ""
    if match is None or len(value) < 3 or _is_placeholder(value) or _PLAIN_WORD.fullmatch(value) or _CODE.match(value):
        return None
    if _SHOUTED.match(value) or _PATH.match(value) or value.lower() in ("token", "password", "secret"):
        return None
    rest = _BARE_REST.match(text, gap.end())
    return gap.end(), rest.end() if rest and len(match.group()) == 256 and not quote else gap.end() + len(value), kind


def _element(text: str, at: int, end: int, kind: str) -> Span | None:
    """`<password>…</password>`."""
    match = _XML.match(text, end)
    if match is None or text.rfind("<", max(0, at - 40), at) < 0:
        return None
    if not is_secret_value(match["value"], kind, quoted=True, ends_line=True):
        return None
    return match.start("value"), match.end("value"), kind


def _header(text: str, end: int) -> Span | None:
    sep = _HEADER_SEP.match(text, end)
    if sep is None:
        return None
    schemed = sep["scheme"] is not None and bool(_SCHEME.match(sep["scheme"]))
    start = sep.end() if schemed or sep["scheme"] is None else sep.start("scheme")
    match = _HEADER_VALUE.match(text, start)
    if match is None or _is_placeholder(match.group()) or _CODE.match(match.group()):
        return None
    value = match.group()
    if not _has_digit(value) and (not schemed or _PLAIN_WORD.fullmatch(value) or _OWN_NAME.search(value)):
        return None
    if not schemed and len(value) < 8:
        return None
    rest = _HEADER_REST.match(text, match.end())
    return start, rest.end() if rest else match.end(), "authorization"


def is_secret_value(value: str, kind: str, *, quoted: bool, ends_line: bool) -> bool:
    """Whether `value`, assigned to a name of class `kind` (a group of `_NAME`), is a secret and not code or prose."""
    if len(value) < 3 or _is_placeholder(value) or (not quoted and _CODE.match(value)):
        return False
    if kind == "password":
        return _is_password(value, quoted=quoted, ends_line=ends_line)
    if any(char.isspace() for char in value) or _PATH.match(value):
        return False
    digit_and_letter = _has_digit(value) and any(char.isalpha() for char in value)
    if kind == "sig":
        return len(value) >= 20 and digit_and_letter
    if len(value) >= 8 and digit_and_letter:
        return len(value) >= 16 or not _OWN_NAME.search(value)
    if _OWN_NAME.search(value) or value.isupper() or _JOINED_NAME.match(value):
        return False
    if len(value) >= 20:
        return value != value.lower() or value.isalpha()
    return quoted and len(value) >= 8 and kind not in ("token", "auth")


def _is_password(value: str, *, quoted: bool, ends_line: bool) -> bool:
    if _PATH.match(value):
        return False
    if _has_digit(value):
        return not value.isdigit() or len(value) >= 4
    if _PLAIN_WORD.fullmatch(value) or _OWN_NAME.search(value) or any(char.isspace() for char in value):
        return False
    if not quoted and _JOINED_NAME.match(value):
        return False
    return quoted or ends_line or not value.isalpha()


def _is_placeholder(value: str) -> bool:
    """Whether the value stands for another one; also one that is already taken out, in part or whole."""
    return MARK in value or _PLACEHOLDER.match(value) is not None


def _has_digit(value: str) -> bool:
    return any(char.isdigit() for char in value)
