"""Coverage-guided fuzzing of the three places that read text nobody controls: envelope parser, redaction, settings loader.

    pip install atheris
    nice -n 10 python benchmarks/fuzz_atheris.py -max_total_time=1200 -max_len=4096

No exception but `UserError` from the settings loader, no broken law (below), no text of 4 KiB that takes parser or redaction
a second of processor time. libFuzzer's own options follow the command; a folder given last keeps the corpus.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["pmem"]):
    from pmem.envelope import Envelope, citations, parse_envelope, render_envelope, resolve
    from pmem.envelope_text import clean_content
    from pmem.errors import UserError
    from pmem.redaction import Redactor, redact
    from pmem.settings import load_settings
    from pmem.snapshot import BankState, Entry

MAX_SECONDS = 1.0
CLOSER = re.compile(r"</\s*\w|<\s*/\s*[\w:.-]+\s*>")
BANK = BankState(entries=(Entry(id="tm-k-1", kind="knowledge", content="x", created=0, touched=0),))
FINISH_REASONS = ("stop", "length", None)
SHARED = Path(__file__).parents[2] / "shared" / "cases" / "envelope.jsonl"
SETTINGS = Path(tempfile.mkdtemp(prefix="pmem-fuzz-")) / "settings.yaml"


def parser(text: str, choice: int) -> None:
    """Total; a cut thought never speaks; what is read is rendered and read back the same."""
    envelope = parse_envelope(text, finish_reason=FINISH_REASONS[choice % 3])
    if not isinstance(envelope, Envelope):
        return
    resolved = resolve(envelope, BANK)
    assert len(resolved.operations) + resolved.dropped <= 8
    assert all(op.content is None or op.content == clean_content(op.content) != "" for op in envelope.operations)
    if envelope.reminder is not None:
        assert envelope.reminder.strip() and envelope.reason is None and not CLOSER.search(envelope.reminder)
        citations(envelope.reminder)
    again = parse_envelope(render_envelope(envelope.operations, None))
    assert isinstance(again, Envelope) and again.operations == envelope.operations


def redaction(text: str, choice: int) -> None:
    """Total; never longer work on a second pass; a stream is as safe as its parts."""
    clean, count = redact(text)
    assert (clean == text) == (count == 0)
    redact(clean)
    redactor = Redactor()
    place = choice % (len(text) + 1)
    redactor.redact(text[:place])
    redactor.redact(text[place:])


def settings_file(raw: bytes) -> None:
    """Settings or one sentence."""
    SETTINGS.write_bytes(raw)
    try:
        load_settings(SETTINGS, environ={})
    except UserError as error:
        assert "\n" not in str(error)


def one_input(raw: bytes) -> None:
    """First byte: which target; second: a choice inside it; the rest: the text."""
    if len(raw) < 2:
        return
    text = raw[2:].decode("utf-8", "surrogateescape" if raw[0] & 64 else "replace")
    if raw[0] % 8 == 7:
        settings_file(raw[2:])  # a person's own file: no law about time (PyYAML is quadratic in nested brackets)
        return
    start = time.process_time()
    (parser if raw[0] % 8 < 4 else redaction)(text, raw[1])
    assert time.process_time() - start < MAX_SECONDS, f"{len(raw)} bytes took too long"


def seed_corpus(folder: Path) -> None:
    """The shared cases and a few secrets, so that the search does not begin at nothing."""
    import json

    texts = [json.loads(line)["text"] for line in SHARED.read_text().splitlines()] if SHARED.exists() else []
    for number, text in enumerate(texts):
        (folder / f"case{number}").write_bytes(bytes([number % 4, number % 3]) + text.encode())
    for number, text in enumerate(("password: hunter2", "https://u:p4@h", "Authorization: Bearer abc123", "sk-" + "a1" * 20)):
        (folder / f"secret{number}").write_bytes(bytes([4 + number % 3, 5]) + text.encode())
    (folder / "settings").write_bytes(b"\x07\x00enabled: false\nroute:\n  grammar: true\n")


def main() -> None:
    """Run libFuzzer until it is told to stop or finds something."""
    arguments = list(sys.argv)
    if arguments[-1].startswith("-") or len(arguments) == 1:
        corpus = Path(tempfile.mkdtemp(prefix="pmem-corpus-"))
        seed_corpus(corpus)
        arguments.append(str(corpus))
    os.environ.pop("PMEM_SETTINGS", None)
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
