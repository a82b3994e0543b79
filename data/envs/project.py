"""Family `project`: a Python package whose modules are set up with sed and whose unittest suite really runs."""

import ast

from data.envs.base import Act, Mechanism, Probe, choose, draw
from data.envs.finished import Finished
from data.envs.script import Deliverable, Discovery, Offer, slug, subjects
from data.envs.tools import present, queue_stages, queue_tool, taken
from data.phrasing import Kind, kind, words

NAME = "project"
MODULES = words(
    "basket invoice coupon payment tariff voucher receipt refund quota ticket badge locker parcel wallet rebate deposit"
)
SUITES = words("core edge load smoke soak unit")

ROUND = kind("round", "round rounded by mode", ("floor", "ceil", "half", "bank"))
RAISE = kind("raise", "fail failed with exception", ("ValueError", "LookupError", "TypeError", "ArithmeticError"))
CACHE = kind("cache", "cache cached in backend", ("memory", "disk", "redis", "none"))
RETRY = kind("retry", "retry retried by schedule", ("linear", "cubic", "jitter", "fixed"))
FIXTURE = kind("fixture", "feed fed from fixture", ("fix_a", "fix_b", "fix_c", "fix_d"))
RUNNER = kind("runner", "run run under runner", ("forked", "inline", "pooled", "staged"))
BROKEN = kind("broken", "patch patched in suite", SUITES)
NEXT = kind("next", "enable enabled in suite", SUITES)
SETTINGS = (("ROUND", ROUND), ("RAISE", RAISE), ("CACHE", CACHE), ("RETRY", RETRY))

RUN = """import pathlib, sys
runner, part = sys.argv[1:]
if runner not in {good}:
    raise RuntimeError("tests: runner {bad} failed here; run tests under runner {only}")
pathlib.Path("ran_" + part).write_text(runner)
"""
TESTS = """import pathlib, unittest


class Suites(unittest.TestCase):
    pass


def _case(name):
    def test(self):
        self.assertEqual(pathlib.Path("suites", name).read_text().strip(), "good", "the defect is in suite " + name)
    return test


for _name in {suites}:
    setattr(Suites, "test_" + _name, _case(_name))
"""


def offer(seed: int, bound: frozenset[Mechanism], size: int) -> Offer:
    """Everything one seed of this family may use."""
    names = subjects(MODULES, size)
    fixture, good = choose(FIXTURE.words, NAME, seed, "fixture"), choose(RUNNER.words, NAME, seed, "runner")
    bad = choose([word for word in RUNNER.words if word != good], NAME, seed, "bad runner")
    suites = sorted(SUITES, key=lambda name: draw(NAME, seed, "suite", name))
    files = {f"pkg/{slug(name)}.py": 'ROUND = "x"\nRAISE = ValueError\nCACHE = "x"\nRETRY = "x"\n' for name in names}
    files |= {f"fixtures/{name}.json": "{}\n" for name in FIXTURE.words if name == fixture or "grounding" not in bound}
    files |= {f"suites/{name}": "bad\n" if "diagnosis" in bound and name == suites[4] else "good\n" for name in SUITES}
    files |= {
        "run.py": RUN.format(good=[good] if "failure_loop" in bound else list(RUNNER.words), bad=bad, only=good),
        "test_suites.py": TESTS.format(suites=SUITES),
        "SETUP": f"The sample is fed from fixture {fixture}.\n",
        "enabled.txt": "",
        "bin/enable": queue_tool("suite", suites[:3] if "progress" in bound else [], "enabled.txt"),
    }
    return Offer(
        title="Bring the package in pkg/ into shape.",
        files=files,
        executable=("bin/enable",),
        deliverables=[_setting(place, name) for place, name in enumerate(names)],
        discoveries=_discoveries(fixture, good, bad, suites),
        first=Act("first", "ls suites | wc -l", goal="count the suites", reads=("suites/",)),
        look=Act("look", "ls suites | head -2", goal="look around again", reads=("suites/",)),
        review=Act("review", "wc -l < run.py", goal="look over the modules", reads=("run.py",)),
        finish=Act("finish", "touch RELEASE", goal="mark the package as ready", reads=()),
        finish_probe=Probe("done", lambda end: str("RELEASE" in end.state.entries), "True"),
    )


def _setting(place: int, subject: str) -> Deliverable:
    """One constant of a module, checked in the parsed source."""
    name, of = SETTINGS[place % len(SETTINGS)]
    path = f"pkg/{slug(subject)}.py"
    quote = "" if name == "RAISE" else '"'

    def probe(code: str) -> Probe:
        return Probe(subject, lambda end: _constant(end, path, name), code)

    return Deliverable(subject, of, f"sed -i 's/^{name} = .*/{name} = {quote}<V>{quote}/' {path}", probe, (path,))


def _constant(end: Finished, path: str, name: str) -> str:
    for node in ast.parse(end.text(path)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return node.value.id if isinstance(node.value, ast.Name) else str(ast.literal_eval(node.value))
    return ""


def _runs(of: Kind) -> tuple[Deliverable, ...]:
    return tuple(
        present(f"{part} tests", of, f"python3 run.py <V> {part}", f"ran_{part}", ("run.py",)) for part in ("quick", "full")
    )


def _discoveries(fixture: str, good: str, bad: str, suites: list[str]) -> list[Discovery]:
    feeds = tuple(
        present(f"{part} sample", FIXTURE, f"cp fixtures/<V>.json sample_{part}", f"sample_{part}", ("fixtures/",))
        for part in ("tiny", "big")
    )
    patches = (
        Deliverable(
            "defect",
            BROKEN,
            "echo good > suites/<V>",
            lambda code: Probe("defect", lambda end: end.text(f"suites/{code}"), "good"),
            ("suites/",),
        ),
    )
    enables = tuple(taken("suite next in line", NEXT, "bin/enable <V>", "enabled.txt", ("bin/", "enabled.txt")) for _ in range(3))
    return [
        Discovery(
            "grounding",
            "sample",
            FIXTURE,
            Act("read notes", "cat SETUP", goal="read the notes", reads=("SETUP",)),
            ((fixture, f"The sample is fed from fixture {fixture}."),),
            feeds,
        ),
        Discovery(
            "failure_loop",
            "tests",
            RUNNER,
            Act("try tests", f"python3 run.py {bad} trial", goal=f"try the tests under {bad}", fails=True, reads=("run.py",)),
            ((good, f"RuntimeError: tests: runner {bad} failed here; run tests under runner {good}"),),
            _runs(RUNNER),
            rivals=(bad,),
        ),
        Discovery(
            "diagnosis",
            "defect",
            BROKEN,
            Act(
                "find defect",
                "python3 -m unittest test_suites 2>&1 | grep -o 'the defect.*'",
                goal="run the test suite",
                reads=("suites/", "test_suites.py"),
            ),
            ((suites[4], f"the defect is in suite {suites[4]}"),),
            patches,
        ),
        Discovery("progress", "suite", NEXT, None, queue_stages("suite", suites[:3]), enables, rivals=tuple(suites[:3])),
    ]
