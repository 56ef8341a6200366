"""Access to the server: under which names, with which token, from which sites.

A browser may be made to ask any address by any site. So what is asked under a foreign name is refused (a foreign name
may resolve to this machine), nothing but GET is answered, and no other site may read, frame or script what is served.
"""

import hmac
import ipaddress
import platform
import socket
from pathlib import Path
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from grete.errors import ConfigError
from grete.settings import Settings

TOKEN_BYTES_MIN = 16  # a shorter one can be guessed

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


class Access(NamedTuple):
    """The host names, beside those of this machine, and the token that requests must have, None: they need none."""

    hosts: tuple[str, ...] = ()
    token: bytes | None = None


OPEN = Access()  # to all who reach the address, under the names of this machine


def access_of(settings: Settings) -> Access:
    """Return the access that the settings give. Raises ConfigError: the file of the token is of no use."""
    if not settings.http_token_file:
        return Access(settings.hosts)
    try:
        token = Path(settings.http_token_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"setting http_token_file = {settings.http_token_file}: {error.strerror}: name a file with a token that "
            "this user may read",
            setting="http_token_file",
        ) from error
    if len(token) < TOKEN_BYTES_MIN or not token.isascii() or len(token.split()) != 1:
        raise ConfigError(
            f"setting http_token_file = {settings.http_token_file}: it has {len(token)} bytes: write one word of "
            f"{TOKEN_BYTES_MIN} or more letters and digits into it, as of `openssl rand -hex 32`",
            setting="http_token_file",
        )
    return Access(settings.hosts, token)


class HostGuard:
    """Answers only what is asked under a name of this machine, and tells browsers to keep other sites out.

    ``/livez`` says nothing of a job, and who asks for it may know the machine by any name, unless only this one is
    served, and needs no token.
    """

    def __init__(self, app: ASGIApp, host: str, access: Access) -> None:
        """``host``: the address that is served."""
        self._app, self._token = app, access.token
        self._strict = _loopback(host)
        node = platform.node().lower()
        own = {"localhost", host.lower(), node, node.partition(".")[0], socket.getfqdn().lower(), _DOCKER}
        self._names = own.union(access.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        open_to_all = scope["path"] == "/livez" and not self._strict
        headers = dict(scope["headers"])
        if scope["path"] != "/livez" and not self._holds_token(headers.get(b"authorization", b"")):
            text = "this needs the token of http_token_file: send the header Authorization: Bearer TOKEN\n"
            refused = {**_HEADERS, "www-authenticate": "Bearer"}
            return await Response(text, 401, headers=refused, media_type="text/plain")(scope, receive, send)
        if not open_to_all and not self._known(headers.get(b"host", b"").decode("latin-1")):
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

    def _holds_token(self, header: bytes) -> bool:
        """Tell whether a request may be answered; all of the token is compared, however soon it differs."""
        return self._token is None or hmac.compare_digest(header, b"Bearer " + self._token)

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
