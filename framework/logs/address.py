"""Opens the log that a command line names."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from grete.errors import ConfigError
from grete.logs.embedded import EmbeddedLog, EmbeddedReader
from grete.logs.patience import Patience
from grete.ports import READS, JobLog, JobLogReader, Reads
from grete.trusted import require_own

EMBEDDED, KAFKA = "embedded", "kafka://"
_LOADS_CODE = frozenset(  # a library, or a command
    {"plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"}
)
_OWN = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):([A-Za-z_]\w*):(.+)")
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):(\d{1,5})")
PORTS = range(1, 1 << 16)


class LogAddress(NamedTuple):
    """The address of a log, as on a command line. Of the options only the file's name: they may be secret."""

    url: str = EMBEDDED
    config: Path | None = None

    @property
    def embedded(self) -> bool:
        """Whether it is a file in the job's directory."""
        return self.url == EMBEDDED

    @property
    def on_kafka(self) -> bool:
        """Whether it is Kafka. Then several machines may run a job, and other programs create its external topics."""
        return self.url.startswith(KAFKA)

    def arguments(self) -> list[str]:
        """Return the options by which a worker's command line names it."""
        return [f"--log={self.url}", *([] if self.config is None else [f"--kafka-config={self.config.absolute()}"])]


IN_DIRECTORY = LogAddress()


def check_address(address: LogAddress) -> str:
    """Return Kafka's hosts, "" for another log. Raises ConfigError for a url that names none."""
    url = address.url
    if url == EMBEDDED or _OWN.fullmatch(url):
        return ""
    hosts = url.removeprefix(KAFKA)
    if hosts == url or not all(map(_is_host, hosts.split(","))):
        shown = url if "@" not in url else "(it has a password, so it is not shown)"
        raise ConfigError(
            f"log {shown}: write {EMBEDDED} or {KAFKA}host:port[,host:port], or MODULE:CLASS:PLACE for a log of your "
            "own; users and passwords are options (sasl.*)"
        )
    return hosts


def _own_log(url: str, *, to_read: bool = False) -> Any:
    """Return the log that MODULE:CLASS makes of PLACE, or its ``reader``; None for another url. Raises ConfigError."""
    found = _OWN.fullmatch(url)
    if found is None:
        return None
    try:
        made_by = getattr(import_module(found[1]), found[2])
        made_by = made_by.reader if to_read else made_by
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"log {found[1]}:{found[2]}: {error}: name a module that can be imported, and a class in it with a reader"
        ) from error
    return made_by(found[3])


def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and int(found[2]) in PORTS


def open_log(
    url: str,
    path: Path,
    options: dict[str, str] | None = None,
    *,
    group: str = "grete",
    create: bool = True,
    patience: Patience | None = None,
    reads: Reads = READS,
) -> JobLog:
    """Return ``embedded`` (the file ``path``), ``kafka://host:port[,host:port…]``, or that of MODULE:CLASS:PLACE.

    ``options`` are librdkafka's.
    ``create``: make the file if there is none. ``patience``: with brokers that do not answer. ``reads``: how it
    will be read. Raises ConfigError for another url, and what the log raises.
    """
    hosts = check_address(LogAddress(url))
    own: JobLog | None = _own_log(url)
    if own is not None:
        return own
    if not hosts:
        return EmbeddedLog(path, create=create)
    from grete.logs.kafka import KafkaLog

    return KafkaLog(hosts, options, group=group, patience=patience, reads=reads)


def open_address(
    address: LogAddress,
    path: Path,
    *,
    group: str = "grete",
    create: bool = True,
    patience: Patience | None = None,
    reads: Reads = READS,
) -> JobLog:
    """Return the log at an address, with the options in its file. Raises what ``open_log`` and the file raise."""
    options = None if address.config is None else read_options(address.config)
    return open_log(address.url, path, options, group=group, create=create, patience=patience, reads=reads)


def open_reader(address: LogAddress, path: Path, *, group: str = "grete") -> JobLogReader:
    """Return the reading half of the log at an address; ``path``: the file of an embedded one. It can write nothing.

    Raises ConfigError if there is no file, and what the log and the file of options raise.
    """
    hosts = check_address(address)
    own: JobLogReader | None = _own_log(address.url, to_read=True)
    if own is not None:
        return own
    if not hosts:
        return EmbeddedReader(path)
    options = None if address.config is None else read_options(address.config)
    from grete.logs.kafka import KafkaReader

    return KafkaReader.connect(hosts, options, group=group)


def read_options(path: Path) -> dict[str, str]:
    """Return the options in a file of lines NAME=VALUE, with librdkafka's names; # begins a comment line.

    Raises ConfigError naming the line, never its text.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"--kafka-config {path}: {reason}: name a file of lines NAME=VALUE") from None
    options: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise ConfigError(f"--kafka-config {path}, line {number} (not shown, it may be secret): write NAME=VALUE")
        if name in options:
            raise ConfigError(f"--kafka-config {path}, line {number}: {name} is given twice: leave one")
        options[name] = value
        if name.removeprefix("producer.").removeprefix("consumer.") in _LOADS_CODE:
            require_own(path, f"leave {name} out, which runs code, or make the file your own")
    from grete.logs.kafka.client.config import hidden

    return hidden(options)
