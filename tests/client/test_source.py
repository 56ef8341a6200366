"""A source of one's own: each of its records comes into the topic once, wherever the program dies."""

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Record, Task, Topic, int64, utf8
from grete.clients import Client, SourceRecord
from grete.errors import ConfigError, Fenced, TransientError
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows_left
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.testing.broker import Broker
from grete.testing.contracts import SourceContract, SourceWorld
from tests.support import forking
from tests.worker.workers import LIMIT_S

AT_ONCE = 7  # records of a read


class Lines:
    """A source: the lines of a file, each a number. A position is the number of lines before it."""

    name = "lines"

    def __init__(self, path: Path, trouble: Iterator[bool] | None = None) -> None:
        """``trouble``: whether the next call fails."""
        self.path, self.at, self.closed = path, 0, 0
        self._trouble = itertools.repeat(False) if trouble is None else trouble

    def open(self, position: str | None) -> None:
        self.at = int(position or 0)
        self._fail()

    def read(self) -> tuple[list[SourceRecord[str, int]], str]:
        self._fail()
        lines = self.path.read_text().split() if self.path.exists() else []
        found = lines[self.at : self.at + AT_ONCE]
        self.at += len(found)
        return [SourceRecord(f"k{int(line) % 5}", int(line), 1_000 + int(line)) for line in found], str(self.at)

    def close(self) -> None:
        self.closed += 1

    def _fail(self) -> None:
        if next(self._trouble):
            self.at = -1  # whatever it was
            raise TransientError("the file does not answer")


def put(path: Path, count: int) -> None:
    """Add numbers behind those that are there."""
    have = len(path.read_text().split()) if path.exists() else 0
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in range(have, have + count))


class TestLines(SourceContract):
    """The example of these tests keeps the shipped contract."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> SourceWorld:
        """Return no file yet."""
        return SourceWorld(lambda: Lines(tmp_path / "lines"), lambda count: put(tmp_path / "lines", count))


def job_of(name: str) -> Job:
    """Return a job of 2 partitions that reads numbers."""

    class Reads(Task):
        numbers = Input(Topic(f"{name}-numbers", key=utf8, value=int64))

        def process(self, record: Record[str, int]) -> None: ...

    return Job(name, stages=[Reads], partitions=2)


def numbers_of(job: Job) -> Topic[str, int]:
    """Return its topic."""
    return Topic(f"{job.name}-numbers", key=utf8, value=int64)


def found(place: Path, job: Job, log: str = "embedded") -> dict[int, list[int]]:
    """Return the numbers in each partition, in their order."""
    with closing(JobDirectory(place, address=LogAddress(log)).open_log()) as opened:
        parts = [TopicPartition(f"{job.name}-numbers", number) for number in range(2)]
        rows = {at.partition: list(rows_left(opened, at, *opened.bounds(at))) for at in parts}
    assert all(row.timestamp_ms == 1_000 + int.from_bytes(row.value or b"") for each in rows.values() for row in each)
    return {number: [int.from_bytes(row.value or b"") for row in each] for number, each in rows.items()}


def wanted(count: int) -> dict[int, list[int]]:
    """Return the same of a topic that has each number once, in the source's order."""
    places = {number: partition_of(b"k%d" % (number % 5), 2) for number in range(count)}
    return {partition: [number for number in range(count) if places[number] == partition] for partition in range(2)}


def test_later_calls_bring_what_is_new(tmp_path: Path) -> None:
    """Calls of this program and of the next one; one brings nothing when nothing is new."""
    job, path = job_of("s"), tmp_path / "lines"
    put(path, 30)
    with Client(job, directory=tmp_path / "place") as client:
        source = Lines(path)
        assert client.feed(numbers_of(job), source) == 30
        assert (client.feed(numbers_of(job), source), source.closed) == (0, 2)
        put(path, 3)
        assert client.feed(numbers_of(job), source) == 3
    put(path, 9)
    with Client(job, directory=tmp_path / "place") as client:
        assert client.feed(numbers_of(job), Lines(path)) == 9
    assert found(tmp_path / "place", job) == wanted(42)


def test_trouble_is_the_callers_or_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records before the error are there once; a program that follows continues when the source answers again."""
    job, path = job_of("s"), tmp_path / "lines"
    monkeypatch.setattr("grete.clients.source.AGAIN_S", 0.001)
    put(path, 30)
    with Client(job, directory=tmp_path / "place") as client:
        calls: Iterator[bool] = itertools.chain([False, False, True], itertools.repeat(False))
        with pytest.raises(TransientError, match="the file does not answer"):
            client.feed(numbers_of(job), Lines(path, calls))
        assert sum(map(len, found(tmp_path / "place", job).values())) == AT_ONCE

        class Ends(Lines):
            """It ends the program's wait when all is read."""

            def read(self) -> tuple[list[SourceRecord[str, int]], str]:
                records, position = super().read()
                if not records:
                    raise KeyboardInterrupt
                return records, position

        calls = itertools.cycle([True, False, False, True, False])
        with pytest.raises(KeyboardInterrupt):
            client.feed(numbers_of(job), Ends(path, calls), follow=True)
    assert found(tmp_path / "place", job) == wanted(30)


def test_what_cannot_be_fed_is_refused(tmp_path: Path) -> None:
    """A topic that the job does not read; a second process in the directory."""
    job, other = job_of("s"), Topic("other", key=utf8, value=int64)
    with Client(job, directory=tmp_path / "place") as client:
        with pytest.raises(ConfigError, match="job 's' does not read topic 'other' from outside"):
            client.feed(other, Lines(tmp_path / "lines"))
        lock = JobDirectory(tmp_path / "place").lock_source("s-numbers")
        with pytest.raises(ConfigError, match="is where another process feeds topic 's-numbers'"):
            client.feed(numbers_of(job), Lines(tmp_path / "lines"))
        os.close(lock)


# Dies by SIGKILL before or after its third transaction.
KILLED = """
import os, signal, sys
from pathlib import Path
from grete.clients import Client
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka.write.whole_writer import WholeWriter
from tests.client.test_source import Lines, job_of, numbers_of
when, name, place, path, log = sys.argv[1:]
seen = []
produce, call = EmbeddedLog.produce_with_meta, WholeWriter._call
def file(self, records, meta, *, sync=False):
    seen.append(1)
    if when == "before" and len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    produce(self, records, meta, sync=sync)
    if when == "after" and len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return -1
def kafka(self, function, doing):
    seen.append(doing)
    third = doing == "committing" and seen.count(doing) == 3
    if third and when == "before":
        self._producer.flush(60)
        os.kill(os.getpid(), signal.SIGKILL)
    call(self, function, doing)
    if third:
        os.kill(os.getpid(), signal.SIGKILL)
EmbeddedLog.produce_with_meta, WholeWriter._call = file, kafka
job = job_of(name)
with Client(job, log=log, directory=Path(place)) as client:
    client.feed(numbers_of(job), Lines(Path(path)))
"""


def killed(tmp_path: Path, job: Job, when: str, log: str = "embedded") -> None:
    """Kill a program while it feeds, then run it again: each record is there once."""
    put(tmp_path / "lines", 60)
    root = str(Path(__file__).parents[2])
    arguments = [when, job.name, str(tmp_path / "place"), str(tmp_path / "lines"), log]
    done = subprocess.run(
        [*forking.TEXT, KILLED, *arguments],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with Client(job, log=log, directory=tmp_path / "place") as client:
        left = client.feed(numbers_of(job), Lines(tmp_path / "lines"))
    assert left == 60 - AT_ONCE * (2 if when == "before" else 3)
    assert found(tmp_path / "place", job, log) == wanted(60)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_program_that_is_killed_goes_on_behind_its_last_record(tmp_path: Path, when: str) -> None:
    """Records and position are one transaction of the log."""
    killed(tmp_path, job_of("s"), when)


@pytest.mark.kafka
def test_the_same_on_kafka_and_a_second_program_fences_the_first(kafka_broker: Broker, tmp_path: Path) -> None:
    """The broker has the records of a transaction that was never committed, and drops them."""
    job, log = job_of(f"s{os.urandom(6).hex()}"), f"kafka://{kafka_broker.bootstrap}"
    with closing(JobDirectory(tmp_path / "first", address=LogAddress(log)).open_log()) as opened:
        opened.create_topic(f"{job.name}-numbers", 2, plain=True)
    killed(tmp_path, job, "before", log)

    class Late(Lines):
        """It reads on when another program has fed what it was to read."""

        def read(self) -> tuple[list[SourceRecord[str, int]], str]:
            records, position = super().read()
            with Client(job, log=log, directory=tmp_path / "elsewhere") as other:
                other.feed(numbers_of(job), Lines(self.path))
            return records, position

    put(tmp_path / "lines", 5)
    with Client(job, log=log, directory=tmp_path / "place") as client, pytest.raises(Fenced):
        client.feed(numbers_of(job), Late(tmp_path / "lines"))
    assert found(tmp_path / "place", job, log) == wanted(65)
