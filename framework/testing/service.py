"""A web service for tests: a real server on this machine that fails where a test says so, and keeps what it got."""

import socket
import threading
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from grete.closable import Closable

KEY = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request that has come. ``number``: from 1; ``taken``: the service has done what it asks for."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    taken: bool

    @property
    def key(self) -> str | None:
        """Its Idempotency-Key."""
        return self.headers.get(KEY)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, such as Reply(429, headers={"Retry-After": "2"}). The service does what is asked for if it is 2xx."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The end of the connection instead of an answer; ``taken``: after the service has done what is asked for."""

    taken: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer until the caller gives up, so its time-out passes in real time; ``taken`` as for Dropped."""

    taken: bool = False


ScriptedReply = Reply | Dropped | Silent


class FakeService(Closable):
    """A web service that does what it is asked for once for each Idempotency-Key, until ``close``.

    ``script``: number of a request, from 1 → what becomes of it, such as ``{3: Reply(503)}``; it may change while the
    service runs. All other requests get what ``answer`` makes of them, by default 200. A key that comes again has the
    same answer, and nothing is done; with another body the answer is 422, as the caller has mixed up its keys.

    ``url`` is its address. ``requests``: all that have come, in their order; ``taken``: those that took effect.
    """

    def __init__(
        self, script: Mapping[int, ScriptedReply] | None = None, answer: Callable[[ServiceRequest], Reply] | None = None
    ) -> None:
        """Listen at a free port of this machine."""
        self.script: MutableMapping[int, ScriptedReply] = dict(script or {})
        self.requests: list[ServiceRequest] = []
        self._answer = answer or (lambda _: Reply())
        self._bodies: dict[str, bytes] = {}  # by key, of what was taken
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def taken(self) -> list[ServiceRequest]:
        """The requests that took effect, in their order."""
        with self._lock:
            return [request for request in self.requests if request.taken]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of ``taken``."""
        return [request.body for request in self.taken]

    def close(self) -> None:
        """End the service, and the connections that are open."""
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> ScriptedReply:
        """Note a request, and return what becomes of it."""
        with self._lock:
            request = ServiceRequest(len(self.requests) + 1, method, path, headers, body, taken=True)
            before = None if request.key is None else self._bodies.get(request.key)
            reply = self.script.get(request.number) or self._answer(request)
            if before not in (None, body):
                reply = Reply(422, b"this Idempotency-Key came with another body before")
            takes = 200 <= reply.status < 300 if isinstance(reply, Reply) else reply.taken
            takes = takes and before is None
            if takes and request.key is not None:
                self._bodies[request.key] = body
            self.requests.append(ServiceRequest(request.number, method, path, headers, body, takes))
            return reply


class _Server(ThreadingHTTPServer):
    """Knows its connections, to end them: a caller may keep one open."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait: many callers come at a time

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def finish_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]  # no other kind comes
        """Serve a connection."""
        with self._lock:
            self._open.add(request)
        try:
            super().finish_request(request, client_address)
        except ConnectionError:
            return  # the caller has died: a crash is what the test is about
        finally:
            with self._lock:
                self._open.discard(request)

    def end_connections(self) -> None:
        """End all that are open."""
        with self._lock:
            for each in self._open:
                each.shutdown(socket.SHUT_RDWR)


def _handler(service: FakeService) -> type[BaseHTTPRequestHandler]:
    class ServiceHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = service.reply(self.command, self.path, dict(self.headers.items()), body)
            if isinstance(reply, Reply):
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            if isinstance(reply, Silent):
                self.rfile.read(1)  # until the caller, or the service, ends the connection
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(ServiceHandler, f"do_{method}", ServiceHandler.serve)
    return ServiceHandler
