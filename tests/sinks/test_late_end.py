"""The end of a transaction is asked for twice, and the first request arrives within the next transaction (S1)."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.execution.changelog.changelog_writer import find_outcome
from grete.job.topics import create_topics
from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
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
        cluster = stack.enter_context(Cluster(tmp_path_factory.mktemp("late") / "kafka", behind=[port]))
        yield Broker(cluster.bootstrap, "its jars"), stack.enter_context(LateEndLine(port, cluster.outside[0]))


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
    """Records written together by `grete dlq redrive`, or by a client's source, stay together, each once."""
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


def counting(name: str) -> Job:
    """Return a job with a sink, of one partition."""

    class Count(Task):
        given = Input(Topic(f"{name}.in", key=utf8, value=utf8))
        total = Store("total", key=utf8, value=int64)
        out = Output(Topic(f"{name}.out", key=utf8, value=utf8))

        def process(self, record: Record[str, str]) -> None:
            """Do nothing: no worker runs."""

    return Job(name, stages=[Count])


@pytest.mark.parametrize(("end", "first"), [("claim", ""), ("commit", "out"), ("commit", "count.changelog")])
def test_a_late_end_splits_no_bulk_write(late: tuple[Broker, LateEndLine], end: str, first: str) -> None:
    """The outputs of `grete backfill --outputs` appear with its outcome. The data that executors add stop nothing."""
    broker, line = late
    name = f"t{os.urandom(6).hex()}"
    job, settings, out = counting(name), Settings(), TopicPartition(f"{name}.out", 0)
    halves = (f"{name}.{first}", "") if first else ("", "")
    with closing(KafkaLog(f"127.0.0.1:{line.port}")) as log, closing(KafkaLog(broker.bootstrap)) as executor:
        for topic in (f"{name}.in", out.topic):
            log.create_topic(topic, 1, plain=True)
        create_topics(job, log)
        changelog = f"{name}.count.changelog"
        attempt = line.attempt(f"{changelog}-0", *halves)
        bulk_write = begin(log, job, settings, outputs=True)
        assert attempt.reaches(LateStage.REPEATED, LIMIT_S)
        data = Attempt(executor, bulk_write, 0, 1, (10,))
        data.add([10], [b"key"], [(1).to_bytes(8, "big")])
        written, outputs = data.close(), [ExternalRecord(out, b"k", b"1", 1)]
        if end == "commit":
            attempt = line.attempt(f"{changelog}-0", *halves)
        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(commit, log, bulk_write, [written], settings=settings, full=True, outputs=outputs)
            assert attempt.reaches(LateStage.LATE, LIMIT_S), (attempt.stage, committed)
            attempt.go_on()
            committed.result()
        assert (attempt.code, visible(broker, out)) == (FENCED, [b"1"])
        assert find_outcome(log, TopicPartition(changelog, 0), bulk_write.bulk_write_id) is True
