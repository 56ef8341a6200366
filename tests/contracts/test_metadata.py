"""The metadata of a job keeps its contract on each log (framework/testing/contracts/metadata.py)."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.logs.address import EMBEDDED, open_log
from grete.ports import JobMetadata
from grete.testing.broker import Broker
from grete.testing.contracts import MetadataContract


class TestMetadata(MetadataContract):
    """On SQLite and on Kafka."""

    @pytest.fixture(params=[EMBEDDED, pytest.param("kafka", marks=pytest.mark.kafka)])
    def begin(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], JobMetadata]]:
        """Return a new job's metadata; each connection ends with the test."""
        address = EMBEDDED
        if request.param != EMBEDDED:
            broker: Broker = request.getfixturevalue("kafka_broker")
            address = f"kafka://{broker.bootstrap}"
        job = f"pinned-{os.urandom(6).hex()}"
        with ExitStack() as opened:
            yield lambda: opened.enter_context(closing(open_log(address, tmp_path / "log.db"))).open_metadata(job)
