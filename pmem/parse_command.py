"""Read model answers as the runtime would.

pmem parse --jsonl < cases.jsonl     one JSON answer a line, in input order
pmem parse < answer.txt              one answer for the whole of standard input (ids are not checked: there is no bank)

A case: {"name": …, "text": what the model returned, "finish_reason": "stop" | "length" | null,
"bank": {"knowledge": {id: content}, "procedural": {id: content}}}; other keys are ignored.
An answer: {"name", "status": "ok" | "malformed", "reason", "ops": accepted verbs, "dropped",
"decision": "silence" | "reminder" | null, "reminder"}.
"""

import argparse
import io
import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from pmem.cli_output import OneSentence
from pmem.envelope import Malformed, parse_envelope, resolve
from pmem.errors import UserError
from pmem.snapshot import BankState, Entry, EntryKind

_KINDS: tuple[EntryKind, ...] = ("knowledge", "procedural")


def run(arguments: list[str]) -> int:
    """The command `pmem parse`."""
    first, _, rest = (__doc__ or "").partition("\n")
    parser = OneSentence(
        prog="pmem parse", description=first, epilog=rest.strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jsonl", action="store_true", help="one case a line instead of one text")
    parser.add_argument("--json", action="store_true", help="answers are JSON in any case")
    parser.add_argument("--finish-reason", choices=["stop", "length"], default=None, help="how the text ended (without --jsonl)")
    options = parser.parse_args(arguments)
    if options.jsonl:
        answer_lines(_standard_input(), sys.stdout)
    else:
        case = {"name": None, "text": _standard_input().read(), "finish_reason": options.finish_reason}
        print(json.dumps(answer(case, where="standard input")))
    return 0


def answer_lines(lines: Iterable[str], out: TextIO) -> None:
    """Write one answer for each case. Raises UserError naming the line of the first case that cannot be read."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"standard input, line {number}: not JSON ({error}); give one JSON object a line") from None
        out.write(json.dumps(answer(case, where=f"standard input, line {number}")) + "\n")
        out.flush()


def answer(case: Any, *, where: str) -> dict[str, Any]:
    """The answer to one case (docs/design/files.md, last paragraph). Raises UserError that begins with `where`."""
    if not isinstance(case, dict) or not isinstance(case.get("text"), str | None) or "text" not in case:
        raise UserError(f"{where}: a case is a JSON object with the key 'text' (a string)")
    bank = _bank(case.get("bank"), where)
    envelope = parse_envelope(case["text"] or "", finish_reason=case.get("finish_reason"))
    found: dict[str, Any] = {
        "name": case.get("name"),
        "status": "ok",
        "reason": envelope.reason,
        "ops": [],
        "dropped": 0,
        "decision": None,
        "reminder": None,
    }
    if isinstance(envelope, Malformed):
        return found | {"status": "malformed"}
    resolved = resolve(envelope, bank)
    return found | {
        "ops": [operation.op for operation in resolved.operations],
        "dropped": resolved.dropped,
        "decision": "reminder" if resolved.reminder else "silence",
        "reminder": resolved.reminder,
    }


def _bank(given: Any, where: str) -> BankState:
    """`{knowledge: {id: content}, procedural: {id: content}}` as a bank."""
    entries: list[Entry] = []
    for kind in _KINDS:
        contents = given.get(kind) if isinstance(given, dict) else given
        if not isinstance(contents, dict | None):
            raise UserError(f"{where}: 'bank' must hold 'knowledge' and 'procedural', each an object of id and content")
        for name, content in (contents or {}).items():
            entries.append(Entry(id=name, kind=kind, content=str(content), created=0, touched=0))
    return BankState(entries=tuple(entries))


def _standard_input() -> TextIO:
    """UTF-8 whatever the locale; a byte that is none becomes U+FFFD. Lines end at line feeds only."""
    if not hasattr(sys.stdin, "buffer"):
        return sys.stdin
    return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace", newline="\n")
