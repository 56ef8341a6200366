"""A web service in a process of its own: it books each key once, and stops at chosen requests until its owner answers.

python -m tests.sinks.ledger_service PLAN     PLAN: {"number of the request": what happens}

"taken": it books, says so, and answers when it is told to. "slow": it says so at once, and books when another request
has brought the same key. A number: the status that it answers with, nothing booked. A body with "bad" in it is never
booked, and answered 422. It prints its port, then for each stop the Idempotency-Key. GET returns what was booked, as
JSON.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMIT_S = 180.0


class Ledger:
    """The booked outputs, in their order: [key, body]."""

    def __init__(self, plan: dict[str, str | int]) -> None:
        self.plan, self.requests = plan, 0
        self.booked: list[tuple[str, str]] = []
        self.repeated: list[tuple[str, str]] = []
        self._bodies: dict[str, str] = {}
        self._changed = threading.Condition()

    def next(self) -> str | int | None:
        """Return the fate of the request that has come."""
        with self._changed:
            self.requests += 1
            return self.plan.get(str(self.requests))

    def book(self, key: str, body: str) -> None:
        """Book a body, unless its key is known."""
        with self._changed:
            known = key in self._bodies
            (self.repeated if known else self.booked).append((key, body))
            self._bodies.setdefault(key, body)
            self._changed.notify_all()

    def wait_for(self, key: str) -> None:
        """Wait until a key is booked."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._bodies, LIMIT_S):
                raise TimeoutError(f"{key} did not come a second time")


class Handler(BaseHTTPRequestHandler):
    """Answers on one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    ledger: Ledger
    owner = threading.Lock()  # one stop at a time is told and answered

    def do_POST(self) -> None:
        """Book an output."""
        key, length = self.headers["Idempotency-Key"], int(self.headers["Content-Length"])
        if len(raw := self.rfile.read(length)) < length:
            self.close_connection = True  # its client died within the request, which is none
            return
        body = raw.decode()
        happens = self.ledger.next()
        if isinstance(happens, int):
            self._answer(happens, b"not now")
            return
        if happens == "slow" and "bad" not in body:
            self._stop(key)
            self.ledger.wait_for(key)
        if "bad" not in body:
            self.ledger.book(key, body)
        if happens == "taken":
            self._stop(key)
        self._answer(*((422, b"said why") if "bad" in body else (200, b"")))

    def do_GET(self) -> None:
        """Tell what was booked."""
        told = {"requests": self.ledger.requests, "booked": self.ledger.booked, "repeated": self.ledger.repeated}
        self._answer(200, json.dumps(told).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stop(self, key: str) -> None:
        with self.owner:
            _say(key)
            sys.stdin.readline()


class Service(ThreadingHTTPServer):
    """Says nothing of a client that has died."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Print nothing."""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the process is ended."""
    Handler.ledger = Ledger(json.loads(sys.argv[1]))
    with Service(("127.0.0.1", 0), Handler) as service:
        _say(str(service.server_port))
        service.serve_forever()


if __name__ == "__main__":
    main()
