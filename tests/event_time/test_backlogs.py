"""Event time on a backlog, in the kit: what is read in turns is not late, and crashes change nothing (E1 to E5)."""

from collections import Counter

import pytest

from grete import Job
from grete.api.tasks.mode import Mode
from grete.settings import Settings, with_texts
from grete.testing import Kit
from tests.event_time.jobs import MINUTE, counting, joining, topic_of, windows_in_a_row

SMALL = Settings(batch_bytes_max=500, uncommitted_state_bytes_max=1 << 20)
START = 1_600_000_000_000


WAYS = ["exactly-once", "at-most-once", "at-least-once", "deterministic"]  # the last one is exactly once, too
GUARANTEES = WAYS[:3]
EXACTLY_ONCE = pytest.mark.parametrize("mode", ["aligned", "deterministic"])


def _mode(way: str) -> Mode:
    return "deterministic" if way == "deterministic" else "aligned"


def _kit(job: Job, way: str = "exactly-once") -> Kit:
    settings = with_texts(SMALL, {"processing_guarantee": way}) if way in GUARANTEES else SMALL
    return Kit(job, settings=settings)


def _feed_join(kit: Kit, minutes: int) -> int:
    """Feed ``minutes`` of data: ten records a minute on the left, of which one has a partner in another minute."""
    left, right = topic_of(kit.job, "left"), topic_of(kit.job, "right")
    for tick in range(minutes * 10):
        at = START + tick * MINUTE // 10
        kit.feed(left, f"k{tick}", "l" * 50, timestamp=at)
        if tick % 10 == 0:
            kit.feed(right, f"k{tick}", "r", timestamp=at + 3 * MINUTE)
    return minutes


@pytest.mark.parametrize("way", WAYS)
def test_a_join_finds_every_pair_of_a_backlog(way: str) -> None:
    """Of two inputs of unequal density none runs ahead of the other: no partner is forgotten before its pair comes."""
    kit = _kit(joining("join", mode=_mode(way)), way)
    expected = _feed_join(kit, 120)
    kit.run()
    assert len(kit.pairs(topic_of(kit.job, "pairs"))) == expected


@EXACTLY_ONCE
def test_a_join_finds_every_pair_in_spite_of_crashes(mode: Mode) -> None:
    """Event time is state: it is committed, restored and rolled back with what depends on it."""
    kit = _kit(joining("join", partitions=2, mode=mode))
    expected = _feed_join(kit, 60)
    kit.run(crashes=25, seed=3)
    assert len(kit.pairs(topic_of(kit.job, "pairs"))) == expected


def _counting(way: str) -> Job:
    """Return the job; "mixed": its first stage is deterministic, the windows are not."""
    return counting("count", mode=_mode(way), first="deterministic" if way == "mixed" else None)


def _feed_windows(kit: Kit, minutes: int) -> Counter[str]:
    """Feed one partition with twenty times as much as the other; return how often each value came."""
    source, values = topic_of(kit.job, "in"), Counter[str]()
    for tick in range(minutes * 20):
        value, at = f"v{tick % 7}", START + tick * MINUTE // 20
        kit.feed(source, "x" * 30, value, timestamp=at, partition=0)
        values[value] += 1
        if tick % 20 == 0:
            kit.feed(source, "y", value, timestamp=at, partition=1)
            values[value] += 1
    last = START + (minutes + 5) * MINUTE
    for partition in range(2):
        kit.feed(source, "end", f"end{partition}", timestamp=last, partition=partition)
    return values


@pytest.mark.parametrize("way", [*WAYS, "mixed"])
def test_windows_behind_a_repartition_drop_nothing(way: str) -> None:
    """Two producers that share stream partitions, one far ahead of the other: no record is late."""
    kit = _kit(_counting(way), way)
    expected = _feed_windows(kit, 60)
    kit.run()
    assert _totals(kit) == expected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", ["exactly-once", "deterministic", "mixed"])
def test_windows_behind_a_repartition_survive_crashes(way: str, seed: int) -> None:
    """Watermarks are rolled back, or merged again, like the records between which they stand."""
    kit = _kit(_counting(way))
    expected = _feed_windows(kit, 60)
    kit.run(crashes=30, seed=seed)
    assert _totals(kit) == expected


@EXACTLY_ONCE
def test_an_empty_partition_holds_windows_back_only_for_a_while(mode: Mode) -> None:
    """An input partition that brings nothing is idle after ``event_time_idle_ms``; so is a task that reads no other."""
    kit = _kit(counting("count", mode=mode))
    source = topic_of(kit.job, "in")
    for tick in range(4):
        kit.feed(source, "x", "v", timestamp=START + tick * MINUTE, partition=0)
    kit.advance(kit.settings.event_time_idle_ms - 1_000)
    assert kit.outputs(topic_of(kit.job, "counts")) == []
    kit.run()
    assert _totals(kit) == {"v": 3}


@EXACTLY_ONCE
def test_a_partition_that_lags_is_not_idle_and_one_that_comes_back_counts(mode: Mode) -> None:
    """Idle ends with the next record: from then on the partition counts again."""
    kit = _kit(counting("count", mode=mode))
    source = topic_of(kit.job, "in")
    kit.feed(source, "x", "v", timestamp=START, partition=0)
    kit.advance(kit.settings.event_time_idle_ms - 1_000)
    kit.feed(source, "x", "w", timestamp=START, partition=1)
    kit.feed(source, "x", "v", timestamp=START + 2 * MINUTE, partition=0)
    kit.advance(2_000)
    assert _totals(kit) == {}, "partition 1 has brought something: it counts"
    kit.feed(source, "x", "w", timestamp=START + 2 * MINUTE, partition=1)
    kit.advance(1_000)
    assert _totals(kit) == {"v": 1, "w": 1}


@EXACTLY_ONCE
def test_a_dead_producer_is_not_idle(mode: Mode) -> None:
    """Consumers wait for a dead producer, so its next records are not late."""
    kit = _kit(counting("count", mode=mode))
    source = topic_of(kit.job, "in")
    for partition in range(2):
        kit.feed(source, "x", "v", timestamp=START, partition=partition)
    kit.advance(1_000)
    kit.feed(source, "x", "v", timestamp=START + 1, partition=1)
    kit.feed(source, "x", "v", timestamp=START + 2 * MINUTE, partition=0)
    kit.crash("repartition", 1)
    dead = kit._tasks.pop(("repartition", 1))
    kit.advance(3 * kit.settings.event_time_idle_ms)
    assert _totals(kit) == {}
    kit._tasks["repartition", 1] = dead
    kit.feed(source, "x", "v", timestamp=START + 2 * MINUTE, partition=1)
    kit.run()
    assert _totals(kit) == {"v": 3}


@EXACTLY_ONCE
def test_windows_behind_windows_with_grace_drop_nothing(mode: Mode) -> None:
    """A window's results are older than event time by its grace, and consumers get a watermark that allows for it."""
    kit = _kit(windows_in_a_row("row", mode))
    source = topic_of(kit.job, "in")
    for tick in range(240):
        kit.feed(source, "x", f"v{tick % 3}", timestamp=START + tick * 5_000)
        kit.advance(50)
    kit.feed(source, "x", "end", timestamp=START + 30 * MINUTE)
    kit.run()
    assert _totals(kit) == {"v0": 80, "v1": 80, "v2": 80}


@EXACTLY_ONCE
def test_a_job_without_timers_sends_no_watermarks(mode: Mode) -> None:
    """It pays nothing for event time, and its streams can be read by a release that knows of none."""
    kit = Kit(Job("plain", [stage.task for stage in counting("count").stages[:1]], mode=mode))
    kit.feed(topic_of(counting("count"), "in"), "x", "v")
    kit.run()
    assert kit.counters["watermarks"] == 0


def _totals(kit: Kit) -> Counter[str]:
    totals = Counter[str]()
    for key, count in kit.pairs(topic_of(kit.job, "counts")):
        if not str(key).startswith("end"):
            totals[str(key)] += int(count)
    return totals
