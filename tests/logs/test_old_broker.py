"""A broker that is too old is refused at once, with the release that is needed."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from grete.errors import ConfigError
from grete.logs import patience
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.write.producer import KafkaWriter


@pytest.fixture
def old_broker() -> Iterator[str]:
    """Something that speaks Kafka as of 0.9: it knows its own name, and no idempotent producers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer(connection: socket.socket) -> None:
            # A client that has heard enough closes its end at any time.
            with suppress(OSError, struct.error), connection, connection.makefile("rb") as requests:
                while size := requests.read(4):
                    request = requests.read(struct.unpack(">i", size)[0])
                    key, version, correlation = struct.unpack_from(">hhi", request)
                    body = _versions(version) if key == 18 else _metadata(port, version)
                    connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{port}"
        server.shutdown(socket.SHUT_RDWR)


def _versions(version: int) -> bytes:
    """ApiVersions response 0, which is also the answer to a later request: Produce, Fetch, ListOffsets, Metadata."""
    keys = [(0, 0, 1), (1, 0, 1), (2, 0, 0), (3, 0, 1), (18, 0, 0)]
    unsupported = 35
    return struct.pack(">hi", unsupported if version else 0, len(keys)) + b"".join(
        struct.pack(">hhh", *each) for each in keys
    )


def _metadata(port: int, version: int) -> bytes:
    """Metadata response 0 or 1: one broker, no topics."""
    host = b"127.0.0.1"
    broker = struct.pack(f">iih{len(host)}si", 1, 1, len(host), host, port)
    return broker + (struct.pack(">hii", -1, 1, 0) if version else struct.pack(">i", 0))


def _is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"too old: Grete needs Kafka 2\.5"), closing(KafkaLog(address)) as log:
        log.create_topic("guarded", 1)


def test_a_broker_that_is_too_old_is_named(old_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without idempotent producers is refused with the release that is needed, at the first request at latest.

    The clients of a log find it out one by one, and the machine decides which of them is answered first.
    """
    monkeypatch.setattr(patience, "CONNECT_S_MAX", 5.0)
    _is_refused(old_broker)


def test_an_old_broker_is_named_by_the_first_request(old_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the log is connected before its producer has found out."""
    monkeypatch.setattr(KafkaWriter, "answers", lambda _: True)
    _is_refused(old_broker)
