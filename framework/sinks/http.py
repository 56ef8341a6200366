"""A web service as a sink: one request an output, in order, each with a key of its own (S2)."""

import hashlib
import http.client
import io
import os
import socket
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from grete.api.serdes.serde import holds_json, utf8
from grete.api.sinks.http import Http, check_url, shown_url
from grete.api.sinks.sink import WAYS, Entry, Owner
from grete.api.sinks.table import FROM_ENVIRONMENT
from grete.errors import ConfigError, GraphError, Halted, OutputRefused, TransientError
from grete.halts import HaltCode
from grete.quoting import error_text

KEY = "Idempotency-Key"
_KEY_MAX = 255  # characters; services keep no longer ones
_TOLD_MAX = 300  # bytes of an answer that an error shows
_READ_BYTES, _ANSWER_BYTES_MAX = 1 << 16, 1 << 20  # of more, the connection is ended: a service has little to say
_PASSES = frozenset({408, 409, 425, 429})  # and 5xx: the same request may be taken later
_OF_ANY = frozenset({401, 403, 407})  # and 3xx: what is wrong is the way there, and no output can be taken


class HttpSink:
    """Sends what a task gives to one output. Not thread safe.

    The service remembers, not the sink: a new process begins with the first output of a checkpoint that it does not
    know to be applied, under the same keys. After trouble in this process it goes on behind the last answer.
    """

    def __init__(self, attribute: str, declared: Http[Any]) -> None:
        """Connect to nothing. Raises ConfigError: a variable of the environment is not set, or holds no url."""
        self._attribute = attribute
        url = _resolved(declared.url, f"{declared!r}: url")
        try:
            check_url(url, repr(declared))
        except GraphError as error:
            raise ConfigError(str(error)) from error
        self.name = f"web service {shown_url(declared.url)}"
        self._url = urlsplit(url)
        plain = "text/plain; charset=utf-8" if declared.value == utf8 else "application/octet-stream"
        self._headers = {"Content-Type": "application/json" if holds_json(declared.value) else plain}
        self._headers |= {name: _resolved(value, f"{declared!r}: header") for name, value in declared.headers.items()}
        self._timeout_s = declared.timeout_ms / 1000
        self.pace_ms = 0.0 if declared.per_second is None else 1000 / declared.per_second  # from one to the next
        self._owner = ""
        self._connection: http.client.HTTPConnection | None = None
        self._checkpoint_id = self._number = 0
        self._answered = -1, 0  # the last checkpoint of which an output was answered, and how many were
        self._refused: dict[int, OutputRefused] = {}  # of that checkpoint, by number

    def open(self, owner: Owner) -> int | None:
        """Forget the connection. Whether the service is there shows with the first output: a request would be one."""
        self.close()
        self._owner = f"{owner.job}/{owner.task}/{self._attribute}/{owner.nonce}"
        return None

    def begin(self, checkpoint_id: int) -> bool:
        """Begin a checkpoint; False if this process has sent it."""
        if checkpoint_id < self._answered[0]:
            return False
        self._checkpoint_id, self._number = checkpoint_id, 0
        if checkpoint_id > self._answered[0]:
            self._refused = {}
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Send outputs, one after another, but for those that were answered before trouble came.

        A refusal is told again: who asked before may have been gone when it came.
        """
        for index, (_, body) in enumerate(entries):
            refused = self._refused.get(self._number)
            if (self._checkpoint_id, self._number) >= self._answered:
                try:
                    self._send(body, self._key())
                except OutputRefused as error:
                    refused = self._refused[self._number] = error
            self.pass_over()
            if refused is not None:
                refused.index = index
                raise refused

    def pass_over(self) -> None:
        """Go on behind an output that was answered, or is not to be sent."""
        self._number += 1
        self._answered = max(self._answered, (self._checkpoint_id, self._number))

    def commit(self) -> None:
        """Do nothing: each output was visible when it was answered."""

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- One request ---

    def send_again(self, body: bytes, key: str) -> None:
        """Send an output that was refused once more, under the key that it had."""
        self._send(body, key)

    def _send(self, body: bytes, key: str) -> None:
        headers = self._headers | {KEY: key}
        reused = self._connection is not None
        try:
            try:
                status, told, wait_ms = self._request(body, headers)
            except (OSError, http.client.HTTPException):
                if not reused:
                    raise
                self.close()  # a service ends connections that have been idle: the key makes a second request safe
                status, told, wait_ms = self._request(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TransientError(
                f"{self.name} does not answer: {type(error).__name__}: {error}: check the service or the way to it"
            ) from error
        if 200 <= status < 300:
            return
        text = f"{self.name} has answered {status} to the output with {KEY} {headers[KEY]}: {error_text(told)}"
        if status >= 500 or status in _PASSES:
            self.close()
            asks = f", and asks for {wait_ms:,} ms of rest" if wait_ms else ""
            raise TransientError(f"{text}{asks}: check the service", wait_ms=wait_ms)
        advice = (
            ": repair the service, or what it is asked for, and start the job again: this output is sent first, with "
            "the same key"
        )
        if status < 400 or status in _OF_ANY:
            raise Halted(text + advice, code=HaltCode.SINK_REFUSES)
        raise OutputRefused(text, advice + WAYS, key=headers[KEY])

    def _request(self, body: bytes, headers: dict[str, str]) -> tuple[int, str, int]:
        """Return the status, the beginning of what the service said, and for how many ms it wants no other request."""
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            assert self._url.hostname is not None
            self._connection = kind(self._url.hostname, self._url.port, timeout=self._timeout_s)
            self._connection.response_class = _Answer
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._timeout_s)  # of the answer before, less was left
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        told = answer.read(_TOLD_MAX).decode(errors="replace")
        wait_ms = _wait_ms(answer.headers.get("Retry-After", ""))
        for _ in range(_ANSWER_BYTES_MAX // _READ_BYTES):
            if not answer.read(_READ_BYTES):  # to its end: else the connection cannot be used again
                return answer.status, told, wait_ms
        self.close()
        return answer.status, told, wait_ms

    def _key(self) -> str:
        """Return the key of the output: who sends it, its checkpoint, its number there. It is the same ever after."""
        key = f"{self._owner}/{self._checkpoint_id}/{self._number}"
        return key if len(key) <= _KEY_MAX else hashlib.sha256(key.encode()).hexdigest()


class _Answer(http.client.HTTPResponse):
    """An answer that has its time-out as a whole: of each byte alone, it could drip for ever."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock))


class _Until(io.RawIOBase):
    """A socket's bytes, with one time-out from now on for all reads together."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._bytes = sock, sock.makefile("rb", buffering=0)
        self._by_s = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any, /) -> int | None:
        """Read what is there. Raises TimeoutError."""
        left_s = self._by_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("its answer has not ended in time")
        self._socket.settimeout(left_s)
        return self._bytes.readinto(into)

    def close(self) -> None:
        """Let go of the socket."""
        self._bytes.close()
        super().close()


def _wait_ms(text: str) -> int:
    """Return the ms that a ``Retry-After`` asks for: seconds, or a date (RFC 9110); 0: it says neither."""
    if text.isascii() and text.isdecimal():
        return int(text[:9]) * 1_000
    try:
        return max(0, int(1_000 * (parsedate_to_datetime(text).timestamp() - time.time())))
    except (ValueError, OverflowError):
        return 0


def _resolved(text: str, what: str) -> str:
    """Return a text, from the environment if that is where it is, without a newline at its end. Raises ConfigError."""
    if not text.startswith(FROM_ENVIRONMENT):
        return text
    name = text.removeprefix(FROM_ENVIRONMENT)
    if not (value := os.environ.get(name, "").rstrip("\r\n")):  # a secret that is mounted as a file ends in one
        raise ConfigError(f"{what}: environment variable {name} is not set: set it for the worker")
    if not (value.isprintable() and value.isascii()):
        raise ConfigError(
            f"{what}: environment variable {name} holds a newline within its text, or another character that no header "
            "may have: set it to one line of ASCII"  # never the value: it is a secret
        )
    return value
