"""Workers on Kafka that are killed in the middle of calls, to a service in all kinds of trouble."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.support import waiting
from tests.support.http_server import NO_ANSWER, CountingServer, serving

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

JOB = """
from urllib.request import urlopen

from grete import Call, Input, Job, Output, Record, Store, Task, Topic, int64, utf8


def ask(what: str) -> int:
    with urlopen(f"URL/{what}", timeout=30) as answer:
        return int(answer.read())


class Ask(Task):
    in_flight = 16

    records = Input(Topic("NAME-asked", key=utf8, value=utf8))
    ask = Call(ask, result=int64, timeout_ms=TIMEOUT, attempts=50)
    last = Store("last", key=utf8, value=int64)
    answers = Output(Topic("NAME-answered", key=utf8, value=utf8))

    async def process(self, record: Record[str, str]) -> None:
        number = await self.ask(record.value)
        self.last.put(record.key, number)
        self.answers.send(record.key, f"{record.value} {number}")


job = Job("NAME", stages=[Ask], partitions=2, mode="MODE")
"""
TIMEOUT_MS = 2_000
RECORDS, KEYS = 240, 20
ASKED = 10, 60, 110  # when a worker is killed
SETTINGS = Settings(checkpoint_interval_ms=100, restart_backoff_ms=20, batch_bytes_max=600)


class Service:
    """Gives each request another number; the first one for some things has an error, or no answer."""

    def __init__(self) -> None:
        self._numbers, self._asked = itertools.count(1), set[str]()

    def answer(self, what: str) -> tuple[int, bytes]:
        """Return the status and the number."""
        is_first = what not in self._asked
        self._asked.add(what)
        if is_first and int(what) % 10 == 3:
            return 500, b""
        if is_first and int(what) % 60 == 7:
            return NO_ANSWER, b""
        return 200, b"%d" % next(self._numbers)


class Asking:
    """The job on a broker, with what readers see of it."""

    def __init__(self, directory: Path, broker: Broker, mode: str, url: str) -> None:
        """Start its workers, and feed it."""
        self.name = f"calls-{mode}"
        text = JOB.replace("URL", url).replace("NAME", self.name).replace("MODE", mode)
        reference = directory / f"asking_{mode}.py"
        reference.write_text(text.replace("TIMEOUT", str(TIMEOUT_MS)))
        self.job = load_job(str(reference))
        place = JobDirectory(directory / "job", address=LogAddress(f"kafka://{broker.bootstrap}"))
        self.local = LocalJob(self.job, str(reference), place, SETTINGS, inputs=OutsideInputs({f"{self.name}-asked"}))
        keyed = [(b"k%d" % (n % KEYS), n) for n in range(RECORDS)]
        self.partitions = [partition_of(key, 2) for key, _ in keyed]
        now = time.time_ns() // 1_000_000  # Kafka deletes what is of long ago
        records = [
            ExternalRecord(TopicPartition(f"{self.name}-asked", p), key, b"%d" % n, now + n)
            for p, (key, n) in zip(self.partitions, keyed, strict=True)
        ]
        self.local.metadata.produce_with_meta(records, {})
        self.starts = -1

    def seen(self) -> list[list[LogRow]]:
        """Return the rows that a reader of each partition of the output sees now."""
        topic = f"{self.name}-answered"
        log, places = self.local.log, [TopicPartition(topic, partition) for partition in range(2)]
        return [list(rows(log, place, 0, log.bounds(place)[1])) for place in places]

    def kill(self, number: int) -> None:
        """Kill a worker."""
        self.local.supervisor.kill(number % 2)


@contextmanager
def asking(directory: Path, broker: Broker, mode: str, server: CountingServer) -> Iterator[Asking]:
    """Run the job within the block."""
    scene = Asking(directory, broker, mode, server.url)
    with scene.local:
        yield scene


def until(scene: Asking, happened: Callable[[], object]) -> None:
    """Let the supervisor work until ``happened`` returns something true."""
    waiting.until(happened, step=lambda: scene.local.poll(5), saw=scene.local.committed)


def in_the_middle(server: CountingServer, asked: int) -> bool:
    """Tell whether calls are open, after as many requests."""
    return server.asked.total() >= asked and server.open > 0


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_calls_survive_kills_and_a_service_in_trouble(mode: str, tmp_path: Path, kafka_broker: Broker) -> None:
    """Each record comes out once, in order, with one answer, that of its state; what was seen early stays to the byte.

    The service has errors, does not answer in time, and goes away and comes back; workers die while calls are open.
    """
    service, early = Service(), list[list[list[LogRow]]]()
    with serving(service.answer) as server, asking(tmp_path, kafka_broker, mode, server) as scene:
        for number, asked in enumerate(ASKED):
            until(scene, partial(in_the_middle, server, asked))
            if asked == ASKED[-1]:
                until(scene, lambda: server.open > 0 and any(scene.seen()))
            early.append(scene.seen())
            scene.kill(number)
        assert any(early[-1])
        before = sum(server.asked.values())
        server.answer = lambda _: (503, b"")  # for all: those that have had their answer go on
        until(scene, lambda: sum(server.asked.values()) > before + 20)
        port = server.server_port
        server.ends.set()
        server.shutdown()
        server.server_close()  # connections are refused from here on
        scene.kill(0)
        worker = scene.local.supervisor.workers[0]
        until(scene, lambda: worker.reports.tasks)
        early.append(scene.seen())
        with serving(service.answer, port) as again:
            ends = scene.local.ends()
            until(scene, lambda: scene.local.drained(ends))
            assert again.asked
        scene.local.stop()
        found = scene.seen()
    check(scene, found, early)


def check(scene: Asking, found: list[list[LogRow]], early: list[list[list[LogRow]]]) -> None:
    """Compare what came out with the input, with the state, and with what was seen before."""
    answers = dict[int, int]()
    for partition, sent in enumerate(found):
        pairs = [(int(record), int(answer)) for record, answer in ((row.value or b"").split() for row in sent)]
        assert [record for record, _ in pairs] == [n for n in range(RECORDS) if scene.partitions[n] == partition]
        answers |= dict(pairs)
    assert len(set(answers.values())) == len(answers) == RECORDS
    with LocalReader(scene.local.job_directory.state_directory, scene.job) as reader:
        last = dict(reader.all(scene.job.stages[0].stores["last"]))
    assert last == {f"k{key}": answers[max(range(key, RECORDS, KEYS))] for key in range(KEYS)}
    for moment in early:
        for before, now in zip(moment, found, strict=True):
            assert now[: len(before)] == before
