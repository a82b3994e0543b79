"""Family `cleaning`: a data-cleaning pipeline over raw tables with sed, awk and sort."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import picky_text, picky_tool, present, queue_stages, queue_tool, taken, written
from data.phrasing import kind, words

NAME = "cleaning"
TABLES = words("people visits orders claims grades rents trips wages votes calls parks roads ships farms shops banks")
SENSORS = words("alpha bravo cedar delta ember frost")
RAW, TOOLS = ("raw/",), ("bin/",)

FILL = kind("fill", "fill filled with filler", ("zero", "blank", "nil", "unknown"))
KEY = kind("key", "deduplicate deduplicated on key", {"id": "1,1", "town": "2,2", "amount": "3,3n"})
SCALE = kind("scale", "convert converted to unit", {"grams": "1000", "tons": "0.001", "pounds": "2", "stones": "0.5"})
SIDE = kind("side", "split split into part", ("left", "right", "upper", "lower"))
CODEBOOK = kind("codebook", "decode decoded with codebook", ("book1", "book2", "book3", "book4"))
METHOD = kind("method", "merge merged by method", ("append", "union", "overlay", "concat"))
DRIFT = kind("drift", "recalibrate recalibrated on sensor", SENSORS)
NEXT = kind("next", "ingest ingested from sensor", SENSORS)
COLUMN = {"1,1": 0, "2,2": 1, "3,3n": 2}


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    names = subjects(TABLES, size)
    tables = {name: _table(seed, name) for name in names}
    book, good = choose(CODEBOOK.words, NAME, seed, "book"), choose(METHOD.words, NAME, seed, "method")
    bad = choose([word for word in METHOD.words if word != good], NAME, seed, "bad method")
    sensors = sorted(SENSORS, key=lambda name: draw(NAME, seed, "sensor", name))
    files = {f"raw/{slug(name)}.csv": "\n".join(lines) + "\n" for name, lines in tables.items()}
    files |= {f"codebooks/{name}.txt": "a=1\n" for name in CODEBOOK.words if name == book or "grounding" not in bound}
    files |= {f"sensors/{name}": "drifting\n" if "diagnosis" in bound and name == sensors[4] else "steady\n" for name in SENSORS}
    files |= {
        "NOTES": f"The survey is decoded with codebook {book}.\n",
        "ingested.txt": "",
        "bin/merge": picky_tool("merge", "method", [good] if "failure_loop" in bound else METHOD.words, bad, "merged"),
        "bin/ingest": queue_tool("intake", sensors[:3] if "progress" in bound else [], "ingested.txt"),
    }
    return Offer(
        title="Clean the tables in raw/.",
        files=files,
        executable=("bin/merge", "bin/ingest"),
        deliverables=[(_filled, _unique, _scaled, _split)[place % 4](name, tables[name]) for place, name in enumerate(names)],
        discoveries=_discoveries(book, good, bad, sensors),
        first=Act("first", "ls raw | wc -l", goal="count the tables", reads=RAW),
        look=Act("look", "ls raw | head -2", goal="look around again", reads=RAW),
        review=Act("review", "ls raw bin | wc -l", goal="look over the tables", reads=(*RAW, *TOOLS)),
        finish=Act("finish", "touch CLEAN", goal="mark the tables as clean", reads=()),
        finish_probe=Probe("done", lambda end: str("CLEAN" in end.state.entries), "True"),
    )


def _table(seed: int, name: str) -> list[str]:
    """Rows `id,town,amount`; one town is missing, keys repeat."""
    towns = ("ayr", "bath", "cork", "deal")
    rows = [
        f"{1 + int(4 * draw(NAME, seed, name, row, 'id'))},{towns[int(4 * draw(NAME, seed, name, row, 'town'))]},"
        f"{100 + int(9 * draw(NAME, seed, name, row, 'amount'))}"
        for row in range(7)
    ]
    return ["9,NA,500", *rows, "1,ayr,104", "2,bath,104", "2,ayr,103"]


def _filled(subject: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.csv"
    return written(
        subject, FILL, f"sed 's/NA/<V>/' raw/{path} > {path}", path, lambda code: "\n".join(rows).replace("NA", code), RAW
    )


def _unique(subject: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.csv"

    def expected(code: str) -> str:
        first: dict[str, str] = {}
        for row in rows:
            first.setdefault(row.split(",")[COLUMN[code]], row)
        return "\n".join(first[key] for key in sorted(first, key=int if code.endswith("n") else str))

    return written(subject, KEY, f"sort -s -u -t, -k<V> raw/{path} > {path}", path, expected, RAW)


def _scaled(subject: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.csv"
    return written(
        subject,
        SCALE,
        f"awk -F, '{{print int($3*<V>)}}' raw/{path} > {path}",
        path,
        lambda code: "\n".join(str(int(int(row.split(",")[2]) * float(code))) for row in rows),
        RAW,
    )


def _split(subject: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.csv"
    return written(
        subject, SIDE, f"mkdir -p <V> && head -n 3 raw/{path} > <V>/{path}", f"<V>/{path}", lambda code: "\n".join(rows[:3]), RAW
    )


def _discoveries(book: str, good: str, bad: str, sensors: list[str]) -> list[Discovery]:
    surveys = tuple(
        present(f"{part} survey", CODEBOOK, f"cp codebooks/<V>.txt decoded_{part}", f"decoded_{part}", ("codebooks/",))
        for part in ("spring", "autumn")
    )
    merges = tuple(
        present(f"{part} merge", METHOD, f"bin/merge <V> {part}", f"merged_{part}", TOOLS) for part in ("weekly", "yearly")
    )
    repairs = (
        Deliverable(
            "drift",
            DRIFT,
            "echo steady > sensors/<V>",
            lambda code: Probe("drift", lambda end: end.text(f"sensors/{code}"), "steady"),
            ("sensors/",),
        ),
    )
    intakes = tuple(
        taken("intake next in line", NEXT, "bin/ingest <V>", "ingested.txt", (*TOOLS, "ingested.txt")) for _ in range(3)
    )
    return [
        Discovery(
            "grounding",
            "survey",
            CODEBOOK,
            Act("read notes", "cat NOTES", goal="read the notes", reads=("NOTES",)),
            ((book, f"The survey is decoded with codebook {book}."),),
            surveys,
        ),
        Discovery(
            "failure_loop",
            "merge",
            METHOD,
            Act("try merge", f"bin/merge {bad} trial", goal=f"try a merge by {bad}", fails=True, reads=TOOLS),
            ((good, picky_text("merge", "method", good, bad)),),
            merges,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "drift",
            DRIFT,
            Act(
                "find drift",
                "cd sensors && for f in $(grep -l drifting *); do echo the drift is on sensor $f; done",
                goal="find out which sensor drifts",
                reads=("sensors/",),
            ),
            ((sensors[4], f"the drift is on sensor {sensors[4]}"),),
            repairs,
        ),
        Discovery("progress", "intake", NEXT, None, queue_stages("intake", sensors[:3]), intakes, rivals=tuple(sensors[:3])),
    ]
