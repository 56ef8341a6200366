"""The join of locations and forecasts: early, late, absent, across crashes, and beside a batch computation."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grete import Topic
from grete.job.directory import JobDirectory
from grete.logs.partition_reader import rows_left
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.read.snapshot_reader import SnapshotReader
from grete.testing import Kit
from grete.worker.supervisor.completion import reached
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.support.committed import all_committed
from tests.support.recommendations import (
    END,
    WAIT_MS,
    Forecast,
    News,
    Recommend,
    forecasts,
    job,
    locations,
    news,
)
from tests.support.recommendations_in_batch import Batch, Told

NOON = 1_700_000_000_000
USERS = [f"user-{number}" for number in range(12)]
PLACES = [f"place-{number}" for number in range(4)]
WEATHER = ["sunny", "cloudy", "rain", "tornadoes"]
GREAT = "great weather for outdoors"


def told(kit: Kit) -> list[tuple[str, str]]:
    """Return (user, text) of all that was told; "": a forecast update."""
    return [(each.user, each.text) for _, each in kit.pairs(news)]


def test_a_visit_is_joined_with_the_forecast_of_its_place() -> None:
    """The table answers with the newest forecast at the time of the visit, and each update goes out as well."""
    kit = Kit(job)
    kit.feed(forecasts, "beach", Forecast("sunny", NOON))
    kit.run()
    kit.feed(locations, "ann", "beach")
    kit.run()
    assert told(kit) == [("", "sunny"), ("ann", GREAT)]
    kit.feed(forecasts, "beach", Forecast("rain", NOON + 1))
    kit.run()
    kit.feed(locations, "bob", "beach")
    kit.run()
    assert told(kit)[2:] == [("", "rain"), ("ann", "warning: rain"), ("bob", "rain, better stay inside")]


def test_a_warning_follows_only_where_the_weather_turns_bad() -> None:
    """Bad weather that stays bad is no news, nor is good weather that stays good; who has left is not warned."""
    kit = Kit(job, partitions=1)
    kit.feed(forecasts, "beach", Forecast("sunny", NOON))
    kit.run()
    for user in ("ann", "bob"):
        kit.feed(locations, user, "beach")
    kit.run()
    kit.feed(locations, "bob", "hill")
    kit.run()
    for step, weather in enumerate(("cloudy", "rain", "tornadoes", "sunny", "rain")):
        kit.feed(forecasts, "beach", Forecast(weather, NOON + step))
        kit.run()
    warning = ("ann", "warning: rain")
    assert told(kit)[3:] == [
        ("", "cloudy"),
        ("", "rain"),
        warning,
        ("", "tornadoes"),
        ("", "sunny"),
        ("", "rain"),
        warning,
    ]


def test_a_late_forecast_is_no_news() -> None:
    """A forecast issued before the one in the table does not replace it, and is not told."""
    kit = Kit(job)
    kit.feed(forecasts, "beach", Forecast("rain", NOON))
    kit.feed(forecasts, "beach", Forecast("sunny", NOON - 1))
    kit.run()
    assert kit.state(Recommend.table) == {"beach": Forecast("rain", NOON)}
    assert told(kit) == [("", "rain")]


def test_a_visit_waits_for_its_forecast() -> None:
    """Everyone at the place is answered when the first forecast comes, once."""
    kit = Kit(job)
    for user in ("ann", "bob"):
        kit.feed(locations, user, "beach")
    kit.feed(locations, "cid", "beachfront")
    kit.run()
    assert told(kit) == []
    kit.feed(forecasts, "beach", Forecast("sunny", NOON))
    kit.run()
    assert told(kit) == [("", "sunny"), ("ann", GREAT), ("bob", GREAT)]
    answered = {key.partition(END)[2]: guest.answered for key, guest in kit.state(Recommend.here).items()}
    assert answered == {"ann": True, "bob": True, "cid": False}


def test_a_visit_does_not_wait_forever() -> None:
    """After an hour of event time the answer is that there is none; a visit renewed meanwhile waits on."""
    kit = Kit(job, partitions=1)
    kit.feed(locations, "ann", "beach", timestamp=NOON)
    kit.feed(locations, "bob", "beach", timestamp=NOON)
    kit.feed(locations, "bob", "beach", timestamp=NOON + 1000)
    kit.run()
    kit.feed(locations, "eve", "moon", timestamp=NOON + WAIT_MS)
    kit.run()
    assert kit.outputs(news)[0].timestamp == NOON + WAIT_MS
    assert told(kit) == [("ann", "no forecast")]
    kit.feed(locations, "eve", "moon", timestamp=NOON + WAIT_MS + 1000)
    kit.run()
    assert told(kit)[1:] == [("bob", "no forecast")]


@pytest.mark.parametrize("other_host", [False, True])
def test_table_and_timers_survive_a_crash(other_host: bool) -> None:
    """A job that dies as a whole goes on with its forecasts, its visits and their timers (R1)."""
    kit = Kit(job, partitions=1)
    kit.feed(forecasts, "hill", Forecast("cloudy", NOON))
    kit.feed(locations, "ann", "beach", timestamp=NOON)
    kit.run()
    kit.crash_all(other_host=other_host)
    kit.feed(locations, "bob", "hill", timestamp=NOON + WAIT_MS)
    kit.run()
    assert sorted(told(kit)) == [("", "cloudy"), ("ann", "no forecast"), ("bob", GREAT)]


def test_a_rollback_takes_the_answer_back() -> None:
    """The talk's case: o1 was made and is rolled back, u1 is taken in before l1 comes again.

    A reader never sees "great weather" after the update "tornadoes", nor two answers to the visit.
    """
    kit = Kit(job, partitions=1)
    kit.feed(forecasts, "x", Forecast("sunny", NOON))
    kit.run()
    kit.feed(locations, "d", "x")
    kit.process()  # o1 is made, and not committed
    kit.crash("by-place")
    kit.feed(forecasts, "x", Forecast("tornadoes", NOON + 1))
    kit.run()
    late = [("", "tornadoes"), ("d", "tornadoes, better stay inside")]
    early = [("d", GREAT), ("", "tornadoes"), ("d", "warning: tornadoes")]
    assert told(kit)[1:] in (late, early)


def rounds(seed: int, count: int) -> list[tuple[dict[str, str], dict[str, Forecast]]]:
    """Return moves and forecasts of each round; in most, a place that users come to gets a forecast, too."""
    rng = random.Random(seed)
    return [
        (
            {user: rng.choice(PLACES) for user in rng.sample(USERS, rng.randint(2, 8))},
            {place: Forecast(rng.choice(WEATHER), NOON + number) for place in rng.sample(PLACES, rng.randint(0, 4))},
        )
        for number in range(count)
    ]


def compare(batch: Batch, moves: dict[str, str], new: dict[str, Forecast], shown: Told) -> None:
    """Assert that a round told just what the batch computation tells, place by place, in order."""
    by_place: dict[str, list[News]] = {}
    for place, each in shown:
        by_place.setdefault(place, []).append(each)
    assert by_place == batch.round(moves, new, shown)


def guests_of(batch: Batch) -> dict[str, tuple[int, bool]]:
    """Return the state that the store ``here`` must have, but for the times."""
    return {place + END + user: guest for place, users in batch.guests.items() for user, guest in users.items()}


@pytest.mark.parametrize("seed", range(5))
def test_crashes_at_any_moment_tell_what_a_batch_computation_tells(seed: int) -> None:
    """Every output and the state, after crashes between any two steps, are those of a plain loop over all input."""
    kit, batch, before = Kit(job), Batch(), Counter[str]()
    for number, (moves, new) in enumerate(rounds(seed, 6)):
        for user, place in moves.items():
            kit.feed(locations, user, place)
        for place, forecast in new.items():
            kit.feed(forecasts, place, forecast)
        kit.run(crashes=3, seed=100 * seed + number)
        places = [place for place, _ in kit.pairs(news)]
        shown = [
            pair
            for place in dict.fromkeys(places)
            for pair in [each for each in kit.pairs(news) if each[0] == place][before[place] :]
        ]
        before = Counter(places)
        compare(batch, moves, new, shown)
    assert kit.state(Recommend.table) == batch.table
    here = {key: (guest.visit, guest.answered) for key, guest in kit.state(Recommend.here).items()}
    assert here == guests_of(batch)
    assert kit.counters["restores"] > 0


class Workers:
    """The job in real worker processes on the embedded log."""

    def __init__(self, running: LocalJob, seed: int) -> None:
        """Take a job whose workers are started by ``poll``."""
        self.running, self.log = running, running.log
        self.rng = random.Random(seed)
        self.kills = 0
        self._read = dict.fromkeys((TopicPartition(news.name, number) for number in range(job.partitions)), 0)

    def feed(self, topic: Topic[str, Any], pairs: dict[str, Any]) -> None:
        """Append records, each in the partition of its key."""
        for key, value in pairs.items():
            partition = TopicPartition(topic.name, partition_of(key.encode(), job.partitions))
            record = ExternalRecord(partition, topic.key.encode(key), topic.value.encode(value), NOON)
            self.log.produce(0, 0, [record])
        self.log.poll()

    def settle(self, kills: int) -> None:
        """Kill workers, each while it runs, and return when all that was fed is committed by all tasks."""
        ends, supervisor = self.running.ends(), self.running.supervisor
        while kills or not self._committed(ends):
            self.running.poll(20)
            partition = self.rng.randrange(job.partitions)
            if kills and supervisor.workers[partition].reports.tasks and self.rng.random() < 0.5:
                supervisor.kill(partition)
                kills, self.kills = kills - 1, self.kills + 1

    def _committed(self, ends: dict[TopicPartition, int]) -> bool:
        checkpoint_id = reached(self.log, job, ends)
        return checkpoint_id is not None and all_committed(self.log, job, checkpoint_id)

    def told(self) -> list[tuple[str, News]]:
        """Return the news that have become visible since this was last called, partition by partition."""
        found = []
        for partition, offset in self._read.items():
            rows = list(rows_left(self.log, partition, offset, self.log.bounds(partition)[1]))
            self._read[partition] = offset if not rows else rows[-1].offset + 1
            found += [(news.key.decode(row.key or b""), news.value.decode(row.value or b"")) for row in rows]
        return found


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_killed_workers_tell_what_a_batch_computation_tells(tmp_path: Path) -> None:
    """The same with real workers and SIGKILL: all outputs of all rounds, place by place, and the forecasts."""
    reference = "tests.support.recommendations"
    topics = [locations.name, forecasts.name]
    batch = Batch()
    with LocalJob(job, reference, JobDirectory(tmp_path / "job"), Settings(), inputs=OutsideInputs(topics)) as running:
        workers = Workers(running, seed=1)
        for moves, new in rounds(7, 5):
            workers.feed(locations, moves)
            workers.feed(forecasts, new)
            workers.settle(kills=3)
            compare(batch, moves, new, workers.told())
        assert workers.kills == 15
        state = SnapshotReader(workers.log, job, snapshots(workers.log, job))
        assert dict(state.all(Recommend.table)) == batch.table
        here = {key: (guest.visit, guest.answered) for key, guest in state.all(Recommend.here)}
    assert here == guests_of(batch)
