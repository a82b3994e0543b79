"""Family `archives`: handing documents over as tar archives with the wanted owner, root folder, year and place."""

import io
import tarfile
from collections.abc import Callable

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.filestate import FILE
from data.envs.finished import Finished
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import picky_text, picky_tool, present, queue_stages, queue_tool, taken
from data.phrasing import Kind, kind, words

NAME = "archives"
DOCUMENTS = words("album atlas diary essay fable guide hymnal journal letter manual novel opera poem quiz recipe sketch")
CITIES = words("lima oslo paris quito rome seoul")
DOCS, TOOLS = ("docs/",), ("bin/",)

OWNER = kind("owner", "sign signed for owner", ("anna", "boris", "clara", "david"))
ROOT = kind("root", "root rooted at folder", ("papers", "works", "texts", "items"))
YEAR = kind("year", "date dated to year", ("2019", "2020", "2021", "2022"))
SHELF = kind("shelf", "shelve shelved under shelf", ("attic", "cellar", "study", "gallery"))
VOLUME = kind("volume", "open opened from volume", ("vol1", "vol2", "vol3", "vol4"))
SEAL = kind("seal", "seal sealed by seal", ("wax", "cord", "stamp", "foil"))
TORN = kind("torn", "restore restored from city", CITIES)
NEXT = kind("next", "send sent to city", CITIES)


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    names = subjects(DOCUMENTS, size)
    volume, good = choose(VOLUME.words, NAME, seed, "volume"), choose(SEAL.words, NAME, seed, "seal")
    bad = choose([word for word in SEAL.words if word != good], NAME, seed, "bad seal")
    cities = sorted(CITIES, key=lambda name: draw(NAME, seed, "city", name))
    files = {f"docs/{slug(name)}.txt": f"{name} {int(1000 * draw(NAME, seed, name))}\n" for name in names}
    files |= {f"volumes/{name}.txt": "contents\n" for name in VOLUME.words if name == volume or "grounding" not in bound}
    files |= {f"copies/{city}.txt": "torn\n" if "diagnosis" in bound and city == cities[4] else "whole\n" for city in CITIES}
    files |= {
        "CATALOGUE": f"The cover is opened from volume {volume}.\n",
        "sent.txt": "",
        "bin/seal": picky_tool("parcel", "seal", [good] if "failure_loop" in bound else SEAL.words, bad, "sealed"),
        "bin/send": queue_tool("delivery", cities[:3] if "progress" in bound else [], "sent.txt"),
    }
    return Offer(
        title="Hand the documents in docs/ over.",
        files=files,
        executable=("bin/seal", "bin/send"),
        deliverables=[(_owned, _rooted, _dated, _shelved)[place % 4](name) for place, name in enumerate(names)],
        discoveries=_discoveries(volume, good, bad, cities),
        first=Act("first", "ls docs | wc -l", goal="count the documents", reads=DOCS),
        look=Act("look", "ls docs | head -2", goal="look around again", reads=DOCS),
        review=Act("review", "ls docs bin | wc -l", goal="look over the archives", reads=(*DOCS, *TOOLS)),
        finish=Act("finish", "touch RECEIPT", goal="write the receipt", reads=()),
        finish_probe=Probe("done", lambda end: str("RECEIPT" in end.state.entries), "True"),
    )


def _member(end: Finished, path: str) -> tarfile.TarInfo | None:
    """The first member of a tar file that came out, None when there is no such archive."""
    entry = end.state.entries.get(path)
    if entry is None or entry.kind != FILE:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(entry.content)) as archive:
            return archive.next()
    except tarfile.TarError:
        return None


def _archived(subject: str, of: Kind, option: str, says: Callable[[tarfile.TarInfo], str]) -> Deliverable:
    """A tar archive of the document; `says` reads from its first member what must be the value's code."""
    name = slug(subject)

    def probe(code: str) -> Probe:
        def found(end: Finished) -> str:
            member = _member(end, f"{name}.tar")
            return says(member) if member else ""

        return Probe(subject, found, code)

    return Deliverable(subject, of, f"tar -cf {name}.tar {option} docs/{name}.txt", probe, DOCS)


def _owned(subject: str) -> Deliverable:
    return _archived(subject, OWNER, "--mtime=@0 --owner=<V>", lambda member: member.uname)


def _rooted(subject: str) -> Deliverable:
    return _archived(subject, ROOT, "--mtime=@0 --transform s,docs,<V>,", lambda member: member.name.partition("/")[0])


def _dated(subject: str) -> Deliverable:
    return _archived(subject, YEAR, "--mtime=<V>-07-01", lambda member: str(1970 + int(member.mtime / 31_556_952)))


def _shelved(subject: str) -> Deliverable:
    name = slug(subject)
    return present(subject, SHELF, f"mkdir -p <V> && tar -cf <V>/{name}.tar --mtime=@0 docs/{name}.txt", f"<V>/{name}.tar", DOCS)


def _discoveries(volume: str, good: str, bad: str, cities: list[str]) -> list[Discovery]:
    covers = tuple(
        present(f"{part} cover", VOLUME, f"cp volumes/<V>.txt cover_{part}", f"cover_{part}", ("volumes/",))
        for part in ("front", "back")
    )
    seals = tuple(present(f"{part} parcel", SEAL, f"bin/seal <V> {part}", f"sealed_{part}", TOOLS) for part in ("small", "large"))
    mends = (
        Deliverable(
            "damage",
            TORN,
            "echo whole > copies/<V>.txt",
            lambda code: Probe("damage", lambda end: end.text(f"copies/{code}.txt"), "whole"),
            ("copies/",),
        ),
    )
    sends = tuple(taken("delivery next in line", NEXT, "bin/send <V>", "sent.txt", (*TOOLS, "sent.txt")) for _ in range(3))
    return [
        Discovery(
            "grounding",
            "cover",
            VOLUME,
            Act("read notes", "cat CATALOGUE", goal="read the catalogue", reads=("CATALOGUE",)),
            ((volume, f"The cover is opened from volume {volume}."),),
            covers,
        ),
        Discovery(
            "failure_loop",
            "parcel",
            SEAL,
            Act("try parcel", f"bin/seal {bad} trial", goal=f"try a parcel with seal {bad}", fails=True, reads=TOOLS),
            ((good, picky_text("parcel", "seal", good, bad)),),
            seals,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "damage",
            TORN,
            Act(
                "find damage",
                "cd copies && for f in $(grep -l torn *); do echo the damage is in the copy from ${f%.txt}; done",
                goal="find out which copy is damaged",
                reads=("copies/",),
            ),
            ((cities[4], f"the damage is in the copy from {cities[4]}"),),
            mends,
        ),
        Discovery("progress", "delivery", NEXT, None, queue_stages("delivery", cities[:3]), sends, rivals=tuple(cities[:3])),
    ]
