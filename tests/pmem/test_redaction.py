"""Secrets out, everything else untouched: the table of kinds, the table of look-alikes, keys split over two texts, and laws."""

import base64
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmem.redaction import Redactor, redact

# Put together here, so that no scanner of this repository takes a test for a leak.
BODY = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
PEM_LINES = [f"MIIEpAIBAAKCAQEA{BODY}abcd{n:04d}" for n in range(8)]
PEM = "\n".join(["-----BEGIN RSA " + "PRIVATE KEY-----", *PEM_LINES, "Q1w2E3r4T5==", "-----END RSA " + "PRIVATE KEY-----"])
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r"

SECRETS: dict[str, tuple[str, str]] = {
    # kind: (text, the part that must be gone)
    "aws access key": (f"key {AWS} end", AWS),
    "aws session key": ("ASIA" + AWS[4:], "ASIA" + AWS[4:]),
    "aws secret key": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    "google api key": ("AIza" + "SyA-1234567890abcdefghijklmnopqrstu", "SyA-123"),
    "google oauth": ("ya29." + "a0AfH6SMBx-1234567890_abcdef", "a0AfH6"),
    "azure storage": (
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={base64.b64encode(bytes(range(64))).decode()};Suffix=core",
        "AAECAwQ",
    ),
    "azure client secret": ("abc8Q~" + BODY[:34], BODY[:34]),
    "azure sas": ("https://x.blob/y?sv=2022&sig=abcDEF123%2Babcdefghijk%3D&se=1", "abcDEF123"),
    "github": ("ghp_" + BODY[:36], BODY[:36]),
    "github fine-grained": ("github_pat_11ABCDE_" + BODY, BODY),
    "github app": ("ghs_" + BODY[:36], BODY[:36]),
    "gitlab": ("glpat-" + BODY[:20], BODY[:20]),
    "slack": ("xoxb-123456789012-" + BODY[:24], BODY[:24]),
    "openai": ("sk-" + BODY, BODY),
    "openai project": ("sk-proj-" + BODY + "_" + BODY, BODY),
    "anthropic": ("sk-ant-api03-" + BODY + "-AA", BODY),
    "hugging face": ("hf_" + "abcdefGHIJKLmnopQRSTuvwxYZ12345678", "abcdefGHI"),
    "npm": ("npm_" + BODY[:36], BODY[:36]),
    "npmrc": ("//registry.example.org/:_authToken=550e8400-e29b-41d4-a716-446655440000", "550e8400"),
    "pypi": ("pypi-AgEIcHlwaS5vcmcCJ" + BODY, BODY),
    "stripe": ("sk_" + "live_" + BODY[:24], BODY[:24]),
    "stripe webhook": ("whsec_" + BODY[:32], BODY[:32]),
    "sendgrid": ("SG." + BODY[:22] + "." + BODY, BODY[:22]),
    "telegram": ("123456789:AA" + BODY[:33], BODY[:33]),
    "jwt": (f"token {JWT} x", "dBjftJeZ4CVP"),
    "pem": (f"before\n{PEM}\nafter", "MIIEpAIBAAKCAQEA"),
    "pem in json": ('{"key":"' + PEM.replace("\n", "\\n") + '"}', "MIIEpAIBAAKCAQEA"),
    "pem with line numbers": ("\n".join(f"{n:6d}\t{line}" for n, line in enumerate(PEM.split("\n"))), "MIIEpAIBAAKCAQEA"),
    "pem quoted": ("\n".join(f"> {line}" for line in PEM.split("\n")), "MIIEpAIBAAKCAQEA"),
    "pem without end": (PEM[:300], "MIIEpAIBAAKCAQEA"),
    "pem without end, numbered": ("\n".join(f"{n:6d}→{line}" for n, line in enumerate(PEM.split("\n")[:5])), "MIIEpAIBAAKCAQEA"),
    "pem without beginning": (PEM[60:], "MIIEpAIBAAKCAQEA"),
    "openssh": (PEM.replace("RSA", "OPENSSH"), "MIIEpAIBAAKCAQEA"),
    "pgp": (PEM.replace("RSA ", "PGP ").replace("KEY-----", "KEY BLOCK-----"), "MIIEpAIBAAKCAQEA"),
    "bearer header": ("curl -H 'Authorization: Bearer " + BODY + "' https://x", BODY),
    "short bearer header": ("Authorization: Bearer abc123", "abc123"),
    "bearer in json": ('{"Authorization": "Bearer ' + BODY + '"}', BODY),
    "bearer alone": (f"sent bearer {BODY}", BODY),
    "basic header": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "token header": ("authorization=token abcdef123456", "abcdef123456"),
    "api key header": ("X-Api-Key: 0123456789abcdef0123456789abcdef", "0123456789abcdef"),
    "cookie": ("Cookie: sid=abcdef123456; theme=dark", "abcdef123456"),
    "url user info": ("postgres://user:p4ss@host/db", "p4ss"),
    "url password with an at sign": ("amqp://user:p@ss4@host", "ss4"),
    "url token": (f"git clone https://{BODY}@git.example.org/x", BODY),
    "url query": ("https://x/y?access_token=abc123def456&z=1", "abc123def456"),
    "option": ("tool --token value", "value"),
    "option with a secret": ("tool --api-token hunter22 -v", "hunter22"),
    "option with sign": ("tool --api-key=abc123def4", "abc123def4"),
    "option in a list": ('["tool","--password","hunter2"]', "hunter2"),
    "single dash": ("tool -password hunter2", "hunter2"),
    "sshpass": ("sshpass -p 'hunter2' ssh x", "hunter2"),
    "mysql": ("mysql -u root -phunter2 db", "hunter2"),
    "curl user": ("curl -u bob:hunter2 https://x", "hunter2"),
    "netrc": ("machine h login me password hunter2", "hunter2"),
    "password: short": ("password: hunter2", "hunter2"),
    "password without digit": ("password: swordfish\n", "swordfish"),
    "password of three letters": ("Password: abc", ": abc"),
    "password with symbols": ("PASSWORD=p@$$w0rd!;x", "w0rd"),
    "quoted password": ('password = "correct;horse\'s"', "correct"),
    "password of digits": ("pin_passcode: 123456", "123456"),
    "env pass": ("export DB_PASS=swordfish", "swordfish"),
    "env password": ("MYSQL_PWD=hunter2 mysql", "hunter2"),
    "prod suffix": ("DB_PASSWORD_PROD='hunter2'", "hunter2"),
    "json": ('{"password": "hunter2"}', "hunter2"),
    "json in json": ('{\\"password\\": \\"hunter2\\"}', "hunter2"),
    "python repr": ("{'user': 'x', 'password': 'hunter2'}", "hunter2"),
    "yaml": ("db:\n  password: hunter2\n  port: 1", "hunter2"),
    "camel case": ("clientSecret: 'abcd1234efgh'", "abcd1234efgh"),
    "api key": ('api_key: "abcd1234efgh"', "abcd1234efgh"),
    "secret key base": ("SECRET_KEY_BASE=0f3a9c8b7d6e5f4a3b2c1d0e", "0f3a9c8b"),
    "xml": ("<password>swordfish</password>", "swordfish"),
    "odbc": ("Server=x;Uid=sa;Pwd=hunter2;Database=y", "hunter2"),
    "bcrypt": ("root:$2b$12$" + "abcdefghijklmnopqrstuv" + BODY[:31], "abcdefghij"),
    "base64 of a key": (base64.b64encode(f"key={AWS}".encode()).decode(), base64.b64encode(f"key={AWS}".encode()).decode()),
    "base64 of an assignment": ("data: " + base64.b64encode(b"password: hunter2 and so on").decode(), "cGFzc3dvcmQ"),
    "base64 of a pem": (base64.b64encode(PEM.encode()).decode(), "LS0tLS1CRUdJTi"),
    "wrapped base64 of a pem": (base64.encodebytes(PEM.encode()).decode(), base64.b64encode(PEM.encode()).decode()[76:150]),
    "url-safe base64": (base64.urlsafe_b64encode(f"??>>key={AWS}".encode()).decode(), "leT1BS0lBSU9T"),
    "base64 twice": (base64.b64encode(base64.b64encode(f"key={AWS}".encode())).decode(), "WNVBVRkxTVUZKVDFOR1Qw"),
    "base64 of utf-16": (base64.b64encode(f"password={BODY}".encode("utf-16le")).decode(), "cABhAHMAcwB3"),
    "glued behind a name": ("MY_TOKEN_ghp_" + BODY[:36], BODY[:36]),
    "beside other scripts": (f"ключ {AWS} конец, Schlüssel: ghp_{BODY[:36]} İ", AWS),
}


@pytest.mark.parametrize("text, gone", SECRETS.values(), ids=SECRETS.keys())
def test_secret_kinds(text: str, gone: str) -> None:
    assert gone in text
    clean, count = redact(text)
    assert gone not in clean
    assert count >= 1 and clean.count("[redacted:") == count
    assert redact(clean) == (clean, 0)


LOOK_ALIKES = [
    "d41d8cd98f00b204e9800998ecf8427e",
    "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "550e8400-e29b-41d4-a716-446655440000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD)",
    '"integrity": "sha512-abcDEF123abcDEF123abcDEF123abcDEF123abcDEF123abcDEF123abcDEF123=="',
    "token = get_token()",
    "BASE_TOKENS = frozenset({",
    "secret=process.env.X",
    "api_key=os.environ['API_KEY']",
    'API_KEY = os.getenv("API_KEY")',
    "self.token = token",
    "password=password",
    "connect(password=pw, user=user)",
    "password = getpass.getpass()",
    "const token = await fetchToken(user);",
    "def f(password: str, token: Optional[str] = None) -> bool:",
    "password: string;",
    "secret: Secret<string>",
    "token: Token::new(kind),",
    "num_tokens=1234",
    "max_tokens: 2000",
    "--max-tokens 100",
    "--token-count 5",
    "tokens: 31,204 (2.1 s)",
    "token: identifier",
    "unexpected token: '}'",
    "tokenizer = AutoTokenizer.from_pretrained('x1')",
    "PWD=/home/user/project",
    "OLDPWD=/tmp",
    "passwd: /etc/passwd",
    "pass: 1204 fail: 3",
    "PASSED: 12",
    "primary_key=True",
    "cache_key: user_profile_12345678",
    "key: value12345",
    "sort_key = name1",
    "public_key: ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ",
    "git@github.com:a/b.git",
    "ssh://git@github.com/a/b",
    "https://example.com/a@b?c=d",
    "https://user:${TOKEN}@host",
    "postgres://${USER}:${PASS}@db/x",
    "Bearer ${TOKEN}",
    "Authorization: Bearer {token}",
    "Authorization: Bearer $TOKEN",
    '"Bearer " + token',
    "bearer authentication",
    "Authorization: required",
    "Password: incorrect",
    "password: must be at least 8 characters",
    "Enter password: ",
    "password: required",
    "Password is: not set",
    "The secret: be kind",
    "secret: true",
    "import secrets; secrets.token_hex(16)",
    "author: Jane Doe",
    "keys = sorted(d)",
    "password_field = driver.find_element(By.ID, 'password')",
    "--password <password>",
    "--token TOKEN",
    "--password-stdin",
    "usage: tool [--token TOKEN] [--password PASSWORD]",
    "password: ********",
    "token: <your-token>",
    "password=changeme",
    "api_key: YOUR_API_KEY",
    "test_secret_key_rotation_is_logged",
    "task-manager-component-12345678",
    "risk-assessment-2024-report-final",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    base64.b64encode(b"a quite ordinary sentence without anything in it").decode(),
    "AKIA",
    "sk-learn",
    "npm_config_registry",
    "hf_hub_download",
    "eyJ",
    "docker run -u 1000:1000 x",
    "curl -u $USER:$PASS https://x",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    '{"thinking": "…", "signature": "EtYFCkgIDBABGAIqQNrxIXb6AHDk6wAdelg7biqSIq+doJozmKOk"}',
    "if token == other_token:",
    "signature = inspect.signature(function)",
    "e2e/tests/very-long-directory-name/another_long_directory_name/file.test.ts:12:34",
    "[redacted:token]",
    "token=[redacted:token]",
]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alikes_are_not_touched(text: str) -> None:
    assert redact(text) == (text, 0)


def test_what_stays_is_what_stood_there() -> None:
    clean, count = redact(f"export A={AWS} B='x'\npassword: hunter2 # old\n{PEM}\nend")
    assert clean == "export A=[redacted:aws_key] B='x'\npassword: [redacted:password] # old\n[redacted:private_key]\nend"
    assert count == 3


@pytest.mark.parametrize("place", [10, 40, 60, 100, 300, len(PEM) - 60, len(PEM) - 20])
def test_a_private_key_split_over_two_texts(place: int) -> None:
    """Cut at a line or within one, the body of the key appears in neither text; also when each is redacted alone, but for a cut line."""
    first, second = PEM[:place], PEM[place:]
    redactor = Redactor()
    both = redactor.redact(f"$ head key\n{first}")[0] + redactor.redact(second)[0]
    assert not any(line[:16] in both for line in PEM_LINES)
    line_end = PEM.index("\n", place - 1) if "\n" in PEM[place - 1 :] else place
    alone = redact(PEM[:line_end])[0] + redact(PEM[line_end:])[0]
    assert not any(line in alone for line in PEM_LINES)


def test_a_private_key_split_over_three_texts() -> None:
    lines = PEM.split("\n")
    redactor = Redactor()
    parts = [redactor.redact("\n".join(lines[start:end]) + "\n")[0] for start, end in ((0, 3), (3, 6), (6, len(lines)))]
    assert not any(line in "".join(parts) for line in PEM_LINES)
    assert redactor.redact("MIIEpAIBAAKCAQEAordinaryText12345678 after")[1] == 0


@pytest.mark.parametrize("place", range(6, 38, 4))
def test_a_token_split_over_two_texts(place: int) -> None:
    token = "ghp_" + BODY[:36]
    redactor = Redactor()
    redactor.redact(f"export TOKEN_A=x\necho {token[:place]}")
    assert token[place:] not in redactor.redact(f"{token[place:]}\ndone")[0]


def test_a_value_in_the_text_after_its_name() -> None:
    redactor = Redactor()
    assert redactor.redact("password: ") == ("password: ", 0)
    assert redactor.redact("hunter2\nnext line")[0] == "[redacted:password]\nnext line"
    assert redactor.redact("hunter2")[1] == 0


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=200) | st.text(st.characters(categories=None), max_size=80))
def test_never_raises_and_a_second_pass_changes_nothing(text: str) -> None:
    clean, count = redact(text)
    assert (clean == text) == (count == 0)
    assert redact(clean)[0] == clean


PIECES = [
    AWS,
    JWT,
    PEM,
    PEM[:90],
    PEM[-70:],
    "password",
    "token",
    "secret",
    "api_key",
    "Authorization",
    "Bearer ",
    ": ",
    "=",
    "=>",
    '"',
    "'",
    "\\",
    "\n",
    " ",
    "--",
    "://",
    "user:",
    "@",
    "hunter2",
    "ghp_",
    BODY,
    "[redacted:",
    "(",
    ")",
    "{",
    "$",
    "%3D",
    "<",
    ">",
    "</",
    "curl -u ",
    "cookie",
    "İ",
    "é",
    "\ud800",
]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_scraps_are_stable(text: str) -> None:
    clean, _ = redact(text)
    assert redact(clean)[0] == clean
    assert AWS not in clean.split()
    redactor = Redactor()
    for part in (text, text):
        redactor.redact(part)


@settings(deadline=None, max_examples=100)
@given(
    st.text(st.characters(exclude_characters="\n\r-", exclude_categories=["Cs"]), max_size=60),
    st.sampled_from(["ghp_" + BODY[:36], AWS, "glpat-" + BODY[:20]]),
)
def test_a_token_is_found_in_any_surroundings(around: str, token: str) -> None:
    assert token not in redact(f"{around} {token} {around}")[0]
    assert token not in redact(f"{around}\n{token}\n{around}")[0]


BOMBS: dict[str, Callable[[int], str]] = {
    unit: (lambda n, unit=unit: unit * (n // len(unit)))  # type: ignore[misc]
    for unit in (
        "a",
        "A1",
        "=",
        "token=",
        "token='",
        'password="',
        "password: ",
        "--token ",
        "authorization:",
        "Authorization: Bearer ",
        "://",
        "http://a:b",
        "a@",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n",
        "MIIEpAIBAAKCAQEAMIIEpAIBAAKCAQEA\n",
        "eyJ",
        "eyJabcdefgh.",
        "ghp_",
        "sk-",
        "sk-a",
        "abcdefghijklmnop/",
        "abcdefghijklmnop-",
        "QUtJQUlPU0ZPRE5ON0VYQU1QTEU=",
        "cookie: a=",
        "cookie:",
        "curl -u a:b ",
        "mysql ",
        "mysql -p",
        "login a password ",
        "<password>",
        "$2b$",
        "[redacted:token]",
        "\\",
        "\\n",
        'password\\": \\"',
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc def\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n",
        "-----BEGIN ",
        "--password=",
        "token : ",
        "password ",
        "<password>x",
        "secret_key=aaaaaaaaaaaa&",
        "lorem ipsum dolor ",
    )
}
RANDOM = random.Random(7).randbytes(1 << 18)
BOMBS |= {
    "one base64 run": lambda n: base64.b64encode(RANDOM).decode()[:n],
    "base64 in lines": lambda n: base64.encodebytes(RANDOM).decode()[:n],
    "base64 of words": lambda n: base64.b64encode(b"ordinary words " * (n // 15)).decode()[:n],
    "base64 of a secret": lambda n: base64.b64encode(b"password: hunter2 " * (n // 18)).decode()[:n],
    "base64 in pieces": lambda n: " ".join(base64.b64encode(RANDOM[i : i + 18]).decode() for i in range(0, n, 24))[:n],
    "one hex run": lambda n: RANDOM.hex()[:n],
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=[repr(unit) for unit in BOMBS])
def test_time_grows_with_the_length(make: Callable[[int], str]) -> None:
    small, large = (min(_seconds(make(size)) for _ in range(2)) for size in (1 << 14, 1 << 18))
    assert large < max(28 * small, 0.3), (small, large)


def _seconds(text: str) -> float:
    start = time.process_time()
    redact(text)
    return time.process_time() - start
