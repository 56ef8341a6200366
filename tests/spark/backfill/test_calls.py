"""Jobs with calls: a backfill makes them, and an audit takes what is recorded, in real executors and workers."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.backfill.audit import Audited, audit
from grete.spark.backfill.backfill import BackfillSpec, backfill
from grete.spark.backfill.ranges import BackfillEnd
from grete.spark.format.options import LogSpec
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tests.spark.backfill.scene import Silent
from tests.support.draining import drain
from tests.support.http_server import CountingServer, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

SETTINGS = Settings(checkpoint_interval_ms=50, batch_bytes_max=400, restart_backoff_ms=20)
JOB = """
from urllib.request import urlopen

from grete import Call, Input, Job, Output, Record, Store, Task, Topic, int64, utf8

asked = Topic("asked", key=utf8, value=utf8)
answered = Topic("answered", key=utf8, value=int64)


def ask(what: str) -> int:
    with urlopen(f"URL/{what}", timeout=30) as answer:
        return int(answer.read())


class Ask(Task):
    in_flight = 8

    records = Input(asked)
    ask = Call(ask, result=int64, attempts=4)
    total = Store("total", key=utf8, value=int64)
    answers = Output(answered)

    async def process(self, record: Record[str, str]) -> None:
        number = await self.ask(record.value)
        self.total.put(record.key, self.total.get(record.key, 0) + number)
        self.answers.send(record.value, number)


job = Job("JOB", stages=[Ask], partitions=2, mode="MODE")
"""


class Asking:
    """A job that asks a server, with a log of its own."""

    def __init__(self, directory: Path, mode: str, server: CountingServer) -> None:
        """Make its topics."""
        self.reference = str(directory / f"asking_{mode}.py")
        text = JOB.replace("URL", server.url).replace("JOB", f"asking-{mode}").replace("MODE", mode)
        Path(self.reference).write_text(text)
        self.job, self.server = load_job(self.reference), server
        self.directory = JobDirectory(directory / "job")
        self.log = self.directory.open_log()
        self.metadata = prepare(self.job, self.log, self.directory, SETTINGS, fed=["asked"])
        where = LogSpec("embedded", "", str(self.directory.directory / "log.db"))
        work = str(self.directory.directory / "spark")
        self.wanted = BackfillSpec(self.job, self.reference, where, SETTINGS, {"asked": "kafka"}, work)

    def feed(self, numbers: range) -> None:
        """Send records of nine keys."""
        keyed = [(b"k%d" % (n % 9), n) for n in numbers]
        places = [TopicPartition("asked", partition_of(key, 2)) for key, _ in keyed]
        rows = [ExternalRecord(place, key, b"%d" % n, n) for place, (key, n) in zip(places, keyed, strict=True)]
        self.metadata.produce_with_meta(rows, {})

    def run(self, kills: int = 1) -> None:
        """Let real workers process what there is; the first one is killed as soon as something is answered."""
        with LocalJob(self.job, self.reference, self.directory, SETTINGS) as local:
            asked = self.server.asked.total()
            for _ in range(kills):
                while self.server.asked.total() == asked:
                    local.poll(5)
                local.supervisor.kill(0)
            drain(local)
            local.stop()

    def audit(self, spark: "SparkSession", *, makes_calls: bool = False) -> Audited:
        """Audit from the log."""
        return audit(spark, self.wanted, self.log, Silent(), aligned=True, makes_calls=makes_calls)

    def calls_of(self, work: Callable[[], object]) -> Counter[str]:
        """Return the questions that the server is asked meanwhile."""
        before = self.server.asked.copy()
        work()
        return self.server.asked - before

    def totals(self) -> dict[str, int]:
        """Return the state."""
        with LocalReader(self.directory.state_directory, self.job) as reader:
            return dict(reader.all(self.job.stages[0].stores["total"]))


def once(numbers: range) -> Counter[str]:
    """Return one request for each."""
    return Counter(map(str, numbers))


def test_an_audit_takes_what_calls_have_returned(spark: "SparkSession", tmp_path: Path) -> None:
    """The service gives no answer twice, a worker is killed, and the audit asks nothing and finds no difference."""
    numbers = itertools.count(1)
    with serving(lambda _: (200, b"%d" % next(numbers))) as server:
        scene = Asking(tmp_path, "deterministic", server)
        scene.feed(range(120))
        scene.run()
        found = list[Audited]()
        assert scene.calls_of(lambda: found.append(scene.audit(spark))) == Counter()
        assert (found[0].wrong, found[0].differences) == (0, [])
        assert sum(report.records for report in found[0].reports) == 120
        scene.log.close()


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_backfill_makes_the_calls_and_an_audit_only_if_told_to(
    spark: "SparkSession", tmp_path: Path, mode: str
) -> None:
    """An audit makes those of a deterministic job's history alone; errors of the service are tried again."""
    history, live = range(60), range(60, 140)
    failing = iter([b"", b""])

    def answer(what: str) -> tuple[int, bytes]:
        body = next(failing, b"%d" % (2 * int(what) + 1)) if what == "7" else b"%d" % (2 * int(what) + 1)
        return (200 if body else 500), body

    with serving(answer) as server:
        scene = Asking(tmp_path, mode, server)
        scene.feed(history)
        until = BackfillEnd(now=True, offsets={})
        made = scene.calls_of(lambda: backfill(spark, scene.wanted, until, scene.log, Silent()))
        assert made == once(history) + Counter({"7": 2})
        assert server.most <= 2 * 8, "two tasks, each with in_flight"
        scene.feed(live)
        scene.run()
        assert scene.totals() == {f"k{n % 9}": sum(2 * m + 1 for m in range(n, 140, 9)) for n in range(9)}
        why = "is aligned" if mode == "aligned" else "calls ask for a record of the history"
        with pytest.raises(ConfigError, match=rf"stage ask {why}.*--make-calls"):
            scene.audit(spark)
        found = list[Audited]()
        again = scene.calls_of(lambda: found.append(scene.audit(spark, makes_calls=True)))
        assert (found[0].wrong, found[0].differences) == (0, [])
        assert again == once(range(140) if mode == "aligned" else history)
        scene.log.close()
