"""A web service as a sink: one request an output, in order, each with a key of its own (S2)."""

import hashlib
import http.client
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from framework.api.http import Http, check_url, shown_url
from framework.api.sink import Entry, Owner
from framework.api.table import FROM_ENVIRONMENT
from framework.errors import ConfigError, GraphError, Halted, TransientError
from framework.halts import HaltCode

KEY = "Idempotency-Key"
_KEY_MAX = 255  # characters; services keep no longer ones
_TOLD_MAX = 300  # bytes of an answer that an error shows
_PASSES = frozenset({408, 409, 425, 429})  # and 5xx: the same request may be taken later
_TYPES = {"json": "application/json", "utf8": "text/plain; charset=utf-8"}  # by the beginning of the serde's name


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
        self._path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        kind = declared.value.name.partition("(")[0]
        self._headers = {"Content-Type": _TYPES.get(kind, "application/octet-stream")}
        self._headers |= {name: _resolved(value, f"{declared!r}: header") for name, value in declared.headers.items()}
        self._timeout_s = declared.timeout_ms / 1000
        self._owner = ""
        self._connection: http.client.HTTPConnection | None = None
        self._checkpoint_id = self._number = 0
        self._answered = (-1, 0)  # the last checkpoint of which an output was taken, and how many of its outputs were

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
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Send outputs, one after another, but for those that were answered before trouble came."""
        for _, body in entries:
            if (self._checkpoint_id, self._number) >= self._answered:
                self._send(body)
                self._answered = self._checkpoint_id, self._number + 1
            self._number += 1

    def commit(self) -> None:
        """Do nothing: each output was visible when it was answered."""

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- One request ---

    def _send(self, body: bytes) -> None:
        headers = self._headers | {KEY: self._key()}
        reused = self._connection is not None
        try:
            try:
                status, told = self._request(body, headers)
            except (OSError, http.client.HTTPException):
                if not reused:
                    raise
                self.close()  # a service ends connections that have been idle: the key makes a second request safe
                status, told = self._request(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TransientError(
                f"{self.name} does not answer: {type(error).__name__}: {error}: look after the service or the way to it"
            ) from error
        if 200 <= status < 300:
            return
        text = f"{self.name} has answered {status} to the output with {KEY} {headers[KEY]}: {told}"
        if status >= 500 or status in _PASSES:
            self.close()
            raise TransientError(f"{text}: look after the service")
        raise Halted(
            f"{text}: repair the service, or what it is asked for, and start the job again: this output is sent first, "
            "with the same key",
            code=HaltCode.SINK_REFUSES,
        )

    def _request(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status, and the beginning of what the service said."""
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            assert self._url.hostname is not None
            self._connection = kind(self._url.hostname, self._url.port, timeout=self._timeout_s)
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        told = answer.read(_TOLD_MAX).decode(errors="replace")
        while answer.read(1 << 16):  # to its end: else the connection cannot be used again
            pass
        return answer.status, told

    def _key(self) -> str:
        """Return the key of the output: who sends it, its checkpoint, its number there. It is the same ever after."""
        key = f"{self._owner}/{self._checkpoint_id}/{self._number}"
        return key if len(key) <= _KEY_MAX else hashlib.sha256(key.encode()).hexdigest()


def _resolved(text: str, what: str) -> str:
    """Return a text, from the environment if that is where it is. Raises ConfigError."""
    if not text.startswith(FROM_ENVIRONMENT):
        return text
    name = text.removeprefix(FROM_ENVIRONMENT)
    if not (value := os.environ.get(name, "")):
        raise ConfigError(f"{what}: environment variable {name} is not set: set it for the worker")
    return value
