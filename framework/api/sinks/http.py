"""A web service as a sink: each output is a request, with a key by which the service knows it again (S2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from grete.api.serdes.serde import Serde
from grete.api.sinks.table import FROM_ENVIRONMENT
from grete.errors import GraphError

V = TypeVar("V")


@dataclass(frozen=True, slots=True, repr=False)
class Http(Generic[V]):
    """A url that gets each output as the body of a POST, once its checkpoint is committed.

    A task sends its outputs one after another, in their order. Each has a header ``Idempotency-Key``, the same whenever
    it is sent again: after a crash, or when no answer came. A service that does nothing for a key that it has seen gets
    each output once; any other one, at least once.

    ``url``: http:// or https://, or ``env:NAME`` for one in an environment variable of the worker. ``headers``: more of
    them; a value ``env:NAME`` comes from the environment, too, as a token should. ``timeout_ms``: for an answer.
    ``per_second``: the most requests of the whole job in a second; each task has its share, by the number of partitions
    of the stage. Raises GraphError for a url that is no such thing, or that holds a password.
    """

    url: str
    value: Serde[V]
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    timeout_ms: int = field(default=10_000, kw_only=True)
    per_second: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what can be checked without the service."""
        if not self.url.startswith(FROM_ENVIRONMENT):
            check_url(self.url, repr(self))
        if self.timeout_ms < 1:
            raise GraphError(f"{self!r}: timeout_ms = {self.timeout_ms}: need 1 or more")
        if self.per_second is not None and not 0 < self.per_second < inf:
            raise GraphError(f"{self!r}: per_second = {self.per_second}: need a number above 0")
        for name, value in self.headers.items():
            if not name or not all(c.isprintable() and c != " " for c in name) or not value.isprintable():
                raise GraphError(f"{self!r}: header {name!r}: need a name without spaces, and a value of one line")

    def __repr__(self) -> str:
        return f"Http({shown_url(self.url)!r})"  # never the headers: some are secrets


def check_url(url: str, what: str) -> None:
    """Raise GraphError if a url is none of a web service, or has a password in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GraphError(f"{what}: url must be http://host/path, https://host/path or env:NAME")
    try:
        plain = url.isascii() and url.isprintable() and " " not in url and parts.port != 0
    except ValueError:  # the port; its text says what the url says
        plain = False
    if not plain:  # never the url itself: a part of it may be secret
        raise GraphError(f"{what}: url must be ASCII without spaces, with a number as its port: encode the rest by %")
    if parts.username is not None:
        raise GraphError(f"{what}: there is a password in the url: put it into a header, from the environment")


def shown_url(url: str) -> str:
    """Return a url without what may be secret: a user, a query."""
    if url.startswith(FROM_ENVIRONMENT):
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
