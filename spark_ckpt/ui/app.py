"""The page as a web application: it looks at jobs' folders when it is asked, and never writes."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from spark_ckpt.errors import CkptError, ConfigError
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring.facts import BRIEF, METERED, NEWEST, history_row_of
from spark_ckpt.monitoring.folder import job_in, jobs_in, look_at
from spark_ckpt.monitoring.metrics import CONTENT_TYPE, exposition
from spark_ckpt.monitoring.overview import Overview
from spark_ckpt.storage.history import HistoryRow
from spark_ckpt.ui._compare_tab import compare_values
from spark_ckpt.ui._state_tab import state_values
from spark_ckpt.ui.pages import checkpoint_page, compare_page, job_page, jobs_page, state_page

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
COOKIE = "spark_ckpt_token"
_LOOKS = 16
"""So many jobs are looked at side by side."""
_FRESH_S = 2.0
_MOST_BYTES = 100_000
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers hide the origin of our own forms, too
    "Cache-Control": "no-store",
}


def create_app(
    dir: str, token: str | None = None, hosts: Iterable[str] = LOOPBACK, state: bool = False, **options: str
) -> Starlette:
    """The application over the jobs in ``dir``; ``options`` are settings such as ``**{"storage.key": "..."}``.

    With ``token``, every request needs it: ``?token=...`` once, then a cookie; or ``Authorization: Bearer ...``, as
    Prometheus sends it. ``hosts``: the names by which it may be
    asked, so that no page from elsewhere can read it by a name of its own for this address. ``state``: whether rows of
    state are shown; raises ``ConfigError`` without a token then, as any user of the machine can ask at loopback.
    """
    if state and token is None:
        raise ConfigError("expected a token, as rows of state are shown, found none: give one")
    looks = _Looks(dir, options)

    async def jobs(_: Request) -> Response:
        return await _answer(lambda: jobs_page(dir, looks.all()))

    async def job(request: Request) -> Response:
        return await _answer(lambda: job_page(looks.one(request.path_params["job"])))

    async def checkpoint(request: Request) -> Response:
        name, k = request.path_params["job"], request.path_params["checkpoint"]
        return await _answer(lambda: checkpoint_page(name, looks.row(name, k)))

    async def state_tab(request: Request) -> Response:
        name = request.path_params["job"]
        return await _answer_form(request, lambda form: _state_page(looks.job(name), form, state))

    async def compare(request: Request) -> Response:
        name, asked = request.path_params["job"], dict(request.query_params)

        def page(form: Mapping[str, list[str]]) -> str | None:
            return _compare_page(looks.job(name), {**asked, **{key: values[0] for key, values in form.items()}}, state)

        return await _answer_form(request, page)

    async def metrics(_: Request) -> Response:
        return await _answer(lambda: exposition(looks.all(METERED)), CONTENT_TYPE)

    static = StaticFiles(directory=str(files("spark_ckpt.ui").joinpath("static")))
    routes = [
        Route("/", jobs),
        Route("/jobs/{job}", job),
        Route("/jobs/{job}/checkpoints/{checkpoint:int}", checkpoint),
        Route("/jobs/{job}/state", state_tab, methods=["GET", "POST"]),
        Route("/jobs/{job}/compare", compare, methods=["GET", "POST"]),
        Route("/metrics", metrics),
        Mount("/static", static),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)), Middleware(_Guard, token=token)]
    return Starlette(routes=routes, middleware=middleware)


def _state_page(job: Job | None, asked: Mapping[str, list[str]], allowed: bool) -> str | None:
    return None if job is None else state_page(job.name, state_values(job, asked) if allowed else {"allowed": False})


def _compare_page(job: Job | None, asked: Mapping[str, str], allowed: bool) -> str | None:
    return None if job is None else compare_page(job.name, compare_values(job, asked, allowed))


def _is_own(request: Request) -> bool:
    """Whether a page of ours has the form, as far as the browser tells."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


async def _form(request: Request) -> Mapping[str, list[str]] | None:
    """What a form says. Not in the URL: proxies keep those, and keys may be names of people."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return None
    return parse_qs(body.decode(errors="replace"), keep_blank_values=True)


async def _answer_form(request: Request, page: Callable[[Mapping[str, list[str]]], str | None]) -> Response:
    """The page of what a form of ours says, if there is one."""
    if request.method == "POST" and not _is_own(request):
        return PlainTextResponse("A form of another page asked for this.", 403)
    form = await _form(request)
    if form is None:
        return PlainTextResponse(f"What is asked is longer than {_MOST_BYTES} bytes.", 413)
    return await _answer(lambda: page(form))


async def _answer(page: Callable[[], str | None], content_type: str = "text/html; charset=utf-8") -> Response:
    try:
        text = await run_in_threadpool(page)
    except CkptError as error:
        return PlainTextResponse(str(error), 503)
    if text is None:
        return PlainTextResponse("There is no such page.", 404)
    return Response(text, headers={"Content-Type": content_type})


class _Looks:
    """What was seen lately, so that many who watch cost no more than one."""

    def __init__(self, dir: str, options: dict[str, str]) -> None:
        self._dir, self._options = dir, options
        self._pool = ThreadPoolExecutor(_LOOKS, "spark-ckpt-ui")
        self._seen: dict[tuple[str, int], tuple[float, Overview]] = {}

    def all(self, newest: int = BRIEF) -> list[Overview]:
        return list(self._pool.map(lambda job: self._look(job, newest), jobs_in(self._dir, **self._options)))

    def one(self, name: str) -> Overview | None:
        job = self.job(name)
        return None if job is None else self._look(job, NEWEST)

    def row(self, name: str, checkpoint: int) -> HistoryRow | None:
        job = self.job(name)
        return None if job is None else history_row_of(job, checkpoint)

    def job(self, name: str) -> Job | None:
        return job_in(self._dir, name, **self._options)

    def _look(self, job: Job, newest: int) -> Overview:
        at, seen = self._seen.get((job.name, newest), (0.0, None))
        if seen is None or time.monotonic() - at > _FRESH_S:
            seen = look_at(job, newest)
            self._seen[job.name, newest] = time.monotonic(), seen
        return seen


class _Guard:
    """Asks for the token, and says in each answer that nothing from elsewhere may run in it."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.query_params.get("token")
        known = (request.cookies.get(COOKIE), request.headers.get("authorization", "").removeprefix("Bearer "))
        if self._token is None or any(map(self._is_right, known)):
            await self._app(scope, receive, _with_headers(send))
        elif self._is_right(given):
            answer = RedirectResponse(request.url.path, 303, _HEADERS)
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            await answer(scope, receive, send)
        else:
            refused = PlainTextResponse("Ask with ?token=..., as spark-ckpt ui printed it.", 401, _HEADERS)
            await refused(scope, receive, send)

    def _is_right(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), (self._token or "").encode())


def _with_headers(send: Send) -> Callable[[Any], Awaitable[None]]:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return sent
