"""Calls of a schema registry: what is asked again, and what an answer means for the record or for the job."""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from grete.errors import ConfigError, FrameworkError, SerdeError, TransientError

T = TypeVar("T")

PATIENCE_S = 30.0  # a rolling restart of a registry takes less; a worker that waits is not taken for a hung one
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.1, 2.0
_TIMEOUT_S = 10.0  # of one request
AWAY = (408, 429, 500, 502, 503, 504)  # what confluent-kafka asks again for, too
_MAGIC = (0, 1)  # the first byte: an id of 4 bytes follows, or a guid of 16
_MAGIC_BYTES = {0: 5, 1: 17}

logger = logging.getLogger("grete.registry")


def connect(url: str, conf: dict[str, Any]) -> Any:
    """Return a client of confluent-kafka, which asks once: the asking again is ours. Raises ConfigError."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"a schema registry needs more packages ({error.name}): pip install 'grete[registry]'"
        ) from error
    try:
        return SchemaRegistryClient.new_client({"timeout": _TIMEOUT_S, **conf, "url": url, "max.retries": 0})
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"schema registry {_shown(url)}: {error}") from error


def patiently(url: str, call: Callable[[], T], *, pause: Callable[[float], None] = time.sleep) -> T:
    """Return the result of the call, which is made again while the registry does not answer, for PATIENCE_S seconds.

    One line says that it is away, one that it is back. Raises TransientError then: the worker starts again, at its last
    commit. Whatever else the call raises passes.
    """
    waited, next_pause = 0.0, _FIRST_PAUSE_S
    while True:
        try:
            result = call()
        except Exception as error:
            if not _is_away(error):
                raise
            if waited >= PATIENCE_S:
                raise TransientError(
                    f"schema registry {_shown(url)} has not answered for {PATIENCE_S:.0f} s ({_text(error)}): nothing "
                    "is lost, the task begins again at its last commit: start the registry, or correct its url"
                ) from error
            if not waited:
                logger.warning(
                    "schema registry %s does not answer (%s): asking again for %.0f s, and nothing is processed "
                    "meanwhile",
                    _shown(url),
                    _text(error),
                    PATIENCE_S,
                )
            pause(next_pause)
            waited += next_pause
            next_pause = min(2 * next_pause, _PAUSE_S_MAX)
        else:
            if waited:
                logger.warning("schema registry %s answers again", _shown(url))
            return result


def check_framing(data: bytes) -> None:
    """Raise ValueError if bytes do not begin with a schema id."""
    if not data or data[0] not in _MAGIC:
        begins = f"begin with {data[0]:#04x}, not with 0" if data else "are none"
        raise ValueError(
            f"no schema id: its bytes {begins}, not with 0 and an id, as a registry's serializer writes them"
        )
    if len(data) < _MAGIC_BYTES[data[0]]:
        raise ValueError(f"no schema id: it has {len(data)} bytes, and the id alone takes {_MAGIC_BYTES[data[0]]}")


def of_a_record(url: str, error: Exception) -> FrameworkError | None:
    """Return the error of a record that the registry's answer means; None: it was not the registry."""
    if _status(error) == 404:
        return SerdeError(f"its schema is not in schema registry {_shown(url)}: {_text(error)}")
    return _refusal(url, error)


def of_a_schema(url: str, subject: str, error: Exception) -> FrameworkError | None:
    """Return the ConfigError that the registry's answer means for a schema, as no record could be sent; or None."""
    means = {
        404: "does not have the schema of this code ({}): register it, or leave register=False out",
        409: "refuses the schema of this code as incompatible ({}): change the schema so that it fits, or the "
        "compatibility of the subject",
        422: "refuses the schema of this code as invalid ({}): correct it",
    }.get(_status(error))
    if means is None:
        return _refusal(url, error)
    return ConfigError(f"subject {subject} of schema registry {_shown(url)} {means.format(_text(error))}")


def _refusal(url: str, error: Exception) -> FrameworkError | None:
    if _status(error) in (401, 403):
        return ConfigError(
            f"schema registry {_shown(url)} refuses these credentials ({_text(error)}): give others in "
            'SchemaRegistry(…, client={"basic.auth.user.info": "user:password"})'
        )
    return None if _status(error) == 0 else ConfigError(f"schema registry {_shown(url)}: {_text(error)}")


def _status(error: Exception) -> int:
    """Return the HTTP status that the registry has answered with; 0: the error is none of the registry's."""
    return int(getattr(error, "http_status_code", 0))


def _is_away(error: Exception) -> bool:
    """Tell whether a call may succeed later: no answer, or one that says so."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    return isinstance(error, httpx.TransportError) or _status(error) in AWAY


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _shown(url: str) -> str:
    """Return a url without the password in it."""
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme else url
