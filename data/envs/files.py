"""Family `files`: a sales pack made from CSV files with awk, sort and cut."""

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.phrasing import kind

NAME = "files"
SUBJECTS = ("summary", "ranking", "audit", "overview", "index", "digest", "catalogue", "roster", "bulletin", "extract", "register",
            "schedule", "inventory", "survey", "listing", "memo")
REGIONS = ("north", "south", "east", "west", "coast", "hills")
DATA = ("data/",)
ITEMS = ("bolt", "cable", "drill", "epoxy", "file", "glove", "hinge", "jack")

SEPARATOR = kind("separator", "write written with separator", {"commas": ",", "semicolons": ";", "pipes": "|", "colons": ":"})
FOLDER = kind("folder", "put put in folder", ("share", "public", "office", "depot", "vault"))
ORDER = kind("order", "sort sorted by order", {"name": "1,1", "quantity": "2,2n", "price": "3,3n"})
ROUNDING = kind("rounding", "round rounded to precision", {"units": "1", "tens": "10", "hundreds": "100", "thousands": "1000"})
SOURCE = kind("source", "take taken from source", ("ledger_a", "ledger_b", "ledger_c", "ledger_d"))
MODE = kind("mode", "pack packed in mode", ("fast", "safe", "plain", "lean"))
CULPRIT = kind("culprit", "drop dropped from region", REGIONS)
BATCH = kind("batch", "load loaded from region", REGIONS)

PACK = """#!/bin/bash
[[ "{good}" == *"$1"* ]] || {{ echo "pack: mode $1 failed here; pack in mode {good}" >&2; exit 3; }}
cat > "packed_$2" <<< "$1"
"""
LOAD = """#!/bin/bash
[ -s order.txt ] || exit 0
grep -qx "$1" loaded.txt && {{ echo "load: region $1 is loaded already" >&2; exit 4; }}
echo "$1" >> loaded.txt
while read -r name; do grep -qx "$name" loaded.txt || {{ echo "loaded; batch to load next: $name"; exit; }}; done < order.txt
echo "loaded; all regions are in"
"""


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    regions = sorted(REGIONS, key=lambda name: draw(NAME, seed, "region", name))[:4]
    rows = {region: _rows(seed, region) for region in regions}
    culprit, good = regions[1], choose(MODE.words, NAME, seed, "mode")
    bad = choose([word for word in MODE.words if word != good], NAME, seed, "bad mode")
    book = choose(SOURCE.words, NAME, seed, "source")
    twice = culprit if "diagnosis" in bound else None
    files = {f"data/{region}.csv": "\n".join(lines + lines[:1] * (region == twice)) + "\n" for region, lines in rows.items()}
    files |= {f"books/{name}.txt": "opening 100\n" for name in SOURCE.words if name == book or "grounding" not in bound}
    files |= {"bin/pack": PACK.format(good=good if "failure_loop" in bound else " ".join(MODE.words)), "bin/load": LOAD.format(),
              "order.txt": "\n".join(regions) + "\n" if "progress" in bound else "", "loaded.txt": "",
              "notes.txt": f"The ledger is taken from source {book}.\n"}
    return Offer(
        title="Prepare the sales pack from data/.", files=files, executable=("bin/pack", "bin/load"),
        deliverables=_deliverables(subjects(SUBJECTS, size), regions, rows), discoveries=_discoveries(regions, culprit, good, bad, book),
        first=Act("first", "ls data", goal="list the inputs", reads=DATA),
        look=Act("look", "ls data", goal="look around again", reads=DATA),
        review=Act("review", "ls data bin | wc -l", goal="look over the results", reads=("data/", "bin/")),
        finish=Act("finish", "echo done > DONE", goal="mark the pack as done", reads=()),
        finish_probe=Probe("done", lambda end: end.text("DONE"), "done"))


def _rows(seed: int, region: str) -> list[str]:
    items = sorted(ITEMS, key=lambda item: draw(NAME, seed, region, item))[:4]
    numbers = sorted(range(1, 9), key=lambda number: draw(NAME, seed, region, "quantity", number))
    return [f"{item},{numbers[place]}0,{1 + int(9000 * draw(NAME, seed, region, 'price', item))}" for place, item in enumerate(items)]


def _deliverables(names: list[str], regions: list[str], rows: dict[str, list[str]]) -> list[Deliverable]:
    made = []
    for place, subject in enumerate(names):
        region = regions[place % len(regions)]
        make = (_separated, _placed, _sorted, _rounded)[place % 4]
        made.append(make(subject, region, rows[region]))
    return made


def _separated(subject: str, region: str, rows: list[str]) -> Deliverable:
    name = slug(subject)
    return Deliverable(subject, SEPARATOR, f"tr ',' '<V>' < data/{region}.csv > {name}.txt",
                       lambda code: Probe(subject, lambda end: end.first_line(f"{name}.txt"), rows[0].replace(",", code)), DATA)


def _placed(subject: str, region: str, rows: list[str]) -> Deliverable:
    name = slug(subject)
    return Deliverable(subject, FOLDER, f"mkdir -p <V> && cut -d, -f1 data/{region}.csv > <V>/{name}.txt",
                       lambda code: Probe(subject, lambda end: end.first_line(f"{code}/{name}.txt"), rows[0].split(",")[0]), DATA)


def _sorted(subject: str, region: str, rows: list[str]) -> Deliverable:
    name = slug(subject)
    keys = {"1,1": lambda row: row.split(",")[0], "2,2n": lambda row: int(row.split(",")[1]), "3,3n": lambda row: int(row.split(",")[2])}
    return Deliverable(subject, ORDER, f"sort -u -t, -k<V> data/{region}.csv > {name}.txt",
                       lambda code: Probe(subject, lambda end: end.text(f"{name}.txt"), "\n".join(sorted(set(rows), key=keys[code]))),
                       DATA)


def _rounded(subject: str, region: str, rows: list[str]) -> Deliverable:
    name = slug(subject)
    price = int(rows[0].split(",")[2])
    return Deliverable(subject, ROUNDING, f"awk -F, '{{print int($3/<V>)*<V>}}' data/{region}.csv > {name}.txt",
                       lambda code: Probe(subject, lambda end: end.first_line(f"{name}.txt"), str(price // int(code) * int(code))), DATA)


def _discoveries(regions: list[str], culprit: str, good: str, bad: str, book: str) -> list[Discovery]:
    reads = tuple(Deliverable(f"ledger {part}", SOURCE, f"cat books/<V>.txt > ledger_{part}.txt",
                              lambda code, part=part: Probe("ledger", lambda end: end.text(f"ledger_{part}.txt"), "opening 100"), ("books/",))
                  for part in ("copy", "total"))
    packs = tuple(Deliverable(f"{part} pack", MODE, f"bin/pack <V> {part}",
                              lambda code, part=part: Probe("pack", lambda end: end.text(f"packed_{part}"), code), ("bin/",))
                  for part in ("first", "second"))
    cleans = (Deliverable("doubled row", CULPRIT, "touch data/<V>.csv && sort -u data/<V>.csv > clean_<V>.csv",
                          lambda code: Probe("doubled", lambda end: str(len(end.text(f"clean_{code}.csv").split())), "4"), DATA),)
    loads = tuple(Deliverable("batch next in line", BATCH, "bin/load <V>",
                              lambda code: Probe("batch", lambda end: str(code in end.text("loaded.txt").split()), "True"),
                              ("bin/", "loaded.txt", "order.txt")) for _ in range(3))
    return [
        Discovery("grounding", "ledger", SOURCE, Act("read notes", "cat notes.txt", goal="read the notes", reads=("notes.txt",)),
                  ((book, f"The ledger is taken from source {book}."),), reads),
        Discovery("failure_loop", "pack", MODE, Act("try pack", f"bin/pack {bad} trial", goal=f"pack a trial in mode {bad}", fails=True,
                                                       reads=("bin/",)),
                  ((good, f"pack: mode {bad} failed here; pack in mode {good}"),), packs, rivals=(bad,)),
        Discovery("diagnosis", "doubled row", CULPRIT,
                  Act("find doubled", "cd data && for f in *.csv; do [ $(sort $f | uniq -d | wc -l) = 0 ] || "
                      "echo doubled row found in ${f%.csv}; done", goal="find out where a row is doubled", reads=DATA),
                  ((culprit, f"doubled row found in {culprit}"),), cleans, rivals=tuple(regions)),
        Discovery("progress", "batch", BATCH, None,
                  tuple((region, f"The batch to load first: {region}." if place == 0 else f"batch to load next: {region}")
                        for place, region in enumerate(regions[:3])), loads, rivals=tuple(regions)),
    ]
