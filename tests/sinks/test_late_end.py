"""The end of a transaction is asked for twice, and the first request arrives within the next transaction (S1)."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path

import pytest

from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from grete.testing.broker.settings import free_port
from grete.testing.late_end import LateEndLine, LateStage
from tests.logs.outputs import visible
from tests.sinks.late_end_scene import LIMIT_S, MODES, Found, LateEndScene
from tests.verification.chaos.cluster import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # a broker of its own

FENCED = 47  # INVALID_PRODUCER_EPOCH


@pytest.fixture(scope="module")
def late(kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, LateEndLine]]:
    """Yield a broker, and the line by which the workers reach it."""
    del kafka_broker  # asked for because it says whether jars can be had here
    port = free_port()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path_factory.mktemp("late") / "kafka", behind=port))
        yield Broker(cluster.bootstrap, "its jars"), stack.enter_context(LateEndLine(port, cluster.outside))


@pytest.mark.parametrize("mode", MODES)
def test_a_late_end_splits_no_transaction(late: tuple[Broker, LateEndLine], mode: str, tmp_path: Path) -> None:
    """S1: killed there or not, whichever half is in the log first: each output once, and no worker ends by it."""
    with LateEndScene(*late, tmp_path, mode) as scene:
        scene.feed()
        scene.outputs()
        answers = [
            scene.attempt(outputs_first=outputs_first, killed=killed)
            for outputs_first, killed in product((False, True), repeat=2)
        ]
        assert scene.found() == Found((), (), ())
        assert (answers, scene.ends) == ([FENCED] * 4, []), scene.log.read_text()[-2_000:]


def test_a_late_end_splits_no_command(late: tuple[Broker, LateEndLine]) -> None:
    """What `grete dlq redrive` and a source of a client write together stays together, each record once."""
    broker, line = late
    name = f"t{os.urandom(6).hex()}"
    at, notes = TopicPartition(f"{name}.in", 0), TopicPartition(f"{name}.notes", 0)
    with closing(KafkaLog(f"127.0.0.1:{line.port}")) as log:
        log.create_topic(at.topic, 1, plain=True)
        metadata = log.open_metadata(name, transactional=f"{name}.redrive")

        def write(number: int) -> None:
            records = [ExternalRecord(at, b"k", b"%d" % number, 1)]
            metadata.produce_with_meta(records, {"redriven/x/0": b"%d" % number})

        attempt = line.attempt(f"{name}.redrive", at.topic, notes.topic)
        write(0)
        assert attempt.reaches(LateStage.REPEATED, LIMIT_S)
        writing = threading.Thread(target=write, args=[1])
        writing.start()
        assert attempt.reaches(LateStage.LATE, LIMIT_S)
        attempt.go_on()
        writing.join()
        assert (attempt.code, visible(broker, at), visible(broker, notes)) == (FENCED, [b"0", b"1"], [b"0", b"1"])
