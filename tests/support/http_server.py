"""An HTTP server of a test's own, which counts what it is asked."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NO_ANSWER = 0


class CountingServer(ThreadingHTTPServer):
    """Answers GET with what ``answer`` makes of the path: (status, body). ``asked``: path → requests.

    A status NO_ANSWER leaves the caller waiting until the server ends. ``most``: as many connections were open at a
    time; ``open``: are now.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that wait: many callers come at a time

    def __init__(self, answer: Callable[[str], tuple[int, bytes]], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ends = threading.Event()
        self.answer = answer
        self.asked: Counter[str] = Counter()
        self.most = self.open = 0
        self.lock = threading.Lock()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Count it while it is open."""
        with self.lock:
            self.open += 1
            self.most = max(self.most, self.open)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that has died."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, CountingServer)
        path = self.path[1:]
        with server.lock:
            server.asked[path] += 1
            status, body = server.answer(path)
        if status == NO_ANSWER:
            server.ends.wait()
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as given
        """Say nothing."""


@contextmanager
def serving(answer: Callable[[str], tuple[int, bytes]], port: int = 0) -> Iterator[CountingServer]:
    """Run a server within the block; ``port``: any, if 0."""
    with CountingServer(answer, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ends.set()
            server.shutdown()
            thread.join()
