"""Family `git`: preparing a release in a repository, with tags, branches, commit labels and a hook that refuses."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.phrasing import kind, words

NAME = "git"
MODULES = words("parser lexer linker loader cache router mailer writer reader planner runner broker tracer sender packer signer")

STAGE = kind("stage", "tag tagged as stage", ("alpha", "beta", "gamma", "delta"))
LABEL = kind("label", "label labelled as label", ("fix", "docs", "chore", "perf"))
SPACE = kind("space", "branch branched under namespace", ("feature", "hotfix", "support", "topic"))
CREDIT = kind("credit", "credit credited to author", ("ana", "bo", "cleo", "dev"))
BASE = kind("base", "cut cut from base", ("next", "trunk", "devel", "canary"))
ROUTE = kind("route", "sync synced via route", ("rebase", "squash", "merge", "patch"))
FAULT = kind("fault", "mend mended in module", MODULES[:8])
QUEUE = kind("queue", "ship shipped with module", MODULES[8:])

START = ".git/refs/tags/v0"
MAIN = (".git/HEAD", ".git/refs/heads/main", "src/", "hooks/")
HOOK = """#!/bin/bash
case "$(cat "$1")" in
sync*) grep -q "via {good}" "$1" || {{ echo "hook: sync via {bad} failed; sync via {good}" >&2; exit 1; }} ;;
esac
"""
SHIP = """#!/bin/bash
git rev-parse -q --verify "refs/tags/shipped-$1" > /dev/null && {{ echo "ship: module $1 is out already" >&2; exit 4; }}
git tag "shipped-$1" v0
for name in {order}; do [ -e ".git/refs/tags/shipped-$name" ] || {{ echo "out; release to ship next: $name"; exit; }}; done
"""


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    fault = choose(FAULT.words, NAME, seed, "fault")
    base, good = choose(BASE.words, NAME, seed, "base"), choose(ROUTE.words, NAME, seed, "route")
    bad = choose([word for word in ROUTE.words if word != good], NAME, seed, "bad route")
    order = sorted(QUEUE.words, key=lambda name: draw(NAME, seed, "order", name))[:4]
    broken = fault if "diagnosis" in bound else None
    files = {f"src/{name}.txt": "BROKEN\n" if name == broken else "fine\n" for name in MODULES[:8]}
    files |= {
        "RELEASING": f"A release is cut from base {base}.\n",
        "hooks/commit-msg": HOOK.format(good=good if "failure_loop" in bound else "", bad=bad),
        "bin/ship": SHIP.format(order=" ".join(order)) if "progress" in bound else "#!/bin/bash\necho out\n",
    }
    bases = [base] if "grounding" in bound else list(BASE.words)
    return Offer(
        title="Prepare the release in this repository.",
        files=files,
        executable=("bin/ship", "hooks/commit-msg"),
        setup="git init -q --template= && git config core.hooksPath hooks && git add -A && git commit -qm start && git tag v0 "
        f"&& for name in {' '.join(bases)}; do git branch $name; done",
        volatile=(".git/index", ".git/COMMIT_EDITMSG", ".git/NOTES_EDITMSG", ".git/logs/", ".git/objects/"),
        lasting=(".git/objects/",),
        deliverables=[
            (_staged, _labelled, _branched, _credited)[place % 4](name) for place, name in enumerate(subjects(MODULES, size))
        ],
        discoveries=_discoveries(fault, base, good, bad, order),
        first=Act("first", "git branch --list", goal="list the branches", reads=(".git/HEAD", ".git/refs/heads/")),
        look=Act("look", "ls src | wc -l", goal="look around again", reads=("src/",)),
        review=Act("review", "git log --oneline main | wc -l", goal="look over the results", reads=MAIN),
        finish=Act("finish", "git tag -f released v0", goal="mark the release as done", reads=(START,)),
        finish_probe=Probe("done", lambda end: str(end.git_ref("tags/released") != ""), "True"),
    )


def _staged(subject: str) -> Deliverable:
    name = slug(subject)
    return Deliverable(
        subject,
        STAGE,
        f"git tag -f {name}-<V> v0",
        lambda code: Probe(name, lambda end: str(end.git_ref(f"tags/{name}-{code}") != ""), "True"),
        (START,),
    )


def _labelled(subject: str) -> Deliverable:
    name = slug(subject)
    return Deliverable(
        subject,
        LABEL,
        f"git notes --ref {name} add -f -m <V> v0",
        lambda code: Probe(name, lambda end: end.git_tree_blob(end.git_ref(f"notes/{name}")), code),
        (START, f".git/refs/notes/{name}"),
    )


def _branched(subject: str) -> Deliverable:
    name = slug(subject)
    return Deliverable(
        subject,
        SPACE,
        f"git branch -f <V>/{name} v0",
        lambda code: Probe(name, lambda end: str(end.git_ref(f"heads/{code}/{name}") != ""), "True"),
        (START,),
    )


def _credited(subject: str) -> Deliverable:
    name = slug(subject)
    tag = f"{name}-owner"
    return Deliverable(
        subject,
        CREDIT,
        f"git tag -f -m <V> {tag} v0",
        lambda code: Probe(name, lambda end: end.git_object(end.git_ref(f"tags/{tag}")).rpartition("\n\n")[2].strip(), code),
        (START, f".git/refs/tags/{tag}"),
    )


def _cut(part: str, reads: tuple[str, ...]) -> Deliverable:
    return Deliverable(
        f"{part} release",
        BASE,
        f"git tag -f {part}-cut <V>",
        lambda code: Probe("cut", lambda end: str(end.git_ref(f"tags/{part}-cut") != ""), "True"),
        reads,
    )


def _sync(part: str) -> Deliverable:
    return Deliverable(
        f"{part} sync",
        ROUTE,
        f'git commit -q --allow-empty -m "sync {part} via <V>"',
        lambda code: Probe("sync", lambda end: str(f"sync {part} via {code}" in end.git_subjects("heads/main")), "True"),
        MAIN,
    )


def _discoveries(fault: str, base: str, good: str, bad: str, order: list[str]) -> list[Discovery]:
    bases = tuple(f".git/refs/heads/{word}" for word in BASE.words)
    shipped = tuple(f".git/refs/tags/shipped-{name}" for name in QUEUE.words)
    cuts = tuple(_cut(part, (*bases, f".git/refs/tags/{part}-cut")) for part in ("test", "final"))
    syncs = tuple(_sync(part) for part in ("early", "late"))
    mends = (
        Deliverable(
            "fault",
            FAULT,
            'sed -i s/BROKEN/fine/ src/<V>.txt && git commit -q --allow-empty -am "mend <V>"',
            lambda code: Probe("fault", lambda end: end.text(f"src/{code}.txt"), "fine"),
            MAIN,
        ),
    )
    ships = tuple(
        Deliverable(
            "release next in line",
            QUEUE,
            "bin/ship <V>",
            lambda code: Probe("ship", lambda end: str(end.git_ref(f"tags/shipped-{code}") != ""), "True"),
            ("bin/", START, *shipped),
        )
        for _ in range(3)
    )
    return [
        Discovery(
            "grounding",
            "release",
            BASE,
            Act("read notes", "cat RELEASING", goal="read the release notes", reads=("RELEASING",)),
            ((base, f"A release is cut from base {base}."),),
            cuts,
        ),
        Discovery(
            "failure_loop",
            "sync",
            ROUTE,
            Act(
                "try sync",
                f'git commit -q --allow-empty -m "sync trial via {bad}"',
                goal=f"try a sync via {bad}",
                fails=True,
                reads=MAIN,
            ),
            ((good, f"hook: sync via {bad} failed; sync via {good}"),),
            syncs,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "fault",
            FAULT,
            Act(
                "find fault",
                "cd src && for f in $(grep -l BROKEN *); do echo the fault is in ${f%.txt}; done",
                goal="find out where the fault is",
                reads=("src/",),
            ),
            ((fault, f"the fault is in {fault}"),),
            mends,
        ),
        Discovery(
            "progress",
            "release",
            QUEUE,
            None,
            tuple(
                (name, f"The release to ship first: {name}." if place == 0 else f"release to ship next: {name}")
                for place, name in enumerate(order[:3])
            ),
            ships,
            rivals=tuple(order),
        ),
    ]
