"""Opens the log that a command line names."""

import re
from pathlib import Path

from framework.errors import ConfigError
from framework.logs.embedded import EmbeddedLog
from framework.ports import Log

EMBEDDED, KAFKA = "embedded", "kafka://"
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}")


def open_log(url: str, path: Path, options: dict[str, str] | None = None, *, group: str = "grete") -> Log:
    """Return ``embedded`` (the file ``path``) or ``kafka://host:port[,host:port…]``. ``options`` are librdkafka's.

    Raises ConfigError for another url, and what the log raises.
    """
    if url == EMBEDDED:
        return EmbeddedLog(path)
    hosts = url.removeprefix(KAFKA)
    if hosts == url or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        shown = url if "@" not in url else "(it has a password, so it is not shown)"
        raise ConfigError(
            f"log {shown}: write {EMBEDDED} or {KAFKA}host:port[,host:port]; users and passwords are options (sasl.*)"
        )
    from framework.logs.kafka import KafkaLog

    return KafkaLog(hosts, options, group=group)
