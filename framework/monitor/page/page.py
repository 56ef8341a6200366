"""The page: files of this package, what is live as server-sent events, and what is stored. It only reads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from grete.errors import FrameworkError
from grete.monitor.job_view import JobView
from grete.monitor.page.browse import Browse
from grete.monitor.page.history import History
from grete.monitor.page.job_graph import JobGraph
from grete.monitor.page.live import live
from grete.monitor.page.problems import Problems
from grete.quoting import named_error

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
            return _json({"error": named_error(error)}, 500)
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


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
