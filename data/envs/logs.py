"""Family `logs` (held out): an incident report from log files with grep, awk and cut."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import picky_text, picky_tool, present, queue_stages, queue_tool, taken, written
from data.phrasing import kind, words

NAME = "logs"
HOSTS = words("iris juno kite luna mars nova")
TOPICS = words(
    "outage latency timeout traffic login quota backlog restart upload cache queue alert session retry failover storage"
)
LOGS, TOOLS = ("logs/",), ("bin/",)

LEVEL = kind("level", "count counted at level", ("error", "warn", "info", "debug"))
HOUR = kind("hour", "sample sampled at hour", {"midnight": "00", "dawn": "06", "noon": "12", "dusk": "18"})
FIELD = kind("field", "list listed by field", {"user": "3", "path": "4", "code": "5", "bytes": "6"})
TEAM = kind("team", "file filed under team", ("ops", "security", "billing", "network"))
SHARD = kind("shard", "trace traced on shard", ("shard1", "shard2", "shard3", "shard4"))
WAY = kind("way", "rotate rotated by method", ("copy", "move", "truncate", "rename"))
CAUSE = kind("cause", "silence silenced on host", HOSTS)
NEXT = kind("next", "drain drained on host", HOSTS)


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    hosts = sorted(HOSTS, key=lambda name: draw(NAME, seed, "host", name))
    logs = {host: _log(seed, host, noisy=host == hosts[1] and "diagnosis" in bound) for host in HOSTS}
    shard, good = choose(SHARD.words, NAME, seed, "shard"), choose(WAY.words, NAME, seed, "way")
    bad = choose([word for word in WAY.words if word != good], NAME, seed, "bad way")
    order = hosts[:3]
    files = {f"logs/{host}.log": "\n".join(lines) + "\n" for host, lines in logs.items()}
    files |= {f"shards/{name}.idx": "ready\n" for name in SHARD.words if name == shard or "grounding" not in bound}
    files |= {
        "README": f"The incident is traced on shard {shard}.\n",
        "drained": "",
        "bin/rotate": picky_tool("rotation", "method", [good] if "failure_loop" in bound else WAY.words, bad, "rotated"),
        "bin/drain": queue_tool("drain", order if "progress" in bound else [], "drained"),
    }
    return Offer(
        title="Write the incident report from logs/.",
        files=files,
        executable=("bin/rotate", "bin/drain"),
        deliverables=_deliverables(subjects(TOPICS, size), logs),
        discoveries=_discoveries(hosts, shard, good, bad, order),
        first=Act("first", "ls logs | wc -l", goal="count the log files", reads=LOGS),
        look=Act("look", "ls logs | head -2", goal="look around again", reads=LOGS),
        review=Act("review", "ls logs bin | wc -l", goal="look over the report", reads=(*LOGS, *TOOLS)),
        finish=Act("finish", "echo closed > STATUS", goal="close the incident", reads=()),
        finish_probe=Probe("done", lambda end: end.text("STATUS"), "closed"),
    )


def _log(seed: int, host: str, *, noisy: bool) -> list[str]:
    """Lines `hour level user path code bytes`."""
    lines = []
    for index in range(8):
        pick = [draw(NAME, seed, host, index, part) for part in range(4)]
        lines.append(
            f"{HOUR.pool[int(pick[0] * 4)][1]} {LEVEL.words[int(pick[1] * 4)]} u{index} /p{int(pick[2] * 9)} "
            f"{200 + index} {int(pick[3] * 5000)}"
        )
    return lines + ["99 panic root /loop 599 0"] * noisy


def _deliverables(names: list[str], logs: dict[str, list[str]]) -> list[Deliverable]:
    made = []
    for place, topic in enumerate(names):
        host = HOSTS[place % len(HOSTS)]
        make = (_counted, _sampled, _listed, _filed)[place % 4]
        made.append(make(topic, host, logs[host]))
    return made


def _counted(topic: str, host: str, lines: list[str]) -> Deliverable:
    path = f"{slug(topic)}.count"
    return written(
        topic,
        LEVEL,
        f"grep -c ' <V> ' logs/{host}.log > {path}; true",
        path,
        lambda code: str(sum(line.split()[1] == code for line in lines)),
        LOGS,
    )


def _sampled(topic: str, host: str, lines: list[str]) -> Deliverable:
    path = f"{slug(topic)}.sample"
    return written(
        topic,
        HOUR,
        f"grep '^<V> ' logs/{host}.log > {path}; echo <V> >> {path}",
        path,
        lambda code: "\n".join([*(line for line in lines if line.split()[0] == code), code]),
        LOGS,
    )


def _listed(topic: str, host: str, lines: list[str]) -> Deliverable:
    path = f"{slug(topic)}.list"
    return written(
        topic,
        FIELD,
        f"cut -d' ' -f<V> logs/{host}.log > {path}",
        path,
        lambda code: "\n".join(line.split()[int(code) - 1] for line in lines),
        LOGS,
    )


def _filed(topic: str, host: str, lines: list[str]) -> Deliverable:
    path = f"<V>/{slug(topic)}.log"
    return written(topic, TEAM, f"mkdir -p <V> && head -n 1 logs/{host}.log > {path}", path, lambda code: lines[0], LOGS)


def _discoveries(hosts: list[str], shard: str, good: str, bad: str, order: list[str]) -> list[Discovery]:
    traces = tuple(
        present(f"{part} incident", SHARD, f"cp shards/<V>.idx trace_{part}", f"trace_{part}", ("shards/",))
        for part in ("first", "second")
    )
    rotations = tuple(
        present(f"{part} rotation", WAY, f"bin/rotate <V> {part}", f"rotated_{part}", TOOLS) for part in ("day", "night")
    )
    silences = (present("loop", CAUSE, "grep -v panic logs/<V>.log > <V>.quiet", "<V>.quiet", LOGS),)
    drains = tuple(taken("drain next in line", NEXT, "bin/drain <V>", "drained", (*TOOLS, "drained")) for _ in order)
    return [
        Discovery(
            "grounding",
            "incident",
            SHARD,
            Act("read notes", "cat README", goal="read the notes", reads=("README",)),
            ((shard, f"The incident is traced on shard {shard}."),),
            traces,
        ),
        Discovery(
            "failure_loop",
            "rotation",
            WAY,
            Act("try rotation", f"bin/rotate {bad} trial", goal=f"try a rotation by {bad}", fails=True, reads=TOOLS),
            ((good, picky_text("rotation", "method", good, bad)),),
            rotations,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "loop",
            CAUSE,
            Act(
                "find loop",
                "cd logs && for f in $(grep -l panic *); do echo the loop is on host ${f%.log}; done",
                goal="find out which host loops",
                reads=LOGS,
            ),
            ((hosts[1], f"the loop is on host {hosts[1]}"),),
            silences,
        ),
        Discovery("progress", "drain", NEXT, None, queue_stages("drain", order), drains, rivals=tuple(order)),
    ]
