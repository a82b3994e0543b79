"""The page: review queue with evidence, one record, search, deliveries. Every decision is the command line's own call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pmem.errors import UserError
from pmem.lessons import curation
from pmem.lessons.changes import history, undo
from pmem.lessons.command_records import when
from pmem.lessons.curation import EditConflict, Wording
from pmem.lessons.page.guard import Guard, form_of
from pmem.lessons.page.views import PAGE_SIZE, deliveries_view, queue_view, record_view, search_view
from pmem.lessons.records import COLLECTIONS, Actor, Record
from pmem.lessons.shown import visible
from pmem.lessons.store import LessonStore

_HERE = Path(__file__).parent


def make_app(store: LessonStore, person: Actor, *, token: str, port: int) -> Starlette:
    """The application over an open store; `person` is who decides on this page."""
    page = _Page(store, person, Guard(token, port))
    return Starlette(
        routes=[
            Route("/", page.queue),
            Route("/record/{id}", page.record),
            Route("/search", page.search),
            Route("/deliveries", page.deliveries),
            Route("/record/{id}/edit", page.edit, methods=["POST"]),
            Route("/record/{id}/{action:str}", page.decide, methods=["POST"]),
            Route("/undo/{change:int}", page.undo, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=page.guard)],
    )


class _Page:
    def __init__(self, store: LessonStore, person: Actor, guard: Guard) -> None:
        self.store = store
        self.person = person
        self.guard = guard
        self._templates = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True, finalize=_as_text)
        self._templates.globals.update(when=when, collections=COLLECTIONS, word=guard.form_word, person=person.name)

    # Reading

    async def queue(self, request: Request) -> Response:
        number = max(0, _int(request.query_params.get("page")))
        return await self._shown(lambda: ("queue.html", {**queue_view(self.store, number), "size": PAGE_SIZE}))

    async def record(self, request: Request) -> Response:
        return await self._shown(lambda: ("record.html", record_view(self.store, request.path_params["id"])))

    async def search(self, request: Request) -> Response:
        return await self._shown(lambda: ("search.html", search_view(self.store, request.query_params.get("q", ""))))

    async def deliveries(self, request: Request) -> Response:
        return await self._shown(lambda: ("deliveries.html", deliveries_view(self.store)))

    # Deciding

    async def decide(self, request: Request) -> Response:
        """Approve, reject or withdraw a record as the person saw it."""
        form = await form_of(request, self.guard)
        if form is None:
            return PlainTextResponse("the form is not from this page; open it again", status_code=403)
        action, record_id = request.path_params["action"], request.path_params["id"]
        if action not in ("approve", "approve-everywhere", "reject", "withdraw", "delete"):
            return PlainTextResponse("unknown action", status_code=404)
        return await run_in_threadpool(self._decided, request, record_id, action, form)

    async def edit(self, request: Request) -> Response:
        """Word a record anew; a conflict shows both texts and saves neither."""
        form = await form_of(request, self.guard)
        if form is None:
            return PlainTextResponse("the form is not from this page; open it again", status_code=403)
        return await run_in_threadpool(self._edited, request.path_params["id"], form)

    async def undo(self, request: Request) -> Response:
        form = await form_of(request, self.guard)
        if form is None:
            return PlainTextResponse("the form is not from this page; open it again", status_code=403)
        change = request.path_params["change"]

        def act() -> str:
            undo(self.store, change, self.person)
            return f"undid {change}"

        return await run_in_threadpool(self._answered, request, act, "/")

    def _decided(self, request: Request, record_id: str, action: str, form: dict[str, str]) -> Response:
        reason = form.get("reason", "").strip() or None

        def act() -> str:
            seen = self._as_seen(record_id, form)
            name = seen.id
            if action.startswith("approve"):
                everywhere = action == "approve-everywhere"
                curation.approve(self.store, name, self.person, reason, everywhere=everywhere, expected=Wording.of(seen))
            elif action == "reject":
                curation.reject(self.store, name, self.person, reason, expected=Wording.of(seen))
            elif action == "withdraw":
                curation.withdraw(self.store, name, self.person, reason)
            else:
                curation.delete(self.store, name, self.person, reason)
            return f"{action} {name}: done"

        return self._answered(request, act, "/", record_id)

    def _edited(self, record_id: str, form: dict[str, str]) -> Response:
        body = form.get("body", "").replace("\r\n", "\n")
        tags = tuple(tag.strip() for tag in form.get("tags", "").split(",") if tag.strip())
        mine = Wording(title=form.get("title", ""), body=body, tags=tags, collection=form.get("collection") or None)
        try:
            seen = self._as_seen(record_id, form)
            wording = Wording.of(seen)
            curation.edit_record(
                self.store, seen.id, self.person, expected=wording, wording=mine, reason=form.get("reason") or None
            )
        except EditConflict as conflict:
            view = {**record_view(self.store, conflict.current.id), "mine": mine}
            return self._html("record.html", view, status=409)
        except UserError as error:
            return self._html("problem.html", {"problem": str(error)}, status=400)
        return RedirectResponse(f"/record/{seen.id}", status_code=303)

    def _as_seen(self, record_id: str, form: dict[str, str]) -> Record:
        """The record, when it still is of the revision the person looked at."""
        record = self.store.get(record_id)
        if _int(form.get("revision")) != record.revision:
            raise EditConflict(record)
        return record

    def _answered(self, request: Request, act: Callable[[], str], place: str, record_id: str | None = None) -> Response:
        """Run a decision and answer as JSON for the page's script, as a page otherwise."""
        for_script = "application/json" in request.headers.get("accept", "")
        try:
            message = act()
        except UserError as error:
            status = 409 if isinstance(error, EditConflict) else 400
            if for_script:
                return JSONResponse({"message": visible(str(error))}, status_code=status)
            return self._html("problem.html", {"problem": str(error), "record_id": record_id}, status=status)
        latest = history(self.store, record_id, limit=1)
        if for_script:
            return JSONResponse({"message": visible(message), "change": latest[0].change if latest else None})
        return RedirectResponse(place, status_code=303)

    async def _shown(self, view: Callable[[], tuple[str, dict[str, Any]]]) -> Response:
        return await run_in_threadpool(self._render, view)

    def _render(self, view: Callable[[], tuple[str, dict[str, Any]]]) -> Response:
        try:
            return self._html(*view())
        except UserError as error:
            return self._html("problem.html", {"problem": str(error)}, status=404)

    def _html(self, template: str, values: dict[str, Any], status: int = 200) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status_code=status)


def _as_text(value: Any) -> Any:
    """Stored text with its control characters made visible; the template escapes it after this."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _int(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
