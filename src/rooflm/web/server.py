"""The server of the page: a few addresses, all of which read the same query."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import webbrowser
from functools import cache
from typing import Any

import anyio.to_thread
import uvicorn
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rooflm.errors import RooflmError
from rooflm.web import page
from rooflm.web.asked import Asked, read_query, unread
from rooflm.web.dropped import LARGEST, keep
from rooflm.web.tabs.table import TABS, Tab
from rooflm.web.work import lines

SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every answer: nothing is loaded from, or sent to, another place ('unsafe-eval': Vega compiles what it
draws)."""
LONGEST = 16_000
"""Most characters of an address."""
AT_ONCE = 4
"""Answers worked out at the same time; further ones wait."""
WAITING = 40
"""Most answers that wait."""


class Busy:
    """A queue in front of the computation: a limited number run, a limited number wait, others are refused."""

    def __init__(self) -> None:
        self.limiter: CapacityLimiter | None = None

    async def run(self, work: Any, *given: Any) -> Any:
        """The result of work, in a thread."""
        if self.limiter is None:
            self.limiter = CapacityLimiter(AT_ONCE)
        if self.limiter.statistics().tasks_waiting >= WAITING:
            raise RooflmError("too many people ask at the moment: try again in a few seconds")
        return await anyio.to_thread.run_sync(work, *given, limiter=self.limiter)


def asked_of(request: Request) -> tuple[Tab, Asked]:
    """The tab and what is asked of it."""
    tab = TABS.get(request.path_params["tab"])
    if tab is None:
        raise HTTPException(404, f"there is no such page: the tabs are {', '.join(TABS)}")
    return tab, read_query(tab.name, tab.keys, request.query_params)


async def whole(request: Request) -> Response:
    """The page; without its answer where that takes seconds, unless asked "now" (by a browser without scripts)."""
    tab, asked = asked_of(request)
    later = tab.slow(asked) and not page.is_known(tab, asked) and "now" not in request.query_params
    told = unread(tab.keys, request.query_params)
    return HTMLResponse(await request.app.state.busy.run(page.whole_page, tab, asked, later, told))


async def answer(request: Request) -> Response:
    """A tab's answer for the page's script."""
    tab, asked = asked_of(request)
    run = request.app.state.busy.run
    if tab.slow(asked) and not page.is_known(tab, asked):
        made = lines(run, lambda: page.answer_of(tab, asked).as_dict())
        return StreamingResponse(made, media_type="text/event-stream")  # which nothing holds back to pack it
    return JSONResponse(await run(lambda: page.answer_of(tab, asked).as_dict()))


async def frames(request: Request) -> Response:
    """The answers at every stop of a slider."""
    tab, asked = asked_of(request)
    key = request.path_params["key"]
    if key not in tab.sliders:
        return PlainTextResponse("no such slider", 404)
    return JSONResponse(await request.app.state.busy.run(page.frames, tab, asked, key))


KINDS = {"json": (page.as_json, "application/json"), "csv": (page.as_csv, "text/csv")}
"""Kind of file -> how an answer is written as it, and its type."""


async def download(request: Request) -> Response:
    """The numbers of an answer as a file."""
    tab, asked = asked_of(request)
    kind = request.path_params["kind"]
    found = await request.app.state.busy.run(page.answer_of, tab, asked)
    if found.answer is None:
        return PlainTextResponse("\n".join(found.errors.values()), 400)
    if kind not in KINDS:
        raise HTTPException(404, f"there is no such file: kinds are {', '.join(KINDS)}")
    text, media = KINDS[kind]
    named = {"content-disposition": f'attachment; filename="rooflm-{tab.name}.{kind}"'}
    return Response(text(found.answer), media_type=media, headers=named)


async def drop(request: Request) -> Response:
    """A dropped file: the model's name in the address, or what is wrong with it."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max(LARGEST.values()):
            return JSONResponse({"error": f"the file has more than {max(LARGEST.values()) >> 20} MiB: drop a model's "
                                          "config.json or the head of its .gguf file"})  # fmt: skip
    try:
        name = await request.app.state.busy.run(keep, request.query_params.get("name", "")[:200], bytes(data))
    except RooflmError as error:
        return JSONResponse({"error": str(error)})
    return JSONResponse({"model": name})


async def home(request: Request) -> Response:
    """The first tab."""
    return RedirectResponse(f"/{next(iter(TABS))}" + (f"?{request.url.query}" if request.url.query else ""))


@cache
def drawing() -> bytes:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert, packed."""
    import vl_convert

    return gzip.compress(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode(), 6)


async def vega(request: Request) -> Response:
    """The script that draws."""
    data = await anyio.to_thread.run_sync(drawing)
    headers = {"content-encoding": "gzip", "cache-control": "max-age=86400"}
    return Response(data, media_type="text/javascript", headers=headers)


class Guard:
    """Every answer has the safe headers; an address that is too long, and a fault, get one sentence."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if len(scope["query_string"]) > LONGEST:
            return await PlainTextResponse(f"the address is longer than {LONGEST:,} characters", 414)(
                scope, receive, send
            )

        async def safe(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in SAFE.items())]
            await send(message)

        await self.app(scope, receive, safe)


async def refused(request: Request, error: Exception) -> Response:
    """What could not be answered, in one sentence."""
    return PlainTextResponse(str(error), 503)


def make_app(hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Starlette:
    """The page as an ASGI application. hosts: names by which it may be called ("*": any)."""
    routes = [
        Route("/", home),
        Route("/vega.js", vega),
        Route("/drop", drop, methods=["POST"]),
        Mount("/static", StaticFiles(directory=page.HERE / "static")),
        Route("/{tab}", whole),
        Route("/{tab}/answer", answer),
        Route("/{tab}/frames/{key}", frames),
        Route("/{tab}/download.{kind}", download),
    ]
    guards = [Middleware(Guard), Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
              Middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)]  # fmt: skip
    app = Starlette(routes=routes, middleware=guards, exception_handlers={RooflmError: refused})
    app.state.busy = Busy()
    return app


def warm() -> None:
    """Prepare what the first answers need before anybody asks."""
    drawing()
    for tab in TABS.values():
        if not tab.slow(asked := read_query(tab.name, tab.keys, {})):
            page.answer_of(tab, asked)


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address; RooflmError where there is no such address, or it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0].lower()
        raise RooflmError(f"cannot listen at {host}, port {port}: {why}: try another --host or --port") from None


def run(host: str = "127.0.0.1", port: int = 8018, browser: bool = True) -> None:
    """Serve the page until interrupted."""
    hosts = ("127.0.0.1", "localhost", "[::1]", host) if host in ("127.0.0.1", "localhost", "::1") else ("*",)
    config = uvicorn.Config(make_app(hosts), host=host, port=port, log_level="warning", access_log=False,
                            timeout_keep_alive=30)  # fmt: skip
    bound = listening(host, port)
    threading.Thread(target=warm, daemon=True).start()
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}/"
    print(f"rooflm: the page is at {address} (end it with Ctrl-C)")
    if browser:
        threading.Timer(0.7, webbrowser.open, [address]).start()
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    uvicorn.Server(config).run(sockets=[bound])
