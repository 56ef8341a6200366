"""Jobs of event time whose stages send out of order: an audit agrees with a live run, and a backfill goes on live."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord, JobLog
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
from tests.support import delays
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SETTINGS = Settings(checkpoint_interval_ms=100, event_time_idle_ms=600)


class Delays:
    """The job of three stages with a log of its own."""

    code: ModuleType = delays

    def __init__(self, directory: Path) -> None:
        """Make its topics."""
        self.directory = JobDirectory(directory)
        self.log: JobLog = self.directory.open_log()
        self.metadata = prepare(self.code.job, self.log, self.directory, SETTINGS, fed=["events"])
        self._at = [0, 40_000, 300]  # of the partitions

    def feed(self, count: int) -> None:
        """Send records, in each partition in the order of time."""
        for number in range(count):
            key = "abcdef"[number % 6].encode()
            partition = partition_of(key, 3)
            self._at[partition] += 7 + number % 5 * 20
            value = (number % 9 + 1).to_bytes(8, "big")
            place = TopicPartition("events", partition)
            self.metadata.produce_with_meta([ExternalRecord(place, key, value, self._at[partition])], {})

    def run(self) -> None:
        """Let real workers process what there is, until all inputs are idle, and stop them."""
        with LocalJob(self.code.job, self.code.__name__, self.directory, SETTINGS) as local:
            drain(local)
            local.stop()

    def held(self) -> int:
        """Return the sum of what waits for a timer or in a window."""
        delay, sum_, total = self.code.job.stages
        stores = [delay.stores["waiting"], sum_.windows["sums"].panes, total.windows["totals"].panes]
        with LocalReader(self.directory.state_directory, self.code.job) as reader:
            return sum(value for store in stores for _, value in reader.all(store))

    def wanted(self) -> BackfillSpec:
        """Return the request for a backfill from the log."""
        where = LogSpec("embedded", "", str(self.directory.directory / "log.db"))
        work = str(self.directory.directory / "spark")
        return BackfillSpec(self.code.job, self.code.__name__, where, SETTINGS, {"events": "kafka"}, work)

    def audit(self, spark: "SparkSession") -> Audited:
        """Audit from the log."""
        return audit(spark, self.wanted(), self.log, Silent(), aligned=True)

    def sum_in(self, topic: str) -> int:
        """Return the sum of the numbers in a topic."""
        places = [TopicPartition(topic, partition) for partition in range(3)]
        return sum(int.from_bytes(row.value or b"", "big") for p in places for row in self.log.read(p, 0, 1 << 24))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Delays]:
    """Make the job's directory and log."""
    scene = Delays(tmp_path / "live")
    yield scene
    scene.log.close()


def test_an_audit_agrees_with_a_live_run_of_event_time(spark: "SparkSession", scene: Delays) -> None:
    """Timers, windows with grace behind them, windows behind those, over partitions far apart: nothing differs."""
    scene.feed(150)
    scene.run()
    audited = scene.audit(spark)
    assert (audited.wrong, audited.differences) == (0, [])


@pytest.mark.prove
def test_a_backfill_with_event_time_goes_on_live(spark: "SparkSession", scene: Delays) -> None:
    """History in batch, the rest live: every number counts twice, once at once and once later; an audit agrees."""
    scene.feed(150)
    backfill(spark, scene.wanted()._replace(outputs=True), BackfillEnd(now=True, offsets={}), scene.log, Silent())
    scene.feed(90)
    scene.run()
    assert scene.sum_in("totalled") + scene.held() == 2 * scene.sum_in("events")
    audited = scene.audit(spark)
    assert (audited.wrong, audited.differences) == (0, [])
