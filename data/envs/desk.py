"""Family `desk` (held out): a service desk bound by policy, with a tool API over a JSON database in the manner of tau-bench.

Tools, not bash: each reads and writes `db.json` in this process; a refusal is an error result, as an API would give it.
"""

import json
from collections.abc import Mapping
from typing import Any

from data.envs.base import SLOT, Act, Mechanism, Probe, Refused, Tool, choose, draw
from data.envs.finished import Finished
from data.envs.script import Deliverable, Discovery, Offer, subjects
from data.envs.tools import queue_stages
from data.phrasing import Kind, kind, words
from pmem.canonical import canonical_json

NAME = "desk"
PEOPLE = words("adams baker clark davis evans foley grant hayes irwin jones keane lopez mason nolan owens price")
ACCOUNTS = ("a11", "a12", "a13", "a14", "a15", "a16")
DB = ("db.json",)

REFUND = kind("refund", "refund refunded to method", ("card", "voucher", "wallet", "transfer"))
CARRIER = kind("carrier", "ship shipped by carrier", ("courier", "post", "freight", "rider"))
STATUS = kind("status", "close closed as status", ("solved", "declined", "merged", "deferred"))
CHANNEL = kind("channel", "answer answered over channel", ("mail", "phone", "chat", "letter"))
DESK = kind("desk", "route routed to desk", ("desk1", "desk2", "desk3", "desk4"))
CHECK = kind("check", "verify verified by check", ("pin", "photo", "callback", "token"))
CHARGE = kind("charge", "reverse reversed on account", ACCOUNTS)
NEXT = kind("next", "call called on account", ACCOUNTS)
TOPICS = (("refund", REFUND), ("shipment", CARRIER), ("ticket", STATUS), ("query", CHANNEL))


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    desk, good = choose(DESK.words, NAME, seed, "desk"), choose(CHECK.words, NAME, seed, "check")
    bad = choose([word for word in CHECK.words if word != good], NAME, seed, "bad check")
    accounts = sorted(ACCOUNTS, key=lambda name: draw(NAME, seed, "account", name))
    database: dict[str, Any] = {
        "records": {},
        "reversed": [],
        "called": [],
        "verified": [],
        "routed": [],
        "policy": f"A complaint is routed to desk {desk}.",
        "desks": [desk] if "grounding" in bound else list(DESK.words),
        "checks": [good] if "failure_loop" in bound else list(CHECK.words),
        "bad": bad,
        "double": accounts[4] if "diagnosis" in bound else None,
        "order": accounts[:3] if "progress" in bound else [],
    }
    return Offer(
        title="Work through the service desk's cases.",
        files={"db.json": canonical_json(database)},
        tools=TOOLS,
        deliverables=[_recorded(place, name) for place, name in enumerate(subjects(PEOPLE, size))],
        discoveries=_discoveries(desk, good, bad, accounts),
        first=_call("first", "count_cases", goal="count the cases"),
        look=_call("look", "count_cases", goal="look around again"),
        review=_call("review", "count_cases", goal="look over the cases"),
        finish=_call("finish", "end_shift", goal="end the shift"),
        finish_probe=Probe("done", lambda end: str(_database(end).get("ended")), "True"),
    )


def _count_cases(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    return f"{len(database['records'])} records"


def _end_shift(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    database["ended"] = True
    return "ended"


def _get_policy(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    return str(database["policy"])


def _record(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    database["records"][args["case"]] = args["value"]
    return "recorded"


def _route(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    if args["desk"] not in database["desks"]:
        raise Refused(f"no desk {args['desk']} takes complaints")
    database["routed"].append(args["complaint"])
    return "routed"


def _verify(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    if args["check"] not in database["checks"]:
        raise Refused(f"customer: check {database['bad']} failed here; verify customer by check {database['checks'][0]}")
    database["verified"].append(args["customer"])
    return "verified"


def _find_double(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    return f"the double charge is on account {database['double']}" if database["double"] else "no double charge"


def _reverse(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    database["reversed"].append(args["account"])
    return "reversed"


def _call_account(database: dict[str, Any], args: Mapping[str, Any]) -> str:
    if database["order"] and args["account"] in database["called"]:
        raise Refused(f"call: {args['account']} is through already")
    database["called"].append(args["account"])
    left = [name for name in database["order"] if name not in database["called"]]
    return f"through; call to take next: {left[0]}" if left else "through"


TOOLS: dict[str, Tool] = {
    "count_cases": _count_cases,
    "end_shift": _end_shift,
    "get_policy": _get_policy,
    "record": _record,
    "route": _route,
    "verify": _verify,
    "find_double_charge": _find_double,
    "reverse_charge": _reverse,
    "call_account": _call_account,
}


def _call(name: str, tool: str, *, goal: str, fails: bool = False, **args: str) -> Act:
    return Act(name, json.dumps(args), tool=tool, goal=goal, fails=fails, reads=DB)


def _database(end: Finished) -> dict[str, Any]:
    return dict(json.loads(end.text("db.json") or "{}"))


def _recorded(place: int, name: str) -> Deliverable:
    topic, of = TOPICS[place % len(TOPICS)]
    subject = f"{name} {topic}"
    command = json.dumps({"case": subject, "value": SLOT})
    return Deliverable(
        subject,
        of,
        command,
        lambda code: Probe(subject, lambda end: str(_database(end)["records"].get(subject)), code),
        DB,
        tool="record",
    )


def _used(subject: str, of: Kind, tool: str, args: dict[str, str], log: str, entry: str = SLOT) -> Deliverable:
    """A tool call that leaves `entry` (`<V>` = the code) in a list of the database."""
    return Deliverable(
        subject,
        of,
        json.dumps(args),
        lambda code: Probe(subject, lambda end: str(entry.replace(SLOT, code) in _database(end)[log]), "True"),
        DB,
        tool=tool,
    )


def _discoveries(desk: str, good: str, bad: str, accounts: list[str]) -> list[Discovery]:
    routes = tuple(
        _used(f"{part} complaint", DESK, "route", {"complaint": part, "desk": SLOT}, "routed", part) for part in ("old", "new")
    )
    checks = tuple(
        _used(f"{part} customer", CHECK, "verify", {"customer": part, "check": SLOT}, "verified", part)
        for part in ("private", "business")
    )
    reverses = (_used("double charge", CHARGE, "reverse_charge", {"account": SLOT}, "reversed"),)
    calls = tuple(_used("call next in line", NEXT, "call_account", {"account": SLOT}, "called") for _ in range(3))
    return [
        Discovery(
            "grounding",
            "complaint",
            DESK,
            _call("read policy", "get_policy", goal="read the policy"),
            ((desk, f"A complaint is routed to desk {desk}."),),
            routes,
        ),
        Discovery(
            "failure_loop",
            "customer",
            CHECK,
            _call("try check", "verify", goal=f"verify a trial customer by {bad}", fails=True, customer="trial", check=bad),
            ((good, f"customer: check {bad} failed here; verify customer by check {good}"),),
            checks,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "double charge",
            CHARGE,
            _call("find double", "find_double_charge", goal="look for a double charge"),
            ((accounts[4], f"the double charge is on account {accounts[4]}"),),
            reverses,
        ),
        Discovery("progress", "call", NEXT, None, queue_stages("call", accounts[:3]), calls, rivals=tuple(accounts[:3])),
    ]
