"""Lessons that outlive a session: a person lists, approves, rejects, edits, links, merges and undoes them.

pmem lessons list [--state proposed] [--kind guidance] [--here]     what there is, newest first
pmem lessons show ID                                               one record with its evidence, reviews and relations
pmem lessons search WORDS                                          full text
pmem lessons approve ID [--reason TEXT] [--global]                 let it be delivered; --global widens it to every repository
pmem lessons reject ID [--reason TEXT]                             refuse a proposal; it stays, with the reason
pmem lessons edit ID [--title T] [--body B] [--tags a,b] [--collection C] [--revision N | --expect BODY]
                                                                   word it anew; refused when it changed meanwhile
pmem lessons withdraw ID · delete ID [--yes]                       no longer delivered · gone (undo brings it back)
pmem lessons link ID TASK [--relation linked_task] · unlink ID TASK
pmem lessons history [ID] · undo CHANGE                            every change, and back
pmem lessons add KIND TITLE [BODY] [--collection C] [--task T] [--global]   an entry of your own
pmem lessons review FILE                                            a candidate review (JSON: candidates, kept, rejected, purpose)
pmem lessons import FILE · export [FILE]                           JSON lines of pmem.lesson/1
pmem lessons start [--folder DIR]                                  what a session here would be told, and what is cut
pmem lessons deliveries                                            what was delivered to whom
pmem lessons receipt CALL --task T --tool NAME --status ok [SUMMARY] · receipts TASK [--attempt A] [--budget N]
                                                                   keep what a call came to · a task's, for a completion check
pmem lessons remember TITLE [BODY] --task T --call C…              a fact that successful calls of this attempt verified
pmem lessons select WORDS… [--tag T] (--days N | --all) [--model]  relevance-required material that bears on a request
pmem lessons case FILE WORDS… --expect ID… --family F --all        freeze a request for `python -m eval.selection cases=FILE`
pmem lessons agents TASK FOLDER [--replace]                        assemble AGENTS.md from linked instructions
pmem lessons publish FOLDER PATH… --title T [--base ID]            a checkpoint: content-addressed, with its bases
pmem lessons materialize ID FOLDER                                 bring a checkpoint's files, bases first
pmem lessons merge OLD [--into NEW] [--apply --backup DIR --expect DIGEST]  another store into this one; a dry run by default
pmem lessons policy TAG [--apply]                                  records of a tag enter prompts only through selection
pmem lessons serve [--port 0]                                      the local page (extra `lessons`)
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from pmem.cli_output import command_parser, settings_of
from pmem.lessons import command_files, command_records, command_session
from pmem.lessons.records import COLLECTIONS, KINDS, RELATIONS

Action = Callable[[argparse.Namespace], int]
PERSON = "--by"


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    for name, value in vars(options).items():
        setattr(options, name, _unicode(value))
    options.loaded = settings_of(options)
    action: Action = options.action
    return action(options)


def _unicode(value: object) -> object:
    """An argument's words; bytes that are no UTF-8 become replacement characters."""
    if isinstance(value, list):
        return [_unicode(part) for part in value]
    return os.fsencode(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _number(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    number.__name__ = f"number from {least} to {most}"
    return number


_COUNT = _number(1, 1_000_000)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("lessons", __doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for machines")
    common.add_argument("--settings", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    common.add_argument(PERSON, default=None, metavar="NAME", help="who decides (default: the login name)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: Action, *positional: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[common])
        made.set_defaults(action=action)
        for argument in positional:
            made.add_argument(argument)
        return made

    _add_records(command)
    _add_ways(command)
    _add_session(command)
    _add_files(command)
    return parser


_Command = Callable[..., argparse.ArgumentParser]


def _add_records(command: _Command) -> None:
    listed = command("list", command_records.list_records)
    listed.add_argument("--state", choices=["proposed", "approved", "rejected", "withdrawn"])
    listed.add_argument("--kind", choices=KINDS)
    listed.add_argument("--here", action="store_true", help="this repository and global ones only")
    listed.add_argument("--limit", type=_COUNT, default=50)
    command("show", command_records.show, "id")
    command("search", command_records.search_records).add_argument("words", nargs="+")
    for name in ("approve", "reject", "withdraw", "delete"):
        decided = command(name, command_records.DECISIONS[name], "id")
        decided.add_argument("--reason")
        if name == "approve":
            decided.add_argument("--global", dest="everywhere", action="store_true", help="widen it to every repository")
        if name == "delete":
            decided.add_argument("--yes", action="store_true", help="do not ask")
    edited = command("edit", command_records.edit, "id")
    for name in ("--title", "--body", "--tags", "--collection", "--reason"):
        edited.add_argument(name, choices=list(COLLECTIONS) if name == "--collection" else None)
    edited.add_argument("--expect", metavar="BODY", help="the body you saw; refused when it is another by now")
    edited.add_argument("--revision", type=_number(0, 1 << 62), help="the revision you saw; refused when it is another by now")
    for name, action in (("link", command_records.link_record), ("unlink", command_records.unlink_record)):
        command(name, action, "id", "target").add_argument("--relation", choices=RELATIONS, default="linked_task")
    seen = command("history", command_records.show_history)
    seen.add_argument("id", nargs="?")
    seen.add_argument("--limit", type=_COUNT, default=50)
    command("undo", command_records.undo_change).add_argument("change", type=_number(0, 1 << 62))


def _add_ways(command: _Command) -> None:
    added = command("add", command_records.add_record)
    added.add_argument("kind", choices=["guidance", "preference", "session_memory", "instruction", "directory"])
    added.add_argument("title")
    added.add_argument("body", nargs="?", default="")
    added.add_argument("--collection", choices=list(COLLECTIONS))
    added.add_argument("--tags", default="")
    added.add_argument("--task", action="append", default=[])
    added.add_argument("--session", default=None, help="the session that a session_memory belongs to")
    added.add_argument("--folder", type=Path, default=Path(), help="a folder of its repository (default: this one)")
    added.add_argument("--global", dest="everywhere", action="store_true", help="for every repository")
    command("start", command_records.show_start).add_argument("--folder", type=Path, default=Path())
    command("deliveries", command_records.show_deliveries).add_argument("--limit", type=_COUNT, default=20)
    receipts = command("receipts", command_records.show_receipts, "task")
    receipts.add_argument("--attempt")
    receipts.add_argument("--budget", type=_COUNT, default=800, help="tokens, counted as ceil(chars / 4)")
    policy = command("policy", command_records.policy, "tag")
    policy.add_argument("--apply", action="store_true", help="without it only the report")


def _add_session(command: _Command) -> None:
    kept = command("receipt", command_session.keep_receipt, "call")
    kept.add_argument("summary", nargs="?", default="")
    kept.add_argument("--tool", required=True)
    kept.add_argument("--status", required=True, choices=["ok", "error", "uncertain", "running"])
    fact = command("remember", command_session.remember_fact, "title")
    fact.add_argument("body", nargs="?", default="")
    fact.add_argument("--call", action="append", required=True, help="a call whose receipt verifies it")
    fact.add_argument("--tags", default="")
    for recorded in (kept, fact):
        recorded.add_argument("--task", required=True)
        recorded.add_argument("--attempt", default="1")
    asked = command("select", command_session.select_records)
    asked.add_argument("--model", action="store_true", help="ask the settings' chat or memory route which to keep")
    case = command("case", command_session.freeze_case)
    case.add_argument("file", type=Path)
    case.add_argument("--expect", action="append", default=[], metavar="ID", help="an id that a right selection keeps")
    case.add_argument("--family", default="own")
    for request in (asked, case):
        request.add_argument("words", nargs="+")
        request.add_argument("--tag", action="append", default=[], help="adds records of this tag; hides none")
        request.add_argument("--days", type=_days, default=None, help="only what was changed in the last N days")
        request.add_argument("--all", action="store_true", help="without a limit in time")
    for session in (kept, fact, asked, case):
        session.add_argument("--session", default="command", help="id of the session that asks")
        session.add_argument("--folder", type=Path, default=Path(), help="a folder of its repository (default: this one)")


def _days(text: str) -> float:
    if not 0 <= float(text) <= 100_000:
        raise ValueError(text)
    return float(text)


_days.__name__ = "number of days"


def _add_files(command: _Command) -> None:
    command("review", command_files.review_candidates).add_argument("file", type=Path)
    command("import", command_files.import_records).add_argument("file", type=Path)
    command("export", command_files.export_records).add_argument("file", type=Path, nargs="?")
    agents = command("agents", command_files.agents, "task")
    agents.add_argument("folder", type=Path)
    agents.add_argument("--replace", action="store_true", help="replace a file that pmem did not assemble")
    published = command("publish", command_files.publish_checkpoint)
    published.add_argument("folder", type=Path)
    published.add_argument("paths", nargs="+")
    published.add_argument("--title", required=True)
    published.add_argument("--base", action="append", default=[], metavar="ID")
    command("materialize", command_files.materialize_checkpoint, "id").add_argument("folder", type=Path)
    merged = command("merge", command_files.merge_stores)
    merged.add_argument("old", type=Path)
    merged.add_argument("--into", type=Path, help="the store to change (default: the settings' own)")
    merged.add_argument("--apply", action="store_true", help="without it only the report")
    merged.add_argument("--backup", type=Path, help="a new folder for copies of both stores")
    merged.add_argument("--expect", metavar="DIGEST", help="the target's digest from the report")
    served = command("serve", command_files.serve_page)
    served.add_argument("--port", type=_number(0, 65_535), default=0)
