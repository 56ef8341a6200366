"""A Client beside a running job: what it sends is processed, and it reads each output once, and the state."""

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.clients import Client
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.worker.workers import LIMIT_S

NUMBERS_SENT = 400


class Sums(Task):
    """Adds up by key, and sends each total."""

    sums = Store("sums", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        total = self.sums.get(record.key, 0) + record.value
        self.sums.put(record.key, total)
        self.out.send(record.key, total)  # type: ignore[attr-defined]  # of the class below


def summing(name: str, mode: Mode) -> Job:
    """Return a job of 2 partitions whose topics have the job's name."""

    class Add(Sums):
        numbers = Input(Topic(f"{name}-numbers", key=utf8, value=int64))
        out = Output(Topic(f"{name}-totals", key=utf8, value=int64))

    return Job(name, stages=[Add], partitions=2, mode=mode)


def topic_of(job: Job, end: str) -> Topic[str, int]:
    """Return a topic of the job."""
    return Topic(f"{job.name}-{end}", key=utf8, value=int64)


@contextmanager
def running(
    tmp_path: Path, job: Job, mode: Mode, log: str = "embedded", *, kill: bool = False, **settings: str
) -> Iterator[Path]:
    """Keep the workers of a job running; ``kill`` one after another. Yield the job's directory."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.client.test_client import summing\njob = summing({job.name!r}, {mode!r})\n"
    )
    place = JobDirectory(tmp_path / "place", address=LogAddress(log))
    ended = threading.Event()
    started = threading.Event()
    changed = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20, **settings)  # type: ignore[arg-type]  # checked there

    def watch() -> None:
        with LocalJob(job, str(file), place, changed, inputs=OutsideInputs([f"{job.name}-numbers"])) as local:
            started.set()
            kills = 0
            while not ended.is_set():
                local.poll(20)
                if (
                    kill
                    and kills < 2
                    and local.supervisor.workers[kills].reports.tasks
                    and local.records_committed() > 50
                ):
                    local.supervisor.kill(kills)
                    kills += 1
            local.stop()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert started.wait(LIMIT_S)
        yield tmp_path / "place"
    finally:
        ended.set()
        thread.join()


def check(client: Client, job: Job) -> None:
    """Send numbers while the outputs are read: each total of each key comes once, and the state is the last one."""
    numbers, totals = topic_of(job, "numbers"), topic_of(job, "totals")
    for number in range(NUMBERS_SENT):
        client.send(numbers, f"k{number % 5}", 1, timestamp=number)
    assert client.flush(LIMIT_S)
    found = list(itertools.islice(client.outputs(totals, follow=True), NUMBERS_SENT))
    wanted = {(f"k{key}", total): 1 for key in range(5) for total in range(1, NUMBERS_SENT // 5 + 1)}
    assert Counter((record.key, record.value) for record in found) == wanted
    last = {partition: max(r.offset for r in found if r.partition == partition) for partition in (0, 1)}
    assert list(client.outputs(totals, after=last)) == []
    assert len(list(client.outputs(totals, after={0: last[0]}))) == sum(record.partition == 1 for record in found)
    deadline = time.monotonic() + LIMIT_S
    stage = job.stages[0].task
    while sum(value for _, value in client.all(stage.sums)) < NUMBERS_SENT:  # type: ignore[attr-defined]  # of Sums
        assert time.monotonic() < deadline  # an output may be seen before its commit is in the store
    sums = stage.sums  # type: ignore[attr-defined]  # of Sums
    assert dict(client.all(sums)) == {f"k{key}": NUMBERS_SENT // 5 for key in range(5)}
    assert (client.get(sums, "k1"), client.get(sums, "none"), client.get(sums, "none", 7)) == (80, None, 7)
    assert dict(client.prefix(sums, "k2")) == {"k2": 80}


WAYS: list[tuple[Mode, bool, dict[str, str]]] = [
    ("aligned", True, {}),
    ("deterministic", True, {"output_delivery": "sequenced"}),
]


@pytest.mark.parametrize(("mode", "kill", "settings"), WAYS)
def test_each_output_is_read_once(tmp_path: Path, mode: Mode, kill: bool, settings: dict[str, str]) -> None:
    """Workers die meanwhile; with sequenced outputs a record may be in the topic twice."""
    job = summing("c", mode)
    with running(tmp_path, job, mode, kill=kill, **settings) as place, Client(job, directory=place) as client:
        check(client, job)


def test_an_output_that_is_in_its_topic_twice_is_read_once(tmp_path: Path) -> None:
    """A worker died between an output and its commit, and its successor sent it again under the same number."""
    job = summing("twice", "deterministic")
    log = JobDirectory(tmp_path).open_log()
    create_topics(job, log)
    at = TopicPartition("twice-totals", 0)
    rows = [
        ExternalRecord(at, b"k", int64.encode(seq), 5, encode_headers([("grete", b"%d 5 add-0" % seq)]))
        for seq in (1, 2, 1, 2, 3)
    ]
    log.open_metadata("another").produce_with_meta(rows, {})
    log.close()
    with Client(job, directory=tmp_path) as client:
        assert [record.value for record in client.outputs(topic_of(job, "totals"))] == [1, 2, 3]


@pytest.mark.kafka
def test_the_same_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """On a broker, readers see what is committed."""
    job = summing(f"c{os.urandom(6).hex()}", "aligned")
    log = f"kafka://{kafka_broker.bootstrap}"
    with running(tmp_path, job, "aligned", log) as place, Client(job, log=log, directory=place) as client:
        check(client, job)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A topic that the job does not read or write, and a job that has not run."""
    job = summing("c", "aligned")
    with Client(job, directory=tmp_path / "none") as client:
        with pytest.raises(ConfigError, match="job 'c' does not read topic 'c-totals' from outside"):
            client.send(topic_of(job, "totals"), "k", 1)
        with pytest.raises(ConfigError, match="does not write topic 'c-numbers' for others: it writes c-totals"):
            client.outputs(topic_of(job, "numbers"))
        with pytest.raises(ConfigError, match="there is no such log: check the path, or run the job"):
            client.outputs(topic_of(job, "totals"))
        with pytest.raises(ConfigError, match="there is no such log"):
            client.get(job.stages[0].stores["sums"], "k")


def test_threads_share_a_client_to_send_and_one_of_them_reads(tmp_path: Path) -> None:
    """All that they send is processed. Who reads in a second thread is told so, also in the middle of the outputs."""
    job, told = summing("threads", "aligned"), list[str]()
    numbers, totals, sums = topic_of(job, "numbers"), topic_of(job, "totals"), Sums.sums
    with running(tmp_path, job, "aligned") as place, Client(job, directory=place) as client:

        def elsewhere(does: Callable[[], object]) -> None:
            def run() -> None:
                try:
                    does()
                except ConfigError as error:
                    told.append(str(error))

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: client.send(numbers, f"k{number % 5}", 1), range(20)))
        assert client.flush(LIMIT_S)
        found = client.outputs(totals, follow=True)
        next(found)
        for does in (lambda: client.get(sums, "k1"), lambda: client.all(sums), lambda: next(found), client.close):
            elsewhere(does)
        assert [text.partition(", and")[0] for text in told] == [
            "this client of job 'threads' reads in another thread"
        ] * 4
