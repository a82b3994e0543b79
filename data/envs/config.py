"""Family `config`: services set up in INI files with sed, started and checked by a real Python program."""

from collections.abc import Sequence

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import present, queue_stages, taken
from data.phrasing import Kind, kind, words

NAME = "config"
SERVICES = words(
    "gateway billing search upload report notify ledger catalog worker proxy store feed login archive monitor export"
)
NODES = words("ant bee cat dog elk fox")

PORT = kind("port", "bind bound to port", ("8110", "8120", "8130", "8140"))
VERBOSITY = kind("verbosity", "log logged at verbosity", ("debug", "notice", "warning", "silent"))
ZONE = kind("zone", "place placed in zone", ("red", "blue", "green", "amber"))
LIMIT = kind("limit", "cap capped at limit", ("50", "100", "200", "400"))
LINK = kind("link", "reach reached over link", ("eth1", "eth2", "wlan1", "tun1"))
MODEL = kind("model", "start started as model", ("thread", "process", "fiber", "serial"))
STALLED = kind("stalled", "free freed on node", NODES)
NEXT = kind("next", "roll rolled on node", NODES)
KEYS = (("port", PORT), ("verbosity", VERBOSITY), ("zone", ZONE), ("limit", LIMIT))

APP = """import configparser, pathlib, sys
command, value, *rest = sys.argv[1:]
links, models, order = {links}, {models}, {order}
done = pathlib.Path("rolled.txt")
if command == "reach":
    if value not in links:
        raise OSError("link " + value + " is down")
elif command == "start":
    if value not in models:
        raise RuntimeError("start as {bad} failed; start as model {good}")
elif command == "roll":
    seen = done.read_text().split()
    if order and value in seen:
        raise ValueError("roll: node " + value + " is through already")
    done.write_text(" ".join([*seen, value]))
    for name in [name for name in order if name not in [*seen, value]][:1]:
        print("through; roll to take next:", name)
if rest:
    pathlib.Path(command + "_" + rest[0]).write_text(value)
"""


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    link, good = choose(LINK.words, NAME, seed, "link"), choose(MODEL.words, NAME, seed, "model")
    bad = choose([word for word in MODEL.words if word != good], NAME, seed, "bad model")
    nodes = sorted(NODES, key=lambda name: draw(NAME, seed, "node", name))
    app = APP.format(
        links=[link] if "grounding" in bound else list(LINK.words),
        models=[good] if "failure_loop" in bound else list(MODEL.words),
        order=nodes[:3] if "progress" in bound else [],
        bad=bad,
        good=good,
    )
    names = subjects(SERVICES, size)
    files = {f"conf/{slug(name)}.ini": "[service]\nport=1\nverbosity=x\nzone=x\nlimit=1\n" for name in names}
    files |= {f"nodes/{node}": "stalled\n" if "diagnosis" in bound and node == nodes[4] else "up\n" for node in NODES}
    files |= {"app.py": app, "OPS": f"The peer is reached over link {link}.\n", "rolled.txt": ""}
    return Offer(
        title="Set up the services in conf/.",
        files=files,
        deliverables=[_setting(place, name) for place, name in enumerate(names)],
        discoveries=_discoveries(link, good, bad, nodes),
        first=Act("first", "ls nodes | wc -l", goal="count the nodes", reads=("nodes/",)),
        look=Act("look", "ls nodes | head -2", goal="look around again", reads=("nodes/",)),
        review=Act("review", "wc -l < app.py", goal="look over the settings", reads=("app.py",)),
        finish=Act("finish", "touch READY", goal="mark the services as ready", reads=()),
        finish_probe=Probe("done", lambda end: str("READY" in end.state.entries), "True"),
    )


def _setting(place: int, subject: str) -> Deliverable:
    key, of = KEYS[place % len(KEYS)]
    path = f"conf/{slug(subject)}.ini"
    return Deliverable(
        subject,
        of,
        f"sed -i 's/^{key}=.*/{key}=<V>/' {path}",
        lambda code: Probe(subject, lambda end: str(f"{key}={code}" in end.text(path).split()), "True"),
        (path,),
    )


def _run(subject: str, of: Kind, command: str, parts: Sequence[str]) -> tuple[Deliverable, ...]:
    """Runs of the program that leave a file only when the value is right."""
    return tuple(
        present(f"{part} {subject}", of, f"python3 app.py {command} <V> {part}", f"{command}_{part}", ("app.py",))
        for part in parts
    )


def _discoveries(link: str, good: str, bad: str, nodes: list[str]) -> list[Discovery]:
    frees = (
        Deliverable(
            "stall",
            STALLED,
            "echo up > nodes/<V>",
            lambda code: Probe("stall", lambda end: end.text(f"nodes/{code}"), "up"),
            ("nodes/",),
        ),
    )
    rolls = tuple(
        taken("roll next in line", NEXT, "python3 app.py roll <V>", "rolled.txt", ("app.py", "rolled.txt")) for _ in range(3)
    )
    return [
        Discovery(
            "grounding",
            "peer",
            LINK,
            Act("read notes", "cat OPS", goal="read the notes", reads=("OPS",)),
            ((link, f"The peer is reached over link {link}."),),
            _run("peer", LINK, "reach", ("near", "far")),
        ),
        Discovery(
            "failure_loop",
            "start",
            MODEL,
            Act("try start", f"python3 app.py start {bad}", goal=f"try a start as {bad}", fails=True, reads=("app.py",)),
            ((good, f"RuntimeError: start as {bad} failed; start as model {good}"),),
            _run("start", MODEL, "start", ("cold", "warm")),
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "stall",
            STALLED,
            Act(
                "find stall",
                "cd nodes && for f in $(grep -l stalled *); do echo the stall is on node $f; done",
                goal="find out which node stalls",
                reads=("nodes/",),
            ),
            ((nodes[4], f"the stall is on node {nodes[4]}"),),
            frees,
        ),
        Discovery("progress", "roll", NEXT, None, queue_stages("roll", nodes[:3]), rolls, rivals=tuple(nodes[:3])),
    ]
