"""Family `files`: a sales pack made from CSV files with awk, sort and cut."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import picky_text, picky_tool, present, queue_stages, queue_tool, taken, written
from data.phrasing import kind, words

NAME = "files"
SUBJECTS = words(
    "summary ranking audit overview index digest catalogue roster "
    "bulletin extract register schedule inventory survey listing memo"
)
REGIONS = words("north south east west coast hills")
ITEMS = words("bolt cable drill epoxy file glove hinge jack")

SEPARATOR = kind("separator", "write written with separator", {"commas": ",", "semicolons": ";", "pipes": "|", "colons": ":"})
FOLDER = kind("folder", "put put in folder", ("share", "public", "office", "depot", "vault"))
ORDER = kind("order", "sort sorted by order", {"name": "1,1", "quantity": "2,2n", "price": "3,3n"})
ROUNDING = kind("rounding", "round rounded to precision", {"units": "1", "tens": "10", "hundreds": "100", "thousands": "1000"})
SOURCE = kind("source", "take taken from source", ("ledger_a", "ledger_b", "ledger_c", "ledger_d"))
MODE = kind("mode", "pack packed in mode", ("fast", "safe", "plain", "lean"))
CULPRIT = kind("culprit", "drop dropped from region", REGIONS)
BATCH = kind("batch", "load loaded from region", REGIONS)

DATA, TOOLS = ("data/",), ("bin/",)


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    regions = sorted(REGIONS, key=lambda name: draw(NAME, seed, "region", name))
    culprit, good = regions[4], choose(MODE.words, NAME, seed, "mode")
    bad = choose([word for word in MODE.words if word != good], NAME, seed, "bad mode")
    book = choose(SOURCE.words, NAME, seed, "source")
    rows = {region: _rows(seed, region, doubled=region == culprit and "diagnosis" in bound) for region in regions}
    files = {f"data/{region}.csv": "\n".join(lines) + "\n" for region, lines in rows.items()}
    files |= {f"books/{name}.txt": "opening 100\n" for name in SOURCE.words if name == book or "grounding" not in bound}
    files |= {
        "notes.txt": f"The ledger is taken from source {book}.\n",
        "loaded.txt": "",
        "bin/pack": picky_tool("pack", "mode", [good] if "failure_loop" in bound else MODE.words, bad, "packed"),
        "bin/load": queue_tool("batch", regions[:3] if "progress" in bound else [], "loaded.txt"),
    }
    return Offer(
        title="Prepare the sales pack from data/.",
        files=files,
        executable=("bin/pack", "bin/load"),
        deliverables=_deliverables(subjects(SUBJECTS, size), regions, rows),
        discoveries=_discoveries(regions, culprit, good, bad, book),
        first=Act("first", "ls data", goal="list the inputs", reads=DATA),
        look=Act("look", "ls data", goal="look around again", reads=DATA),
        review=Act("review", "ls data bin | wc -l", goal="look over the results", reads=("data/", "bin/")),
        finish=Act("finish", "echo done > DONE", goal="mark the pack as done", reads=()),
        finish_probe=Probe("done", lambda end: end.text("DONE"), "done"),
    )


def _rows(seed: int, region: str, *, doubled: bool) -> list[str]:
    """Rows `item,quantity,price`; the first one stands twice in the region with the fault."""
    items = sorted(ITEMS, key=lambda item: draw(NAME, seed, region, item))[:4]
    numbers = sorted(range(1, 9), key=lambda number: draw(NAME, seed, region, "quantity", number))
    rows = [
        f"{item},{numbers[place]}0,{1 + int(9000 * draw(NAME, seed, region, 'price', item))}" for place, item in enumerate(items)
    ]
    return rows + rows[:1] * doubled


def _deliverables(names: list[str], regions: list[str], rows: dict[str, list[str]]) -> list[Deliverable]:
    made = []
    for place, subject in enumerate(names):
        region = regions[place % len(regions)]
        make = (_separated, _placed, _sorted, _rounded)[place % 4]
        made.append(make(subject, region, rows[region]))
    return made


def _separated(subject: str, region: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.txt"
    return written(
        subject,
        SEPARATOR,
        f"tr ',' '<V>' < data/{region}.csv > {path}",
        path,
        lambda code: "\n".join(rows).replace(",", code),
        DATA,
    )


def _placed(subject: str, region: str, rows: list[str]) -> Deliverable:
    path = f"<V>/{slug(subject)}.txt"
    command = f"mkdir -p <V> && head -n 1 data/{region}.csv > {path}"
    return written(subject, FOLDER, command, path, lambda code: rows[0], DATA)


def _sorted(subject: str, region: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.txt"
    column = {"1,1": 0, "2,2n": 1, "3,3n": 2}

    def expected(code: str) -> str:
        return "\n".join(
            sorted(set(rows), key=lambda row: int(row.split(",")[column[code]]) if column[code] else row.split(",")[0])
        )

    return written(subject, ORDER, f"sort -u -t, -k<V> data/{region}.csv > {path}", path, expected, DATA)


def _rounded(subject: str, region: str, rows: list[str]) -> Deliverable:
    path = f"{slug(subject)}.txt"
    command = f"head -n 1 data/{region}.csv | awk -F, '{{print int($3/<V>)*<V>}}' > {path}"
    price = int(rows[0].split(",")[2])
    return written(subject, ROUNDING, command, path, lambda code: str(price // int(code) * int(code)), DATA)


def _discoveries(regions: list[str], culprit: str, good: str, bad: str, book: str) -> list[Discovery]:
    reads = tuple(
        present(f"ledger {part}", SOURCE, f"cp books/<V>.txt ledger_{part}.txt", f"ledger_{part}.txt", ("books/",))
        for part in ("copy", "total")
    )
    packs = tuple(present(f"{part} pack", MODE, f"bin/pack <V> {part}", f"packed_{part}", TOOLS) for part in ("first", "second"))
    cleans = (present("doubled row", CULPRIT, "sort -u data/<V>.csv > clean_<V>.csv", "clean_<V>.csv", DATA),)
    loads = tuple(taken("batch next in line", BATCH, "bin/load <V>", "loaded.txt", (*TOOLS, "loaded.txt")) for _ in range(3))
    return [
        Discovery(
            "grounding",
            "ledger",
            SOURCE,
            Act("read notes", "cat notes.txt", goal="read the notes", reads=("notes.txt",)),
            ((book, f"The ledger is taken from source {book}."),),
            reads,
        ),
        Discovery(
            "failure_loop",
            "pack",
            MODE,
            Act("try pack", f"bin/pack {bad} trial", goal=f"pack a trial in mode {bad}", fails=True, reads=("bin/",)),
            ((good, picky_text("pack", "mode", good, bad)),),
            packs,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "doubled row",
            CULPRIT,
            Act(
                "find doubled",
                "cd data && for f in *.csv; do [ $(sort $f | uniq -d | wc -l) = 0 ] || echo doubled row found in ${f%.csv}; done",
                goal="find out where a row is doubled",
                reads=DATA,
            ),
            ((culprit, f"doubled row found in {culprit}"),),
            cleans,
            rivals=tuple(regions),
        ),
        Discovery("progress", "batch", BATCH, None, queue_stages("batch", regions[:3]), loads, rivals=tuple(regions[:3])),
    ]
