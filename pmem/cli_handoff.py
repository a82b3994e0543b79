"""Hand the live bank to a later session, or seed a bank from the newest handoff.

pmem handoff export [--session ID]            writes a redacted snapshot of the live bank (knowledge and procedural, never status)
pmem handoff seed [FILE] [--session ID]       puts the newest (or the named) snapshot into the live session, equal entries once

Both speak to the process that holds the session (the hook daemon); a session inside a program of yours is handed over with
`pmem.handoff.export_handoff` and `pmem.handoff.seed`.
"""

from pathlib import Path
from typing import Any

from pmem.cli_output import command_parser, console, print_json, settings_of
from pmem.errors import UserError
from pmem.handoff import export_handoff, newest_handoff, read_handoff
from pmem.live import ask
from pmem.settings import Settings
from pmem.snapshot import BankState


def run(arguments: list[str]) -> int:
    parser = command_parser("handoff", __doc__)
    parser.add_argument("action", choices=["export", "seed"])
    parser.add_argument("file", nargs="?", type=Path, help="handoff file to seed (default: the newest)")
    parser.add_argument("--session", default=None, metavar="ID", help="live session (default: the newest)")
    options = parser.parse_args(arguments)
    settings = settings_of(options)
    if not settings.enabled:
        raise UserError("memory is disabled (enabled: false), so nothing is handed over; set enabled: true first")
    found = _export(settings, options.session) if options.action == "export" else _seed(settings, options.file, options.session)
    if options.json:
        print_json(found)
    else:
        console().print(found["message"], markup=False)
    return 0


def _export(settings: Settings, session_id: str | None) -> dict[str, Any]:
    session = _live_session(settings, session_id)
    path = export_handoff(BankState.model_validate(session["bank"]), settings, session_id=str(session["session_id"]))
    if path is None:
        raise UserError(f"the bank of session {session['session_id']} holds no knowledge or procedural entry to hand over")
    return {"path": str(path), "session_id": session["session_id"], "message": f"wrote {path}"}


def _seed(settings: Settings, file: Path | None, session_id: str | None) -> dict[str, Any]:
    path = file or newest_handoff(settings)
    if path is None:
        raise UserError(f"no handoff stands in {settings.handoff_dir}; run `pmem handoff export` in the earlier session")
    read_handoff(path)
    reply = ask(settings, {"op": "seed", "session_id": session_id, "path": str(path.resolve())})
    if reply is None:
        raise UserError("no live session answers; start the agent with the memory hook, then seed")
    if "error" in reply:
        raise UserError(str(reply["error"]))
    return {
        **reply,
        "path": str(path),
        "message": f"seeded {reply['seeded']} entries from {path}, {reply['skipped']} stood there already",
    }


def _live_session(settings: Settings, session_id: str | None) -> dict[str, Any]:
    reply = ask(settings, {"op": "inspect"})
    sessions = [session for session in (reply or {}).get("sessions", []) if session.get("enabled")]
    if not sessions:
        raise UserError("no live session answers; a bank lives and dies with its session, start the agent with the memory hook")
    for session in reversed(sessions):
        if session_id in (None, session["session_id"]):
            return dict(session)
    raise UserError(f"no live session {session_id!r}; live are {', '.join(s['session_id'] for s in sessions)}")
