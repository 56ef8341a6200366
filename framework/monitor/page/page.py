"""The page: files of this package, what is live as server-sent events, and what is stored. It only reads.

A browser may be made to ask any address by any site. So what is asked under a foreign name is refused (a foreign name
may resolve to this machine), nothing but GET is answered, and no other site may read, frame or script what is served.
"""

import asyncio
import ipaddress
import platform
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from grete.errors import FrameworkError
from grete.monitor.job_view import JobView
from grete.monitor.page.browse import Browse
from grete.monitor.page.history import History
from grete.monitor.page.job_graph import JobGraph
from grete.monitor.page.live import live
from grete.monitor.page.problems import Problems

TICK_S = 0.5  # between two events to a browser
CLIENTS_MAX = 32  # that get events; one more is refused
BROWSING_MAX = 4  # questions that are answered or wait; one more is refused
POINTS_MAX = 240  # of a chart
HTML, CSS, JS, SVG = "text/html; charset=utf-8", "text/css", "text/javascript", "image/svg+xml"
FILES = {  # path → file, type: nothing else is read from the disk
    "/": ("index.html", HTML),
    "/page/page.css": ("page.css", CSS),
    "/page/icon.svg": ("icon.svg", SVG),
    **{f"/page/{name}.js": (f"{name}.js", JS) for name in ("main", "dom", "overview", "graph", "charts", "browse")},
}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Page:
    """The page of one job. ``take`` gets each view; a server answers from another thread."""

    def __init__(self, graph: JobGraph, browse: Browse) -> None:
        self.history = History(graph)
        self.problems = Problems()
        self._graph, self._browse = graph, browse
        self._view: JobView | None = None
        self._event: tuple[JobView, bytes] | None = None
        self._clients = self._questions = 0
        self._thread = ThreadPoolExecutor(1, "grete-page")  # reads what is stored: one question at a time
        self._text = {path: (files(__package__) / "static" / name).read_bytes() for path, (name, _) in FILES.items()}

    def take(self, view: JobView) -> None:
        """Show this view from now on."""
        self._view = view
        self.history.take(view)
        self.problems.take(view)

    def close(self) -> None:
        """Take no more questions."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def routes(self) -> list[Route]:
        """Return the answers, by path."""
        answers: dict[str, Callable[..., Any]] = {
            "/page/graph.json": self._graph_page,
            "/page/live.json": self._live_page,
            "/page/live": self._events,
            "/page/history.json": self._history_page,
        }
        answers |= dict.fromkeys(FILES, self._file)
        answers |= {f"/page/{name}.json": self._stored for name in self._browse.answers}
        return [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]

    async def _file(self, request: Request) -> Response:
        path = request.scope["path"]
        return Response(self._text[path], media_type=FILES[path][1])

    async def _graph_page(self, _request: Request) -> Response:
        return _json(self._graph)

    async def _live_page(self, _request: Request) -> Response:
        return Response(self._now() or b"null", media_type="application/json")

    async def _history_page(self, request: Request) -> Response:
        stage = request.query_params.get("stage", "")
        points = self.history.points(POINTS_MAX)
        return _json({"points": points, "ages": self.history.ages(stage, POINTS_MAX // 2)})

    async def _events(self, _request: Request) -> Response:
        if self._clients >= CLIENTS_MAX:
            return _json({"error": f"{CLIENTS_MAX} browsers look at this job already: close one"}, 503)
        self._clients += 1  # now: a stream begins later, and many may ask at once
        return _Events(self._stream(), self._leave)

    def _leave(self) -> None:
        self._clients -= 1

    async def _stream(self) -> AsyncIterator[bytes]:
        """Yield the news, at most some times a second; a browser that is slow misses those in between."""
        sent: bytes | None = None
        while True:
            now, view = self._now(), self._view
            if now is not None and now is not sent:
                sent = now
                yield b"data: " + now + b"\n\n"
            elif now is None:
                yield b": it starts\n\n"
            if view is not None and view.ended is not None:
                return
            await asyncio.sleep(TICK_S)

    def _now(self) -> bytes | None:
        """Return the live data, encoded once for all who ask."""
        view, event = self._view, self._event
        if view is None:
            return None
        if event is None or event[0] is not view:
            self._event = event = view, msgspec.json.encode(live(self._graph, self.history, self.problems, view))
        return event[1]

    async def _stored(self, request: Request) -> Response:
        if self._questions >= BROWSING_MAX:
            return _json({"error": f"{BROWSING_MAX} questions are being answered: ask again in a moment"}, 503)
        name = request.scope["path"].removeprefix("/page/").removesuffix(".json")
        arguments: Mapping[str, str] = dict(request.query_params)
        self._questions += 1
        try:
            loop = asyncio.get_running_loop()
            return _json(await loop.run_in_executor(self._thread, self._browse.answer, name, arguments))
        except FrameworkError as error:
            return _json({"error": str(error)}, 400)
        except Exception as error:  # noqa: BLE001  # a serde of the job's may raise anything: it is the page's answer
            return _json({"error": f"{type(error).__name__}: {error}"}, 500)
        finally:
            self._questions -= 1


class _Events(StreamingResponse):
    """A stream of events; ``leave`` is called at its end, whether or not it has begun."""

    def __init__(self, content: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


class HostGuard:
    """Answers only what is asked under a name of this machine, and tells browsers to keep other sites out.

    ``/livez`` says nothing of a job, and who asks for it may know the machine by any name, unless only this one is
    served.
    """

    def __init__(self, app: ASGIApp, *, host: str) -> None:
        """``host``: the address that is served."""
        self._app = app
        self._strict = _loopback(host)
        node = platform.node().lower()
        self._names = {"localhost", host.lower(), node, node.partition(".")[0], socket.getfqdn().lower(), _DOCKER}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        open_to_all = scope["path"] == "/livez" and not self._strict
        if not open_to_all and not self._known(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            text = (
                "this host name is not this machine's: ask by its address or by its host name, or serve it under this "
                "name: --http NAME:PORT\n"
            )
            return await Response(text, 421, headers=_HEADERS, media_type="text/plain")(scope, receive, send)

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_RAW]
            await send(message)

        return await self._app(scope, receive, with_headers)

    def _known(self, host: str) -> bool:
        """Tell whether a Host header names this machine: by a number, which no foreign name server can give out."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        return name.lower().rstrip(".") in self._names or _address(name) is not None


_DOCKER = "host.docker.internal"  # this machine, as a container knows it: no one can own a name below .internal
_RAW = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


def _address(name: str) -> Any:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
