"""Family `refactor` (held out): renaming and moving code under a naming rule; the check reads and compiles the sources."""

import ast

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.finished import Finished
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import picky_text, picky_tool, present, queue_stages, queue_tool, taken
from data.phrasing import Kind, kind, words

NAME = "refactor"
UNITS = words("matrix vector tensor graph tree heap stack buffer socket thread timer signal logger parser mapper finder")
PACKAGES = words("audio video image glyph mesh scene")
CODE, TOOLS = ("code/",), ("bin/",)

PREFIX = kind("prefix", "prefix prefixed with prefix", ("get", "load", "fetch", "read"))
SUFFIX = kind("suffix", "end ended on suffix", ("Base", "Impl", "Core", "Node"))
GUARD = kind("guard", "guard guarded against exception", ("KeyError", "TypeError", "IndexError", "OSError"))
LAYER = kind("layer", "move moved to layer", ("domain", "service", "adapter", "common"))
STYLE = kind("style", "format formatted after style", ("style_a", "style_b", "style_c", "style_d"))
PASS = kind("pass", "rewrite rewritten by pass", ("eager", "lazy", "greedy", "strict"))
CYCLE = kind("cycle", "break broken in package", PACKAGES)
NEXT = kind("next", "port ported in package", PACKAGES)


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    names = subjects(UNITS, size)
    style, good = choose(STYLE.words, NAME, seed, "style"), choose(PASS.words, NAME, seed, "pass")
    bad = choose([word for word in PASS.words if word != good], NAME, seed, "bad pass")
    packages = sorted(PACKAGES, key=lambda name: draw(NAME, seed, "package", name))
    files = {f"code/{slug(name)}.py": _source(slug(name).replace("-", "_")) for name in names}
    files |= {f"styles/{name}.cfg": "indent=4\n" for name in STYLE.words if name == style or "grounding" not in bound}
    files |= {f"packages/{name}": "cyclic\n" if "diagnosis" in bound and name == packages[4] else "clean\n" for name in PACKAGES}
    files |= {
        "CONTRIBUTING": f"The header is formatted after style {style}.\n",
        "ported.txt": "",
        "bin/rewrite": picky_tool("rewrite", "pass", [good] if "failure_loop" in bound else PASS.words, bad, "rewritten"),
        "bin/port": queue_tool("port", packages[:3] if "progress" in bound else [], "ported.txt"),
    }
    return Offer(
        title="Refactor the modules in code/.",
        files=files,
        executable=("bin/rewrite", "bin/port"),
        deliverables=[(_prefixed, _suffixed, _guarded, _moved)[place % 4](name) for place, name in enumerate(names)],
        discoveries=_discoveries(style, good, bad, packages),
        first=Act("first", "ls packages | wc -l", goal="count the packages", reads=("packages/",)),
        look=Act("look", "ls packages | head -2", goal="look around again", reads=("packages/",)),
        review=Act("review", "ls bin | wc -l", goal="look over the modules", reads=TOOLS),
        finish=Act("finish", "touch MERGED", goal="mark the branch as ready", reads=()),
        finish_probe=Probe("done", lambda end: str("MERGED" in end.state.entries), "True"),
    )


def _source(name: str) -> str:
    body = "        try:\n            return 1\n        except ValueError:\n            return 0\n"
    return f"class {name.title()}Old:\n    def old_{name}(self):\n{body}"


def _rewritten(subject: str, of: Kind, script: str, wanted: str) -> Deliverable:
    """A sed script over the module; `wanted` (with `<V>`) must stand in the source that comes out, and it must compile."""
    path = f"code/{slug(subject)}.py"
    name = slug(subject).replace("-", "_")

    def probe(code: str) -> Probe:
        def found(end: Finished) -> str:
            text = end.text(path)
            return str(_compiles(text) and wanted.replace("<V>", code).replace("<N>", name).replace("<T>", name.title()) in text)

        return Probe(subject, found, "True")

    return Deliverable(subject, of, f"sed -i -E '{script}' {path}", probe, (path,))


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _prefixed(subject: str) -> Deliverable:
    return _rewritten(subject, PREFIX, "s/def [a-z]+_/def <V>_/", "def <V>_<N>(")


def _suffixed(subject: str) -> Deliverable:
    return _rewritten(subject, SUFFIX, "s/(class .*)(Old|Base|Impl|Core|Node):/\\1<V>:/", "class <T><V>:")


def _guarded(subject: str) -> Deliverable:
    return _rewritten(subject, GUARD, "s/except .*:/except <V>:/", "except <V>:")


def _moved(subject: str) -> Deliverable:
    path = f"{slug(subject)}.py"
    return present(subject, LAYER, f"mkdir -p <V> && cp code/{path} <V>/{path}", f"<V>/{path}", CODE)


def _discoveries(style: str, good: str, bad: str, packages: list[str]) -> list[Discovery]:
    headers = tuple(
        present(f"{part} header", STYLE, f"cp styles/<V>.cfg header_{part}", f"header_{part}", ("styles/",))
        for part in ("public", "private")
    )
    passes = tuple(
        present(f"{part} rewrite", PASS, f"bin/rewrite <V> {part}", f"rewritten_{part}", TOOLS) for part in ("loop", "branch")
    )
    breaks = (
        Deliverable(
            "cycle",
            CYCLE,
            "echo clean > packages/<V>",
            lambda code: Probe("cycle", lambda end: end.text(f"packages/{code}"), "clean"),
            ("packages/",),
        ),
    )
    ports = tuple(taken("port next in line", NEXT, "bin/port <V>", "ported.txt", (*TOOLS, "ported.txt")) for _ in range(3))
    return [
        Discovery(
            "grounding",
            "header",
            STYLE,
            Act("read notes", "cat CONTRIBUTING", goal="read the rules", reads=("CONTRIBUTING",)),
            ((style, f"The header is formatted after style {style}."),),
            headers,
        ),
        Discovery(
            "failure_loop",
            "rewrite",
            PASS,
            Act("try rewrite", f"bin/rewrite {bad} trial", goal=f"try a rewrite by {bad}", fails=True, reads=TOOLS),
            ((good, picky_text("rewrite", "pass", good, bad)),),
            passes,
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "cycle",
            CYCLE,
            Act(
                "find cycle",
                "cd packages && for f in $(grep -l cyclic *); do echo the cycle is in package $f; done",
                goal="find out where the cycle is",
                reads=("packages/",),
            ),
            ((packages[4], f"the cycle is in package {packages[4]}"),),
            breaks,
        ),
        Discovery("progress", "port", NEXT, None, queue_stages("port", packages[:3]), ports, rivals=tuple(packages[:3])),
    ]
