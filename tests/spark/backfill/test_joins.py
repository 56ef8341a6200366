"""A job with joins: an audit agrees with a live run, and a backfill goes on live with what waits for a match."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.logs.partition_reader import rows as all_rows
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.backfill import backfill
from grete.spark.backfill.ranges import BackfillEnd
from tests.spark.backfill.scene import Silent
from tests.spark.backfill.test_event_time import Delays
from tests.support import matches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]


class Matches(Delays):
    """The job of joins with a log of its own."""

    code = matches

    def read(self, topic: str) -> list[tuple[TopicPartition, str, int, int]]:
        """Return (partition, key, value, timestamp) of each record of a topic."""
        places = [TopicPartition(topic, partition) for partition in range(3)]
        return [
            (place, (row.key or b"").decode(), int.from_bytes(row.value or b"", "big"), row.timestamp_ms)
            for place in places
            for row in all_rows(self.log, place, 0, self.log.bounds(place)[1])
        ]

    def expected(self) -> Counter[int]:
        """Return the values of all matches, and of the events without one whose interval has passed."""
        found, fed = Counter[int](), self.read("events")
        now = {place: max(at for each, _, _, at in fed if each == place) for place, *_ in fed}
        for place, key, value, at in fed:
            odd = value % 2
            first, last = (-matches.BEFORE_MS, matches.AFTER_MS) if odd else (-matches.AFTER_MS, matches.BEFORE_MS)
            near = [v for _, k, v, t in fed if k == key and v % 2 != odd and first <= t - at <= last]
            if odd:
                found.update(10 * value + other for other in near)
            if not near and at + last + 5 < now[place]:
                found[10 * value if odd else value] += 1
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Matches]:
    """Make the job's directory and log."""
    scene = Matches(tmp_path / "live")
    yield scene
    scene.log.close()


@pytest.mark.prove
def test_an_audit_agrees_with_a_live_run_of_joins(spark: "SparkSession", scene: Matches) -> None:
    """Records that wait for a match, those that were told, tables and versions: nothing differs."""
    scene.feed(150)
    scene.run()
    expected = scene.expected()
    assert expected.total() > 100
    assert Counter(value for _, _, value, _ in scene.read("matched")) == expected
    audited = scene.audit(spark)
    assert (audited.wrong, audited.differences) == (0, [])


def test_a_backfill_with_joins_goes_on_live(spark: "SparkSession", scene: Matches) -> None:
    """History in batch, the rest live: each match once, and each event without one once; an audit agrees."""
    scene.feed(150)
    backfill(spark, scene.wanted()._replace(outputs=True), BackfillEnd(now=True, offsets={}), scene.log, Silent())
    scene.feed(90)
    scene.run()
    assert Counter(value for _, _, value, _ in scene.read("matched")) == scene.expected()
    audited = scene.audit(spark)
    assert (audited.wrong, audited.differences) == (0, [])
