"""Windows of each kind on Spark: a job built from history and taken live has made what one made that was live."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.backfill.audit import audit
from grete.spark.backfill.backfill import BackfillSpec, backfill
from grete.spark.backfill.ranges import BackfillEnd
from grete.spark.format.options import LogSpec
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tests.spark.backfill.scene import Silent
from tests.support import watching
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETTINGS = Settings(checkpoint_interval_ms=100, event_time_idle_ms=600)
MODULE = "tests.support.watching"


class Watched:
    """The job with a log of its own."""

    def __init__(self, directory: Path) -> None:
        """Make its topics."""
        self.directory = JobDirectory(directory)
        self.log = self.directory.open_log()
        self.metadata = prepare(watching.job, self.log, self.directory, SETTINGS, fed=["events"])
        self._at = [0, 4_000, 300]  # of the partitions
        where = LogSpec("embedded", "", str(directory / "log.db"))
        self.wanted = BackfillSpec(watching.job, MODULE, where, SETTINGS, {"events": "kafka"}, str(directory / "spark"))

    def feed(self, first: int, last: int) -> None:
        """Send records of these numbers, in each partition in the order of time, with pauses now and then."""
        for number in range(first, last):
            key = "abcdef"[number % 6].encode()
            partition = partition_of(key, 3)
            self._at[partition] += 3 + number % 5 * 7 + 100 * (number % 17 == 0)
            value = (number % 9 + 1).to_bytes(8, "big")
            place = TopicPartition("events", partition)
            self.metadata.produce_with_meta([ExternalRecord(place, key, value, self._at[partition])], {})

    def run(self) -> None:
        """Let real workers process what there is, until all inputs are idle, and stop them."""
        with LocalJob(watching.job, MODULE, self.directory, SETTINGS) as local:
            drain(local)
            local.stop()

    def made(self) -> tuple[Counter[tuple[int, bytes | None, bytes | None, int]], list[object]]:
        """Return the results that were told, by partition, and the windows that are open."""
        told = Counter(
            (partition, row.key, row.value, row.timestamp_ms)
            for partition in range(3)
            for row in self.log.read(TopicPartition("totalled", partition), 0, 1 << 24)
        )
        with LocalReader(self.directory.state_directory, watching.job) as reader:
            stores = [window.panes for stage in watching.job.stages for window in stage.windows.values()]
            return told, [sorted(reader.all(store)) for store in stores]


@pytest.mark.prove
def test_a_job_from_history_has_made_what_a_live_one_has(spark: "SparkSession", tmp_path: Path) -> None:
    """Hopping, sliding and session windows, and one behind them: results and open windows; an audit agrees."""
    live, built = Watched(tmp_path / "live"), Watched(tmp_path / "built")
    live.feed(0, 200)
    live.run()
    built.feed(0, 120)
    backfill(spark, built.wanted._replace(outputs=True), BackfillEnd(now=True, offsets={}), built.log, Silent())
    built.feed(120, 200)
    built.run()
    told, held = built.made()
    assert (told, held) == live.made()
    assert told
    assert all(held)
    audited = audit(spark, built.wanted, built.log, Silent(), aligned=True)
    assert (audited.wrong, audited.differences) == (0, [])
    for each in (live, built):
        each.log.close()
