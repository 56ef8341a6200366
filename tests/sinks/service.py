"""A web service on this machine that remembers keys, and fails when it is told to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """``faults``: what happens to the next requests, one each; then all are taken. ``taken``: (key, body), each once.

    ``refuses``: body → the status of what it never takes, else None; before ``faults``.

    A fault is a status to answer with, "cut": the connection ends before the request is taken, or "silent": it is
    taken, and the connection ends before the answer.
    """

    def __init__(self) -> None:
        self.faults: list[int | str] = []
        self.retry_after = ""  # beside the answer of a fault
        self.refuses: Callable[[bytes], int | None] = lambda _: None
        self.taken: list[tuple[str, bytes]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []  # path, headers
        self._keys: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/outputs?from=grete"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int | str:
        """Return the status to answer with, or "cut"."""
        if (refused := self.refuses(body)) is not None:
            self.requests.append((path, headers))
            return refused
        fault = self.faults.pop(0) if self.faults else 200
        self.requests.append((path, headers))
        if fault in (200, "silent"):
            key = headers["Idempotency-Key"]
            if key not in self._keys:
                self._keys.add(key)
                self.taken.append((key, body))
        return fault

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies taken, in their order."""
        return [body for _, body in self.taken]

    def close(self) -> None:
        """End the service, and the connections that are open."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = service.take(self.path, dict(self.headers.items()), body)
            if isinstance(answer, str):
                self.close_connection = True
                return
            text = b"said why"
            self.send_response(answer)
            if service.retry_after and answer != 200:
                self.send_header("Retry-After", service.retry_after)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler


@contextmanager
def serving() -> Iterator[Service]:
    """Yield a service; it ends with the block."""
    service = Service()
    try:
        yield service
    finally:
        service.close()
