"""Family `git`: preparing a release in a repository, with tags, branches, commit labels and a hook that refuses."""

from data.envs.base import Act, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer
from data.phrasing import kind

NAME = "git"
MODULES = ("parser", "lexer", "linker", "loader", "cache", "router", "mailer", "writer", "reader", "planner", "runner", "broker",
           "tracer", "sender", "packer", "signer")

STAGE = kind("stage", "tag tagged as stage", ("alpha", "beta", "gamma", "delta"))
LABEL = kind("label", "label labelled as label", ("fix", "docs", "chore", "perf"))
SPACE = kind("space", "branch branched under namespace", ("feature", "hotfix", "support", "topic"))
CREDIT = kind("credit", "credit credited to author", ("ana", "bo", "cleo", "dev"))
BASE = kind("base", "cut cut from base", ("next", "trunk", "devel", "canary"))
ROUTE = kind("route", "sync synced via route", ("rebase", "squash", "merge", "patch"))
FAULT = kind("fault", "mend mended in module", MODULES[:8])
QUEUE = kind("queue", "ship shipped with module", MODULES[8:])

HOOK = """#!/bin/bash
case "$(cat "$1")" in sync*) grep -q "via {good}" "$1" || {{ echo "hook: sync via {bad} failed; sync via {good}" >&2; exit 1; }};; esac
"""
SHIP = """#!/bin/bash
git rev-parse -q --verify "refs/tags/shipped-$1" > /dev/null && {{ echo "ship: module $1 is out already" >&2; exit 4; }}
git tag "shipped-$1"
for name in {order}; do [ -e ".git/refs/tags/shipped-$name" ] || {{ echo "out; release to ship next: $name"; exit; }}; done
"""


def offer(seed: int, num_acts: int) -> Offer:
    """Everything one seed of this family may use."""
    fault = choose(FAULT.words, NAME, seed, "fault")
    base, good = choose(BASE.words, NAME, seed, "base"), choose(ROUTE.words, NAME, seed, "route")
    bad = choose([word for word in ROUTE.words if word != good], NAME, seed, "bad route")
    order = sorted(QUEUE.words, key=lambda name: draw(NAME, seed, "order", name))[:4]
    files = {f"src/{name}.txt": "BROKEN\n" if name == fault else "fine\n" for name in MODULES[:8]}
    files |= {"RELEASING": f"A release is cut from base {base}.\n", "hooks/commit-msg": HOOK.format(good=good, bad=bad),
              "bin/ship": SHIP.format(order=" ".join(order))}
    return Offer(
        title="Prepare the release in this repository.", files=files, executable=("bin/ship", "hooks/commit-msg"),
        setup=f"git init -q --template= && git config core.hooksPath hooks && git add -A && git commit -qm start && git branch {base}",
        volatile=(".git/index", ".git/COMMIT_EDITMSG", ".git/logs/*"),
        deliverables=_deliverables(), discoveries=_discoveries(fault, base, good, bad, order),
        first=Act("first", "git branch --list", goal="list the branches", changes=False),
        look=Act("look", "git tag | wc -l", goal="look around again", changes=False),
        review=Act("review", "git log --oneline | wc -l", goal="look over the results", changes=False),
        finish=Act("finish", "git tag -f released", goal="mark the release as done"), finish_probe=Probe("git tag -l released", "released"))


def _deliverables() -> list[Deliverable]:
    return [(_staged, _labelled, _branched, _credited)[place % 4](name) for place, name in enumerate(MODULES)]


def _staged(name: str) -> Deliverable:
    return Deliverable(name, STAGE, f"git tag -f {name}-<V>", lambda code: Probe(f"git tag -l {name}-{code}", f"{name}-{code}"))


def _labelled(name: str) -> Deliverable:
    return Deliverable(name, LABEL, f'git commit -q --allow-empty -m "<V>: {name}"',
                       lambda code: Probe(f"git log -1 --format=%s --grep ': {name}$'", f"{code}: {name}"))


def _branched(name: str) -> Deliverable:
    return Deliverable(name, SPACE, f"git branch -f <V>/{name}",
                       lambda code: Probe(f"git branch --list {code}/{name} --format '%(refname:short)'", f"{code}/{name}"))


def _credited(name: str) -> Deliverable:
    return Deliverable(name, CREDIT, f'git commit -q --allow-empty --author "<V> <<V>@example.org>" -m "credit {name}"',
                       lambda code: Probe(f"git log -1 --format=%an --grep 'credit {name}$'", code))


def _discoveries(fault: str, base: str, good: str, bad: str, order: list[str]) -> list[Discovery]:
    cuts = tuple(Deliverable(f"{part} release", BASE, f"git tag -f {part}-cut <V>",
                             lambda code, part=part: Probe(f"git tag -l {part}-cut", f"{part}-cut")) for part in ("test", "final"))
    syncs = tuple(Deliverable(f"{part} sync", ROUTE, f'git commit -q --allow-empty -m "sync {part} via <V>"',
                              lambda code, part=part: Probe(f"git log -1 --format=%s --grep 'sync {part}'", f"sync {part} via {code}"))
                  for part in ("early", "late"))
    mends = (Deliverable("fault", FAULT, 'sed -i s/BROKEN/fine/ src/<V>.txt && git commit -qam "mend <V>"',
                         lambda code: Probe(f"cat src/{code}.txt", "fine")),)
    ships = tuple(Deliverable("release next in line", QUEUE, "bin/ship <V>",
                              lambda code: Probe(f"git tag -l shipped-{code}", f"shipped-{code}")) for _ in range(3))
    return [
        Discovery("grounding", "release", BASE, Act("read notes", "cat RELEASING", goal="read the release notes", changes=False),
                  ((base, f"A release is cut from base {base}."),), cuts),
        Discovery("failure_loop", "sync", ROUTE,
                  Act("try sync", f'git commit -q --allow-empty -m "sync trial via {bad}"', goal=f"try a sync via {bad}", fails=True),
                  ((good, f"hook: sync via {bad} failed; sync via {good}"),), syncs, rivals=(bad,)),
        Discovery("diagnosis", "fault", FAULT,
                  Act("find fault", "cd src && for f in $(grep -l BROKEN *); do echo the fault is in ${f%.txt}; done",
                      goal="find out where the fault is", changes=False),
                  ((fault, f"the fault is in {fault}"),), mends),
        Discovery("progress", "release", QUEUE, None,
                  tuple((name, f"The release to ship first: {name}." if place == 0 else f"release to ship next: {name}")
                        for place, name in enumerate(order[:3])), ships, rivals=tuple(order)),
    ]
