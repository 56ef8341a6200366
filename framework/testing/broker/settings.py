"""Shared by both kinds of broker: version, settings, a free port, and whether one answers."""

import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

from grete.errors import ConfigError

KAFKA = "4.1.0"  # the version that the measurements in docs/ were made with; docker-compose.yml has the same
ANSWER_S_MAX = 180.0  # elections behind a start: beside twenty busy processes they took more than a minute


def settings() -> dict[str, str]:
    """Return the broker settings that docker-compose.yml uses, too."""
    lines = (Path(__file__).parent / "server.properties").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def free_port() -> int:
    """Return a port of this host that no process listens at now, and that this process has not been given before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:  # the kernel may give it again before a broker, which gets several, listens at it
            _given.add(port)
            return port


_given: set[int] = set()


def answers(bootstrap: str, alive: Callable[[], bool]) -> None:
    """Wait until the broker does what it is asked. Raises ConfigError if it ends, or does not within three minutes."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("grete.kafka.start")
    quiet.setLevel(logging.CRITICAL)  # refused connections are what is expected at first
    client = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200}, logger=quiet)
    deadline = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline and alive():
        try:
            if client.list_topics(timeout=0.5).brokers:
                return
        except KafkaException:
            continue
    raise ConfigError(f"the broker at {bootstrap} {'does not answer' if alive() else 'has ended'}")
