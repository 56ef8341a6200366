"""Topics that records name, on both logs, with workers that are killed: each record is there once, no topic more."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from grete import client
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.job.named_topics import check_bounds, named_topics, topics_there
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tasks.demo.kills import is_running, kill_worker, wipe_state
from tests.cli.test_run import grete
from tests.support.waiting import until

JOB = """
from grete import DeadLetter, Input, Job, Output, Record, Task, Topic, TopicPattern, utf8

by_tenant = TopicPattern("NAME-of-{tenant}", key=utf8, value=utf8, by=lambda _, text: text.split()[0], at_most=5)


class Route(Task):
    alerts = Input(Topic("NAME-alerts", key=utf8, value=utf8), errors=DeadLetter(Topic("NAME-letters", utf8, utf8)))
    out = Output(by_tenant)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value)


job = Job("NAME", stages=[Route], partitions=2)
"""
SETTINGS = Settings(checkpoint_interval_ms=50, restarts_max=1000, restart_backoff_ms=20, restart_backoff_ms_max=200)
RECORDS, KEYS, KILLS = 240, 16, 4


class Routing:
    """The job on a log: ``feed`` it, ``work``, and look at what is there."""

    def __init__(self, directory: Path, name: str, address: LogAddress | None = None) -> None:
        self.name, self.directory, self.fed = name, directory, list[tuple[bytes, bytes]]()
        self.path = directory / "routing.py"
        self.path.write_text(JOB.replace("NAME", name))
        place = directory / ".grete" / name
        self.place = JobDirectory(place) if address is None else JobDirectory(place, address=address)

    def local(self) -> LocalJob:
        """Return the job with its workers, to be used in a ``with`` block."""
        job = load_job(str(self.path))
        return LocalJob(job, str(self.path), self.place, SETTINGS, inputs=OutsideInputs({f"{self.name}-alerts"}))

    def feed(self, local: LocalJob, tenants: Sequence[str], count: int) -> None:
        """Append records that name these in turn; not at the end of all: a worker has some to do when it is killed."""
        now, begin = time.time_ns() // 1_000_000, len(self.fed)  # Kafka deletes what is of long ago
        some = [
            (b"host%d" % (n % KEYS), f"{tenants[n % len(tenants)]} {n}".encode()) for n in range(begin, begin + count)
        ]
        self.fed += some
        places = [TopicPartition(f"{self.name}-alerts", partition_of(key, local.job.partitions)) for key, _ in some]
        records = [ExternalRecord(at, *pair, now) for at, pair in zip(places, some, strict=True)]
        local.metadata.produce_with_meta(records, {})

    def work(self, local: LocalJob, tenants: Sequence[str], rng: random.Random) -> None:
        """Let workers process RECORDS, and kill one when each part is there; every second one loses its disk."""
        workers = local.supervisor.workers
        for number in range(KILLS + 1):
            until(lambda: all(is_running(local, each) for each in workers), "workers", step=lambda: local.poll(20))
            self.feed(local, tenants, RECORDS // (KILLS + 1))
            if number < KILLS:
                local.poll(20 * number)  # with some of it processed, or committed
                kill_worker(local, victim := rng.choice(sorted(workers)))
                if number % 2:
                    wipe_state(local, victim)
        ends = local.ends()
        until(lambda: local.drained(ends), "all processed", step=lambda: local.poll(20))
        local.stop()
        local.require_stopped()

    def check(self, local: LocalJob, counts: dict[str, int]) -> None:
        """Compare all topics with the input. ``counts``: topic → partitions that its records are in."""
        named = named_topics(local.log.read_metadata(self.name))[f"{self.name}-of-{{tenant}}"]
        assert named == counts
        assert {*topics_there(local.job, local.log)} == {*counts}
        found, letters = Counter[tuple[bytes | None, bytes | None]](), self.rows(local, f"{self.name}-letters")
        for topic, count in named.items():
            for row, partition in self.rows(local, topic):
                assert (row.value or b"").split()[0] == topic.removeprefix(f"{self.name}-of-").encode()
                assert partition == partition_of(row.key or b"", count)
                found[row.key, row.value] += 1
        found.update((row.key, row.value) for row, _ in letters)
        assert found == Counter(self.fed)
        assert not {(row.value or b"").split()[0].decode() for row, _ in letters} & {
            topic.removeprefix(f"{self.name}-of-") for topic in named
        }

    def rows(self, local: LocalJob, topic: str) -> list[tuple[LogRow, int]]:
        """Return the rows that a reader of a topic sees, with their partitions."""
        places = [TopicPartition(topic, number) for number in range(local.log.partitions(topic) or 0)]
        return [(row, at.partition) for at in places for row in rows(local.log, at, 0, local.log.bounds(at)[1])]


def tenants_of(named: Sequence[str], name: str) -> dict[str, int]:
    """Return topic → 2 for each of these."""
    return {f"{name}-of-{tenant}": 2 for tenant in named}


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_named_topics_survive_kills_and_a_rescale(tmp_path: Path) -> None:
    """On the embedded log. Topics keep the partitions that they have; a new one has as many as there are tasks then.

    Beyond the bound each record is a letter, once.
    """
    scene, rng = Routing(tmp_path, "routing"), random.Random(4)
    with scene.local() as local:
        scene.work(local, ["acme", "bolt", "core", "dora"], rng)
        scene.check(local, counts := tenants_of(["acme", "bolt", "core", "dora"], "routing"))
    scene.path.write_text(scene.path.read_text().replace("partitions=2", "partitions=3"))
    grete("rescale", "routing.py", "--partitions=3", "--assume-keyed", cwd=tmp_path)
    with scene.local() as local:
        until(lambda: is_running(local, 0), "workers", step=lambda: local.poll(20))
        scene.feed(local, ["echo", "acme"], 40)
        ends = local.ends()
        until(lambda: local.drained(ends), "all processed", step=lambda: local.poll(20))
        scene.work(local, ["acme", "fred", "echo", "gina"], rng)
        scene.check(local, counts | {"routing-of-echo": 3})
        assert scene.rows(local, "routing-letters")
    job = load_job(str(scene.path))
    with client(job, directory=scene.place.directory) as reader:
        acme = [record.value for record in reader.outputs(job.patterns()["routing-of-{tenant}"].of("acme"))]
    assert {value.split()[0] for value in acme} == {"acme"}
    assert "acme 0" in acme
    assert "acme 0" in grete("topic", "read", "routing.py", "routing-of-acme", cwd=tmp_path)
    refused = scene.path.read_text().replace("at_most=5", "at_most=4")
    scene.path.write_text(refused)
    with (
        closing(scene.place.open_log()) as log,
        pytest.raises(ConfigError, match=r"5 topics 'routing-of-\{tenant\}', and at_most=4"),
    ):
        check_bounds(load_job(str(scene.path)), log.read_metadata("routing"))


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_named_topics_survive_kills_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """In the transaction of their checkpoint; two workers that name topics at once agree on which there are."""
    name = f"routing-{random.SystemRandom().randrange(1 << 40):x}"
    scene = Routing(tmp_path, name, LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    tenants = ["acme", "bolt", "core", "dora", "echo", "fred", "gina"]
    with scene.local() as local:
        scene.work(local, tenants, random.Random(5))
        named = named_topics(local.log.read_metadata(name))[f"{name}-of-{{tenant}}"]
        assert len(named) == 5
        scene.check(local, dict(named))
        assert scene.rows(local, f"{name}-letters")
