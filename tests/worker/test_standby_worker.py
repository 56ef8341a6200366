"""A standby on another machine: it follows a worker, answers reads, and gives its store to the next worker (R7)."""

import signal
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from grete import Store
from grete.cli.main import app
from grete.errors import ConfigError, ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress, open_reader
from grete.logs.embedded import EmbeddedReader
from grete.protocol.report import StandbyReport, StandbyState, StandbyTaskReport
from grete.settings import Settings
from grete.state.read.newest import NewestReader
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.testing.broker import Broker
from grete.worker.life.standby_worker import StandbyWorker, open_standby
from tasks.word_count import job as word_count
from tests.support.kafka_topics import create
from tests.support.reports import positions
from tests.worker.workers import LIMIT_S, TaskStatus, WorkerUnderTest, say, until_committed, word_log

COUNT = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
class Count(Task):
    ticks = Input(Topic("standby-ticks", key=utf8, value=utf8))
    totals = Store("totals", key=utf8, value=int64)
    out = Output(Topic("standby-counts", key=utf8, value=int64))
    def process(self, record: Record[str, str]) -> None:
        n = self.totals.get(record.value, 0) + 1
        self.totals.put(record.value, n)
        self.out.send(record.value, n)

job = Job("standby", stages=[Count])
"""
TASK = "count-0"
KEYS = 500


def is_at(partition: str, offset: int, status: TaskStatus) -> bool:
    """Whether a task has committed an input up to an offset."""
    return bool(positions(status).get(partition) == offset)


def has_checkpoint(checkpoint_id: int, status: TaskStatus) -> bool:
    """Whether a standby has what a task has committed."""
    return bool(status["checkpoint_id"] >= checkpoint_id)


@pytest.mark.kafka
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_goes_on_where_a_standby_is(kafka_broker: Broker, tmp_path: Path, how: signal.Signals) -> None:
    """The standby has what its worker has committed; the next worker on its disk restores nothing of that (R7, R1)."""
    name = f"standby{how.value}"
    file = tmp_path / f"{name}.py"
    file.write_text(COUNT.replace("standby", name))
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    create(admin, NewTopic(f"{name}-ticks", 1))
    address = LogAddress(f"kafka://{kafka_broker.bootstrap}")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})

    def ticks(round_: int) -> None:
        for number in range(KEYS):
            producer.produce(f"{name}-ticks", b"key %d" % number, b"tick %d" % (number if round_ else number % 7))
        assert producer.flush(LIMIT_S) == 0

    def worker(directory: str, *options: str) -> WorkerUnderTest:
        given = f"--log={address.url}", "--set=checkpoint_interval_ms=50", *options
        return WorkerUnderTest(tmp_path / directory, *given, reference=str(file), task=TASK)

    with worker("there", "--standby") as early:
        assert early.ends() == ExitCode.FAILED  # a service manager starts it again
    assert "has not been started on this log yet" in early.log_path.read_text()
    with worker("here") as first, ExitStack() as opened:
        first.running()
        standby = opened.enter_context(worker("there", "--standby"))
        for round_ in range(2):
            ticks(round_)
            offset = KEYS * (round_ + 1)
            done = first.until(partial(is_at, f"{name}-ticks[0]", offset))["checkpoint_id"]
            standby.until(partial(has_checkpoint, done))
        assert standby.until(lambda status: status["status"] == "standby")["counters"]["changelog positions"] >= 2
        job = load_job(str(file))
        totals: Store[str, int] = next(store for store in job.stages[0].all_stores() if store.name == "totals")
        log_path = tmp_path / "there" / "log.db"
        state = JobDirectory(tmp_path / "there").state_directory
        with (
            closing(open_reader(address, log_path)) as log,
            NewestReader(log, job, state, pytest.fail) as reader,  # it says so if it reads the changelog
        ):
            assert sum(value for _, value in reader.all(totals)) == 2 * KEYS
        first.signal(signal.SIGKILL)
        first.ends()
        standby.signal(how)
        standby.ends()
        with worker("there") as second:
            counters = second.running()["counters"]
            assert (counters.get("redos"), counters.get("restores", 0), counters.get("wipes", 0)) == (1, 0, 0)
            assert counters.get("restored records", 0) < KEYS
            ticks(1)
            second.until(partial(is_at, f"{name}-ticks[0]", 3 * KEYS))


def test_on_the_embedded_log_there_is_no_standby(tmp_path: Path) -> None:
    """All of it is on one machine, which a standby would not outlive: the command says what to do."""
    with pytest.raises(ConfigError, match="only a job on Kafka has more than one: use --log kafka://"):
        open_standby(word_count, [0], JobDirectory(tmp_path / "job"), Settings())
    arguments = ["worker", "tasks.word_count", "--partition=0", "--standby", f"--directory={tmp_path / 'job'}"]
    assert CliRunner().invoke(app, arguments).exit_code == ExitCode.HALTED
    assert CliRunner().invoke(app, [*arguments, "--http=127.0.0.1:0"]).exit_code == ExitCode.USAGE


def test_it_follows_and_stops_as_asked(tmp_path: Path) -> None:
    """It reads what a worker has committed, says how far it is, and lets go of its store at the end."""
    log = word_log(tmp_path / "job")
    say(log, "one two", "two")
    with WorkerUnderTest(tmp_path / "job") as worker:
        until_committed(log, 2)
        checkpoint_id = worker.running()["checkpoint_id"]
        elsewhere = JobDirectory(tmp_path / "job", tmp_path / "elsewhere")
        reader = EmbeddedReader(elsewhere.directory / "log.db")
        standby = StandbyWorker(word_count, [0], reader, elsewhere, Settings())
        told = list[StandbyTaskReport]()

        def report(said: StandbyReport) -> None:
            told.extend(said.tasks)
            if standby.standbys[0].progress.caught_up:
                standby.stop()

        standby.report = report
        assert standby.run() is ExitCode.DONE
        standby.close()
    assert told[-1].status is StandbyState.STANDBY
    assert (told[-1].behind, told[-1].trouble) == (0, "")
    assert told[-1].checkpoint_id >= checkpoint_id >= 0
    RocksStore(elsewhere.state("count-words-0"), {}, RocksMemory(32 << 20)).close()  # else it is locked
