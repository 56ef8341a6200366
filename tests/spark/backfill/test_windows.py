"""Windows of each kind on Spark: a job built from history and taken live has made what one made that was live."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

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
from tests.support import local_days, watching
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETTINGS = Settings(checkpoint_interval_ms=100, event_time_idle_ms=600)

Reading = tuple[str, int, int]  # meter, Wh, time
Told = tuple[int, bytes | None, bytes | None, int]  # partition, key, value, time


class Watched:
    """The job of a module, ``code``, with a log of its own; ``told``: the topic of its results."""

    def __init__(self, directory: Path, code: ModuleType = watching, told: str = "totalled") -> None:
        """Make its topics."""
        self.directory, self._code, self._told = JobDirectory(directory), code, told
        self.log = self.directory.open_log()
        self.metadata = prepare(code.job, self.log, self.directory, SETTINGS, fed=["events"])
        self._at = [0, 4_000, 300]  # of the partitions
        where = LogSpec("embedded", "", str(directory / "log.db"))
        work = str(directory / "spark")
        self.wanted = BackfillSpec(code.job, code.__name__, where, SETTINGS, {"events": "kafka"}, work)

    def feed(self, first: int, last: int) -> None:
        """Send records of these numbers, in each partition in the order of time, with pauses now and then."""
        for number in range(first, last):
            key = "abcdef"[number % 6]
            partition = partition_of(key.encode(), 3)
            self._at[partition] += 3 + number % 5 * 7 + 100 * (number % 17 == 0)
            self.read([(key, number % 9 + 1, self._at[partition])])

    def read(self, readings: Iterable[Reading]) -> None:
        """Send records."""
        for key, value, at in readings:
            place = TopicPartition("events", partition_of(key.encode(), 3))
            record = ExternalRecord(place, key.encode(), value.to_bytes(8, "big"), at)
            self.metadata.produce_with_meta([record], {})

    def run(self) -> None:
        """Let real workers process what there is, until all inputs are idle, and stop them."""
        with LocalJob(self._code.job, self._code.__name__, self.directory, SETTINGS) as local:
            drain(local)
            local.stop()

    def told(self) -> Counter[Told]:
        """Return the results that were told."""
        return Counter(
            (partition, row.key, row.value, row.timestamp_ms)
            for partition in range(3)
            for row in self.log.read(TopicPartition(self._told, partition), 0, 1 << 24)
        )

    def made(self) -> tuple[Counter[Told], list[list[Any]]]:
        """Return the results that were told, and the panes of the windows that are open."""
        with LocalReader(self.directory.state_directory, self._code.job) as reader:
            stores = [window.panes for stage in self._code.job.stages for window in stage.windows.values()]
            return self.told(), [sorted(reader.all(store)) for store in stores]


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


def readings() -> list[Reading]:
    """Return readings of six meters around both changes of the clocks, with hours that come late."""
    found = []
    for month, day in ((3, 28), (10, 24)):
        begin = _midnight(date(2025, month, day), "Europe/Berlin")
        for number in range(6 * 24 * 5):
            hour = number // 6 - number % 3 * (number % 5 == 0)  # up to two hours before others that came
            found.append(("abcdef"[number % 6], number % 9 + 1, begin + hour * 3_600_000 + number % 7))
    return found


def _midnight(day: date, zone: str) -> int:
    """Return the begin of a day in ms."""
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * 1_000


def recounted(found: Iterable[Reading]) -> Counter[tuple[str, int, int]]:
    """Return the sum of each key, as it is told, and period, by a plain computation over local dates."""
    sums = Counter[tuple[str, int, int]]()
    for key, value, at in found:
        berlin, new_york = (
            datetime.fromtimestamp(at / 1_000, ZoneInfo(zone)).date() for zone in ("Europe/Berlin", "America/New_York")
        )
        sunday = new_york - timedelta(days=new_york.isoweekday() % 7)
        month = berlin.replace(day=1)
        for name, zone, first, behind in (
            ("days", "Europe/Berlin", berlin, berlin + timedelta(days=1)),
            ("weeks", "America/New_York", sunday, sunday + timedelta(days=7)),
            ("months", "Europe/Berlin", month, (month + timedelta(days=31)).replace(day=1)),
        ):
            sums[f"{key} {name}", _midnight(first, zone), _midnight(behind, zone)] += value
    return sums


def test_days_from_history_are_those_of_a_recount(spark: "SparkSession", tmp_path: Path) -> None:
    """Over both changes of the clocks: what Spark and live workers told and hold is a recount, and an audit agrees."""
    fed = readings()
    built = Watched(tmp_path / "built", local_days, "billed")
    built.read(fed[:900])
    backfill(spark, built.wanted._replace(outputs=True), BackfillEnd(now=True, offsets={}), built.log, Silent())
    by_spark = built.told()
    built.read(fed[900:])
    built.run()
    told, held = built.made()
    assert by_spark
    assert by_spark < told
    counted, expected = Counter[tuple[str, int, int]](), recounted(fed)
    for _, key, value, at in told:
        start, end, sum_ = json.loads(value or b"")
        assert at == end - 1
        counted[(key or b"").decode(), start, end] += sum_
    assert counted.items() <= expected.items()
    assert {end - start for key, start, end in counted if key.endswith("days")} == {h * 3_600_000 for h in (23, 24, 25)}
    left = Counter({(key, start): sum_ for (key, start, _), sum_ in (expected - counted).items()})
    windows = local_days.job.stages[0].windows.values()
    names = [window.name for window in windows]
    assert left == {
        (f"{key} {name}", start): sum_ for name, rows in zip(names, held, strict=True) for (start, key), sum_ in rows
    }
    audited = audit(spark, built.wanted, built.log, Silent(), aligned=True)
    assert (audited.wrong, audited.differences) == (0, [])
    built.log.close()
