"""The page without a browser: who may ask, what is shown as text, decisions, conflicts."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the page needs the extra `lessons`")
pytest.importorskip("jinja2", reason="the page needs the extra `lessons`")

import httpx

from pmem.lessons import curation
from pmem.lessons.curation import Wording
from pmem.lessons.doors import propose
from pmem.lessons.page.app import make_app
from pmem.lessons.session_start import record_delivery, session_start
from pmem.lessons.store import LessonStore
from tests.lessons.world import PERSON, REPOSITORY, guidance, new_store, proposed, seen

TOKEN, PORT = "a-token", 8123
HOST = f"http://127.0.0.1:{PORT}"
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31m{{ 7*7 }} \u202eabc"

Ask = Callable[..., httpx.Response]


def asked(store: LessonStore, method: str, path: str, *, cookie: bool = True, **more: object) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = make_app(store, PERSON, token=TOKEN, port=PORT)
        cookies = {f"pmem_lessons_{PORT}": TOKEN} if cookie else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOST, cookies=cookies) as client:
            return await client.request(method, path, **more)  # type: ignore[arg-type]

    return asyncio.run(ask())


def word_of(page: str) -> str:
    return page.split('name="form-word" content="')[1].split('"')[0]


def form(store: LessonStore, **fields: str) -> dict[str, str]:
    return {"word": word_of(asked(store, "GET", "/").text), **fields}


@pytest.mark.parametrize("path", ["/", "/search?q=x", "/deliveries", "/record/les-x", "/static/page.js"])
def test_nothing_without_the_token(tmp_path: Path, path: str) -> None:
    store = new_store(tmp_path)
    assert asked(store, "GET", path, cookie=False).status_code == 401
    assert asked(store, "GET", f"{path.split('?')[0]}?token=wrong", cookie=False).status_code == 401
    if not path.startswith("/record"):
        assert asked(store, "GET", path).status_code == 200


def test_the_token_leaves_the_address_and_the_cookie_is_closed(tmp_path: Path) -> None:
    answer = asked(new_store(tmp_path), "GET", f"/?token={TOKEN}", cookie=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_other_hosts_origins_and_sites_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    assert asked(store, "GET", "/", headers=headers).status_code == 403
    data = form(store, revision="1")
    assert asked(store, "POST", f"/record/{record.id}/approve", data=data, headers=headers).status_code == 403
    assert store.get(record.id).state == "proposed"


def test_a_post_without_the_pages_word_is_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    for fields in ({}, {"word": "x"}, {"word": "é"}):
        for action in ("approve", "edit"):
            assert asked(store, "POST", f"/record/{record.id}/{action}", data={**fields, "revision": "1"}).status_code == 403
        assert asked(store, "POST", "/undo/1", data=fields).status_code == 403
    big = form(store, revision="1", body="x" * 300_000)
    assert asked(store, "POST", f"/record/{record.id}/edit", data=big).status_code == 403
    assert store.get(record.id) == record


def test_stored_text_is_text_on_every_page(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = propose(store, guidance(NASTY, body=NASTY), seen(session=NASTY))
    record = curation.approve(store, record.id, PERSON, NASTY)
    start = session_start(store, repository=REPOSITORY, session=NASTY)
    record_delivery(store, start, route="session_start")
    curation.link(store, record.id, NASTY, PERSON)
    waiting = propose(store, guidance(NASTY + "2", body=NASTY), seen(session=NASTY))
    for path in (
        "/",
        f"/record/{record.id}",
        f"/record/{waiting.id}",
        "/search?q=alert",
        f"/search?q={quote(NASTY)}",
        "/deliveries",
    ):
        text = asked(store, "GET", path).text
        assert "<script>alert" not in text and "<img" not in text and "\x1b" not in text and "\u202e" not in text, path
        assert "&lt;script&gt;" in text and "{{ 7*7 }}" in text


def test_decisions_and_undo(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    answer = asked(store, "POST", f"/record/{record.id}/approve", data=form(store, revision="1"))
    assert answer.status_code == 303 and store.get(record.id).decided_by == "person:ann"
    answer = asked(
        store,
        "POST",
        f"/record/{record.id}/reject",
        data=form(store, revision="2", reason="no"),
        headers={"accept": "application/json"},
    )
    assert answer.json()["message"].startswith("reject") and store.get(record.id).reason == "no"
    assert asked(store, "POST", f"/undo/{answer.json()['change']}", data=form(store)).status_code == 303
    assert store.get(record.id).approved
    for action in ("approve-everywhere", "withdraw", "delete"):
        revision = str(store.get(record.id).revision)
        assert asked(store, "POST", f"/record/{record.id}/{action}", data=form(store, revision=revision)).status_code == 303
    assert store.find(record.id) is None
    assert asked(store, "GET", f"/record/{record.id}").status_code == 404
    assert asked(store, "POST", f"/record/{record.id}/explode", data=form(store, revision="1")).status_code == 404


def test_what_changed_meanwhile_is_neither_approved_nor_overwritten(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    record = proposed(store)
    wording = Wording(title="Changed by another", body="", tags=(), collection="bank")
    curation.edit_record(store, record.id, PERSON, expected=Wording.of(record), wording=wording)
    answer = asked(
        store, "POST", f"/record/{record.id}/approve", data=form(store, revision="1"), headers={"accept": "application/json"}
    )
    assert answer.status_code == 409 and "changed meanwhile" in answer.json()["message"]
    mine = form(store, revision="1", title="Mine", body="my body", collection="bank")
    answer = asked(store, "POST", f"/record/{record.id}/edit", data=mine)
    assert answer.status_code == 409 and "Edit conflict" in answer.text
    assert "Changed by another" in answer.text and 'value="Mine"' in answer.text
    assert store.get(record.id).title == "Changed by another" and store.get(record.id).state == "proposed"
    again = {**mine, "revision": "2"}
    assert asked(store, "POST", f"/record/{record.id}/edit", data=again).status_code == 303
    assert store.get(record.id).title == "Mine"
