"""The report in a real browser: nothing clipped at 390 and 1,280 pixels, the slider works, no error, contrast and
alternatives in order.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from eval import promote, sweep
from tests.eval.synthetic import make_run
from tests.eval.test_promote import BIG, write_ab

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on PATH")]

CLIPPED = """() => {
  const width = document.documentElement.clientWidth;
  const beyond = [...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && e.getBoundingClientRect().right >
  width + 1); const outside = [...document.querySelectorAll('svg text')].filter(e => {
    const box = e.getBoundingClientRect(), frame = e.closest('svg').getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1;
  });
  return [document.documentElement.scrollWidth > width, beyond.map(e => e.outerHTML.slice(0, 80)), outside.map(e =>
  e.textContent)];
}"""
CONTRAST = """() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); };
  const lum = c => 0.2126 * light(c[0]) + 0.7152 * light(c[1]) + 0.0722 * light(c[2]);
  const ground = e => { while (e) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0)
  return c; e = e.parentElement; } return [255, 255, 255]; }; const bad = [];
  document.querySelectorAll('main *').forEach(e => {
    if (e.matches('svg title, svg desc')) return;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) return;
    const style = getComputedStyle(e);
    const a = lum(parse(e.closest('svg') ? style.fill : style.color)), b = lum(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), ratio.toFixed(2)]);
  });
  return bad;
}"""


NAMELESS = """() => {
  const all = (selector, bad) => [...document.querySelectorAll(selector)].filter(bad).length;
  const empty = (e, part) => !e.querySelector(part) || !e.querySelector(part).textContent;
  return all('svg', e => e.getAttribute('role') !== 'img' || empty(e, 'title') || empty(e, 'desc'))
    + all('th', e => !e.scope) + all('input', e => !document.querySelector(`label[for=${e.id}]`));
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("run"), BIG)
    assert sweep.main([f"run={folder}"]) == 0
    write_ab(folder)
    promote.main([f"run={folder}"])
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Any:
    with sync_api.sync_playwright() as player:
        chromium = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_readable_at_every_width(browser: Any, report: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    assert page.evaluate(CLIPPED) == [False, [], []]
    assert page.evaluate(CONTRAST) == []
    assert errors == [] and requests == [report.as_uri()]
    page.close()


def test_the_slider_moves_the_figures(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(report.as_uri())
    shown = page.inner_text("#fir"), page.inner_text("#recall")
    page.focus("#threshold")
    for _ in range(43):
        page.keyboard.press("ArrowLeft")
    assert page.inner_text("#at") == "0.01"
    assert float(page.inner_text("#fir").split()[0]) > float(shown[0].split()[0])
    assert float(page.inner_text("#recall").split()[0]) >= float(shown[1].split()[0])
    page.close()


def test_pictures_tables_and_controls_have_names(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    nameless = page.evaluate(NAMELESS)
    assert nameless == 0 and page.evaluate("() => document.documentElement.lang") == "en"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(browser: Any, report: Path, width: int, scheme: str) -> None:
    """The accessibility checker of Deque over the whole page: contrast, names, alternatives, structure."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(report.as_uri())
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.close()


def test_it_prints(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    page.close()
