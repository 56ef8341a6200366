"""Bulk writes and real workers, on both logs: who is at work is fenced, who comes later goes on from it (1.8)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.api.jobs.job import Job
from grete.errors import Fenced, Halted
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord, JobLog
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import contents, live, segments, settled_fold, snapshots
from grete.state.read.local_reader import LocalReader
from grete.state.write.bulk.bulk_write import begin, commit, settle
from grete.state.write.bulk.bulk_write_attempt import Attempt, BulkWrite
from grete.worker.supervisor.local_job import LocalJob
from tests.state.faulty_logs import BreakingLog
from tests.state.pair_bulk_writes import run as run_pair
from tests.worker.workers import LIMIT_S

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # workers start and end, on a broker at that

STORE = 10
SETTINGS = Settings(checkpoint_interval_ms=50)
CODE = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
orders = Topic("NAME-orders", key=utf8, value=int64)
totals = Topic("NAME-totals", key=utf8, value=int64)

class Total(Task):
    orders = Input(orders)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(totals)
    def process(self, record: Record[str, int]) -> None:
        total = self.sums.get(record.key, 0) + record.value
        self.sums.put(record.key, total)
        self.out.send(record.key, total)

job = Job("NAME", stages=[Total])
"""


class Scene:
    """A job whose outputs go outside, in transactions, and its log."""

    def __init__(self, directory: Path, address: LogAddress) -> None:
        name = f"job{os.urandom(5).hex()}"
        self.reference = str(directory / f"{name}.py")
        Path(self.reference).write_text(CODE.replace("NAME", name))
        self.job: Job = load_job(self.reference)
        self.job_directory = JobDirectory(directory / "job", address=address)
        self.log: JobLog = self.job_directory.open_log()
        self._opened = [self.log]
        prepare(self.job, self.log, self.job_directory, SETTINGS, [f"{name}-orders"])
        self.orders, self.totals = (TopicPartition(f"{name}-{topic}", 0) for topic in ("orders", "totals"))

    def open(self) -> JobLog:
        """Return a log of its own for a bulk write: on Kafka, a process takes a task over from the one before."""
        self._opened.append(self.job_directory.open_log())
        return self._opened[-1]

    def close(self) -> None:
        """Release all logs."""
        for log in self._opened:
            log.close()

    def order(self, *amounts: int) -> None:
        """Write orders of one customer."""
        now_ms = time.time_ns() // 1_000_000  # a broker deletes what seems to be of 1970
        records = [ExternalRecord(self.orders, b"a", amount.to_bytes(8, "big"), now_ms) for amount in amounts]
        self.log.produce(0, 1, records)
        while not self.log.poll():
            self.log.wait(10)

    def work(self, *totals: int) -> None:
        """Let workers use up all orders; these are all totals that were ever sent, once the broker shows them."""
        with self.started() as local:
            ends = local.ends()
            while not local.drained(ends):
                local.poll(20)
            local.stop()
        deadline = time.monotonic() + LIMIT_S
        while len(self.sent()) < len(totals) and time.monotonic() < deadline:
            self.log.wait(100)
        assert self.sent() == list(totals)

    def started(self) -> LocalJob:
        """Start workers."""
        return LocalJob(self.job, self.reference, self.job_directory, SETTINGS)

    def sent(self) -> list[int]:
        """Return all totals that a reader outside sees."""
        found: list[int] = []
        position, end = self.log.bounds(self.totals)
        while position < end and (rows := self.log.read(self.totals, position, 1 << 20)):
            found += [int.from_bytes(row.value or b"", "big") for row in rows]
            position = rows[-1].offset + 1
        return found

    def attempt(self, bulk_write: BulkWrite, number: int, **sums: int) -> Attempt:
        """Write sums, as one attempt that is not over."""
        attempt = Attempt(self.log, bulk_write, 0, number, (STORE,))
        attempt.add([STORE] * len(sums), [key.encode() for key in sums], [n.to_bytes(8, "big") for n in sums.values()])
        return attempt

    def state(self) -> dict[bytes, int]:
        """Return the committed state."""
        (snapshot,) = snapshots(self.log, self.job)
        keys, values, _ = live(contents(segments(self.log, snapshot), frozenset({STORE}))[STORE])
        return {key: int.from_bytes(value, "big") for key, value in zip(keys, values, strict=True)}


def is_fenced(local: LocalJob, bulk_write: BulkWrite) -> bool:
    """Watch the worker until it has ended as fenced; False if it has crashed instead, and taken its task back."""
    (worker,) = local.supervisor.workers.values()
    while all(task.generation <= bulk_write.tasks[0].generation for task in worker.reports.tasks.values()):
        try:
            local.poll(20)
        except Fenced as error:
            return "worker 0 was fenced" in str(error)
    return False


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A job on either log."""
    address = LogAddress()
    if request.param == "kafka":
        address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}")
    made = Scene(tmp_path, address)
    yield made
    made.close()


def test_workers_go_on_from_a_bulk_write(scene: Scene) -> None:
    """On a fresh job, then over what workers have committed: only what it covers is passed over (1.8, R1)."""
    scene.order(1, 2)
    log = scene.open()
    first = begin(log, scene.job, SETTINGS)
    slow, quick = scene.attempt(first, 7, a=1), scene.attempt(first, 8, a=100)
    slow._flush()
    written = quick.close()
    slow.add([STORE], [b"late"], [bytes(8)])
    slow.close()
    commit(log, first, [written], settings=SETTINGS, full=True, external={scene.orders: 1})
    assert scene.state() == {b"a": 100}
    scene.work(102)  # the first order is in the 100
    log = scene.open()
    second = begin(log, scene.job, SETTINGS)
    commit(log, second, [scene.attempt(second, 1, a=1000).close()], settings=SETTINGS, full=True)
    scene.order(5)
    scene.work(102, 1005)
    with LocalReader(scene.job_directory.state_directory, scene.job) as reader:
        assert dict(reader.all(reader.store("sums"))) == {"a": 1005}


def test_a_worker_at_work_is_fenced_and_says_so(scene: Scene) -> None:
    """It sends nothing more, not even in the transaction that it has open; the bulk write counts (C3, C5, S1)."""
    scene.order(1)
    scene.work(1)
    with scene.started() as local:
        while not local.supervisor.workers[0].reports.tasks:
            local.poll(20)
        while local.supervisor.workers[0].reports.tasks["total-0"].status is not TaskState.RUNNING:
            local.poll(20)
        log = scene.open()
        bulk_write = begin(log, scene.job, SETTINGS)
        while not is_fenced(local, bulk_write):  # it took its own transaction for an expired one, just before the claim
            log = scene.open()
            bulk_write = begin(log, scene.job, SETTINGS)
    scene.order(10)
    assert scene.sent() == [1]
    commit(log, bulk_write, [scene.attempt(bulk_write, 1, a=7).close()], settings=SETTINGS, full=True)
    scene.work(1, 17)


def test_a_worker_that_starts_meanwhile_makes_the_bulk_write_invalid(scene: Scene) -> None:
    """Its claim is before the bulk write's commit: the bulk write says so, and the worker has lost nothing (C2, C3)."""
    scene.order(1)
    log = scene.open()
    bulk_write = begin(log, scene.job, SETTINGS)
    written = scene.attempt(bulk_write, 1, a=7).close()
    scene.work(1)
    with pytest.raises(Fenced, match=r"total-0: .*stop the job's workers"):
        commit(log, bulk_write, [written], settings=SETTINGS, full=True)
    scene.order(2)
    scene.work(1, 3)


def test_a_worker_does_not_guess_what_becomes_of_a_bulk_write(tmp_path: Path) -> None:
    """A bulk write without an outcome has rewritten its task (1.8): it exits 4 and says what to do.

    Once the bulk write is settled, the worker works.
    """
    directory, reference = tmp_path / "job", "tests.state.pair_job"
    job = load_job(reference)
    assert run_pair(reference, directory, ("a", "x")) == {"x": 1}
    for counts, expected in ((False, {"x": 2}), (True, {"x": 1})):
        log = EmbeddedLog(directory / "log.db")
        bulk_write = begin(log, job, SETTINGS)
        written = [Attempt(log, bulk_write, task, 1, (STORE,)).close() for task in range(4)]
        with pytest.raises(RuntimeError):  # all four are committed, and its owner dies before the outcome
            commit(BreakingLog(log, 5), bulk_write, written, settings=SETTINGS, full=True)  # type: ignore[arg-type]  # acts as a log
        with pytest.raises(
            Halted, match=r"the bulk write .* has not written its outcome.*grete backfill JOB --resume or --abort"
        ):
            run_pair(reference, directory)
        assert settle(log, job, counts=counts) == (bulk_write.bulk_write_id, counts)
        assert all(settled_fold(log, wiring).in_doubt is None for wiring in all_wirings(job))
        log.close()
        assert run_pair(reference, directory, ("a", "x")) == expected


def test_the_log_is_what_it_says(scene: Scene) -> None:
    """The scenes above are played on the logs that they name."""
    assert isinstance(scene.log, EmbeddedLog if scene.job_directory.address.embedded else KafkaLog)
