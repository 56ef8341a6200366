"""Serves what a job shows, read-only, from a thread of the process that runs it."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
import uvicorn
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from grete.errors import ConfigError
from grete.file_lock import keep_from_children
from grete.monitor.access import OPEN, Access, HostGuard
from grete.monitor.bounded_connection import ACCEPTED_MAX, BoundedConnection
from grete.monitor.health import Pulse, not_ready
from grete.monitor.job_view import JobView, ServingEnd
from grete.monitor.metrics import JobMetrics
from grete.monitor.page.page import Page
from grete.monitor.page.problems import Problems

_JSON = "application/json"
_STARTS_S_MAX = 10.0  # of a thread that binds nothing: milliseconds on an idle machine


class ServedApp(Protocol):
    """The application behind the server."""

    def app(self) -> ASGIApp:
        """Return the answers as an ASGI application."""
        ...


class Monitor:
    """The server answers from it. Its owner calls ``show`` and ``pulse.turned`` with each turn of its loop."""

    def __init__(self, live_s: float, page: Page | None = None, more: Sequence[Route] = ()) -> None:
        """``live_s``: seconds after which a loop that does not go on is stuck. ``page``, ``more``: served, too."""
        self.page = page
        self._more = more
        self.pulse = Pulse(live_s)
        self._view: JobView | None = None  # of this process
        self._whole: JobView | None = None  # of all members
        self._metrics = JobMetrics(lambda: self._view)

    def show(self, view: JobView, whole: JobView | None = None) -> None:
        """Let the server answer from this view; page and status from the ``whole`` job, None: it is the same."""
        self._view, self._whole = view, whole or view
        if self.page is not None:
            self.page.take(self._whole)

    def end(self, ended: ServingEnd) -> None:
        """Tell those who look how the process ends; they keep what they have seen."""
        if self._view is not None and self._whole is not None and self._view.ended is None:
            self.show(replace(self._view, ended=ended), replace(self._whole, ended=ended))

    def app(self) -> ASGIApp:
        """Return the answers as an ASGI application."""
        routes = {
            "/metrics": self._metrics_page,
            "/livez": self._live,
            "/readyz": self._ready,
            "/status.json": self._status,
        }
        answers = [Route(path, answer, methods=["GET"]) for path, answer in routes.items()]
        return Starlette(routes=[*answers, *([] if self.page is None else self.page.routes()), *self._more])

    def _metrics_page(self, request: Request) -> Response:
        text, content_type = self._metrics.page(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    def _live(self, _request: Request) -> Response:
        stuck = self.pulse.stuck()
        told = {} if stuck is None else msgspec.to_builtins(stuck)
        return _answer({"live": stuck is None, **told}, ok=stuck is None)

    def _ready(self, _request: Request) -> Response:
        reasons = not_ready(self._view)
        return _answer({"ready": not reasons, "reasons": reasons}, ok=not reasons)

    def _status(self, _request: Request) -> Response:
        view = self._whole
        if view is None:
            return _answer(None, ok=True)
        problems = Problems() if self.page is None else self.page.problems
        return _answer(msgspec.to_builtins(replace(view, others=())) | {"findings": problems.now(view)}, ok=True)


def _answer(value: object, *, ok: bool) -> Response:
    return Response(msgspec.json.encode(value), status_code=200 if ok else 503, media_type=_JSON)


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of "HOST:PORT" or "PORT"; without a host it is this machine's own. Raises ConfigError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--http {text!r}: give HOST:PORT, or PORT for this machine alone, as in 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serving(monitor: ServedApp, address: str, access: Access = OPEN) -> Iterator[str]:
    """Serve within the block, to who has ``access``; yield the URL. Port 0: one that is free.

    Raises ConfigError if the address cannot be had.
    """
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:  # asyncio asks: TCP_NODELAY
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            keep_from_children(listener.fileno())
        except OSError as error:
            raise ConfigError(f"--http {address}: {error.strerror or error}: choose another address") from error
        server = uvicorn.Server(
            uvicorn.Config(
                HostGuard(monitor.app(), host, access),
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                http=BoundedConnection,
                backlog=ACCEPTED_MAX,
                ws="none",
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],), name="grete-http", daemon=True)
        thread.start()
        deadline = time.monotonic() + _STARTS_S_MAX
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.01)
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        try:
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
