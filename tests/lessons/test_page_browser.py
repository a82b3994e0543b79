"""The page in headless Chromium: keyboard review, conflict, both widths, no console error, accessibility, text as text.

The page's own content security policy is in force: the tests look into the page by the browser's debugger, which it does not bind.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pmem.lessons import curation
from pmem.lessons.curation import Wording
from pmem.lessons.doors import propose
from pmem.lessons.session_start import record_delivery, session_start
from pmem.lessons.store import LessonStore
from tests.lessons.world import PERSON, REPOSITORY, guidance, new_store, proposed, seen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, to drive a browser")
axe = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python, to check accessibility")
pytest.importorskip("starlette", reason="the page needs the extra `lessons`")
pytest.importorskip("uvicorn", reason="the page needs the extra `lessons`")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
]
ROOT = Path(__file__).parents[2]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
NASTY = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'> \x1b[31mred"
PATIENCE_MS = 60_000
OUTSIDE = """[...document.querySelectorAll("body *")].filter(one => {
  const box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const beyond = box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  const cut = one.scrollWidth > one.clientWidth + 1 && ["hidden", "clip"].includes(style.overflowX);
  return (beyond || cut && !one.matches("input, textarea, select")) && !one.closest("pre, .skip");
}).map(one => one.outerHTML.slice(0, 120))"""
"""What stands beyond the window's edges, or is cut off by its own."""


expect = playwright.expect


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as running:
        context = running.chromium.launch_persistent_context(
            folder, executable_path=CHROMIUM, args=FLAGS, headless=True, timeout=PATIENCE_MS
        )
        context.set_default_timeout(PATIENCE_MS)
        playwright.expect.set_options(timeout=PATIENCE_MS)
        yield context
        context.close()


@contextlib.contextmanager
def served(store: LessonStore) -> Iterator[str]:
    """`pmem lessons serve` as a process; its address with the token."""
    environ = {**os.environ, "PMEM_DATA_DIR": str(store.folder.parent), "PMEM_STATE_DIR": str(store.folder)}
    command = [sys.executable, "-m", "pmem.cli", "lessons", "serve", "--by", "ann"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("lessons page: ")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def opened(browser: Any, address: str, width: int = 1280) -> Iterator[tuple[Any, list[str]]]:
    """A tab, and what its console complained about."""
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address)
    yield page, errors
    page.close()


def looked(page: Any, expression: str) -> Any:
    """The value of an expression in the page."""
    session = page.context.new_cdp_session(page)
    found = session.send("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
    session.detach()
    assert "exceptionDetails" not in found, found
    return found["result"].get("value")


def violations(page: Any) -> list[str]:
    """What the accessibility engine finds wrong."""
    looked(page, axe.AXE_SCRIPT)
    found = looked(page, "axe.run().then(found => found.violations)")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def test_a_proposal_is_reviewed_from_the_keyboard(browser: Any, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    ids = [proposed(store, f"Lesson {number}", body="what was seen").id for number in range(200)][::-1]
    with served(store) as address, opened(browser, address) as (page, errors):
        assert "token" not in page.url and page.locator("article").count() == 200
        print(f"opened in {looked(page, 'performance.getEntriesByType(`navigation`)[0].duration'):.0f} ms, 200 proposals")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("a")
        expect(page.locator("article")).to_have_count(199)
        assert store.get(ids[0]).approved and store.get(ids[0]).decided_by == "person:ann"
        page.keyboard.press("r")
        page.keyboard.type("only here")
        page.keyboard.press("Enter")
        expect(page.locator("article")).to_have_count(198)
        assert (store.get(ids[1]).state, store.get(ids[1]).reason) == ("rejected", "only here")
        assert page.locator("#count").inner_text() == "198"
        with page.expect_navigation():
            page.keyboard.press("u")
        expect(page.locator("article")).to_have_count(199)
        assert store.get(ids[1]).state == "proposed"
        page.keyboard.press("j")
        page.keyboard.press("e")
        page.wait_for_url("**/record/*")
        page.fill("input[name=title]", "Worded anew")
        page.click("form.wording button")
        expect(page.locator("h1")).to_have_text("Worded anew")
        assert not errors


@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_is_accessible_and_shows_text_as_text(browser: Any, tmp_path: Path, width: int) -> None:
    store = new_store(tmp_path)
    long = "a" * 150
    record = curation.approve(store, propose(store, guidance(NASTY, body=long + NASTY), seen(session=NASTY)).id, PERSON, NASTY)
    record_delivery(store, session_start(store, repository=REPOSITORY, session=NASTY), route="session_start")
    propose(store, guidance(f"{long} {NASTY}"[:200], body=NASTY), seen(session=long))
    with served(store) as address, opened(browser, address, width) as (page, errors):
        for path in ("/", f"/record/{record.id}", "/search?q=script", "/deliveries"):
            page.goto(address.split("?")[0].rstrip("/") + path)
            assert violations(page) == [], path
            assert looked(page, "document.documentElement.scrollWidth <= window.innerWidth"), f"{path} is wider than {width}"
            assert looked(page, OUTSIDE) == [], f"{path} at {width}"
            assert looked(page, "window.hacked === undefined") and "<script>window" in page.inner_text("body")
            assert "\x1b" not in page.inner_text("body")
        assert not errors


def test_an_edit_conflict_is_shown_as_such(browser: Any, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    with served(store) as address, opened(browser, address) as (page, errors):
        page.goto(address.split("?")[0] + f"record/{record.id}")
        wording = Wording(title="Another was quicker", body="", collection="bank")
        curation.edit_record(store, record.id, PERSON, expected=Wording.of(record), wording=wording)
        page.fill("input[name=title]", "Mine")
        page.click("form.wording button")
        page.wait_for_selector("[role=alert]")
        assert "Edit conflict" in page.inner_text("[role=alert]") and "Another was quicker" in page.inner_text("[role=alert]")
        assert page.input_value("input[name=title]") == "Mine" and store.get(record.id).title == "Another was quicker"
        assert violations(page) == []
        page.click("form.wording button")
        expect(page.locator("h1")).to_have_text("Mine")
        assert all("409" in error for error in errors)


def test_another_origin_cannot_decide(browser: Any, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    with served(store) as address, opened(browser, address) as (page, _):
        target = address.split("?")[0] + f"record/{record.id}/approve"
        page.goto(f"data:text/html,<form method=post action='{target}'><input name=revision value=1><button>x</button></form>")
        page.click("button")
        page.wait_for_load_state()
        assert store.get(record.id).state == "proposed"
        page.context.clear_cookies()
        assert page.goto(address.split("?")[0]).status == 401
