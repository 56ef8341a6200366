"""Reading a job of which some tasks are idle: what they have left out does not hold up the common checkpoint (0037)."""

from datetime import UTC, datetime, timedelta

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.errors import ConfigError
from grete.logs.partition_reader import rows
from grete.protocol.commit import Commit
from grete.settings import Settings
from grete.state.read.checkpoints.commit_search import commit_in
from grete.state.read.checkpoints.commits import all_wirings, newest_commit
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.checkpoints.snapshots import contents, live, segments, snapshots
from grete.testing import Kit

words = Topic("words", key=utf8, value=int64)
routed = Topic("routed", key=utf8, value=int64)


class Route(Task):
    """Sends each record on."""

    words = Input(words)
    out = Output(routed)

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Keep(Task):
    """Keeps the last value of each key."""

    routed = Input(routed)
    kept = Store("kept", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.kept.put(record.key, record.value)


class Alone(Task):
    """The same in one stage."""

    words = Input(words)
    kept = Store("kept", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.kept.put(record.key, record.value)


def busy_in_one_partition(*stages: type[Task]) -> Kit:
    """Return a job whose second partition has been idle for three checkpoints, while the first was busy."""
    kit = Kit(Job("j", stages=list(stages), partitions=2), settings=Settings(idle_checkpoint_interval_ms=60_000))
    for partition in (0, 1):
        kit.feed(words, f"k{partition}", 0, partition=partition)
    kit.run()
    for value in (1, 2, 3):
        kit.feed(words, "a", value, partition=0)  # murmur2 sends it to partition 0
        kit.advance(200)
    return kit


def value(kit: Kit, asked: AsOf | None = None) -> int | None:
    """Return the value of key "a" in the last stage, as a reader of a common checkpoint gets it."""
    stage = kit.job.stages[-1]
    number = stage.store_ids()["kept"]
    for snapshot in snapshots(kit._log, kit.job, asked)[-2:]:
        keys, data, _ = live(contents(segments(kit._log, snapshot), frozenset({number}))[number])
        if b"a" in keys:
            return int64.decode(data[keys.index(b"a")])
    return None


@pytest.mark.parametrize("stages", [(Route, Keep), (Alone,)])
def test_the_newest_checkpoint_is_not_held_up_by_an_idle_task(stages: tuple[type[Task], ...]) -> None:
    """The reader gets what the busy task has committed last; before, it got what both had committed as such."""
    kit = busy_in_one_partition(*stages)
    last = [newest_commit(kit._log, wiring) for wiring in all_wirings(kit.job)[-2:]]
    assert last[0] is not None
    assert last[1] is not None
    assert last[0].commit.checkpoint_id >= last[1].commit.checkpoint_id + 400
    assert value(kit) == 3


def test_a_checkpoint_that_an_idle_task_has_left_out_can_be_read() -> None:
    """It holds what the one before it holds, as the producers had sent nothing more to the task."""
    kit = busy_in_one_partition(Route, Keep)
    busy = [commit.checkpoint_id for commit in commits_of(kit, 2)]
    assert not {commit.checkpoint_id for commit in commits_of(kit, 3)} & set(busy[-3:])
    assert [value(kit, checkpoint_id) for checkpoint_id in busy[-3:]] == [1, 2, 3]
    with pytest.raises(ConfigError, match="nearest committed: "):
        snapshots(kit._log, kit.job, busy[-1] - 1)


def test_a_time_behind_the_last_checkpoint_is_the_newest_one() -> None:
    """Sources end at different checkpoints: behind that of the first one nothing tells what a checkpoint holds."""
    kit = busy_in_one_partition(Route, Keep)
    busy = [commit.checkpoint_id for commit in commits_of(kit, 2)]
    kit.feed(words, "a", 4, partition=0)
    ahead = kit._tasks["route", 0]
    for _ in range(3):
        kit.now_ms += 200
        while list(ahead.work()):
            pass
    ends = [commits_of(kit, number)[-1].checkpoint_id for number in (0, 1)]
    assert ends[0] > ends[1]
    asked = (*busy[-3:], busy[-1] + 3_600_000)
    times = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=each) for each in asked]
    assert [value(kit, time) for time in times] == [1, 2, 3, 3]
    assert [value(kit, time - timedelta(milliseconds=1)) for time in times[1:3]] == [1, 2]


def test_a_task_that_is_behind_holds_the_common_checkpoint_up() -> None:
    """A common checkpoint holds no record that a producer has sent and the task has not committed."""
    kit = busy_in_one_partition(Route, Keep)
    kit.crash("keep", 0)
    before = [snapshot.commit.checkpoint_id for snapshot in snapshots(kit._log, kit.job)]
    kit.feed(words, "a", 4, partition=0)
    for number in (0, 1):
        route = kit._tasks["route", number]
        for _ in range(3):
            kit.now_ms += 200
            while list(route.work()):
                pass
    assert value(kit) == 3
    assert [snapshot.commit.checkpoint_id for snapshot in snapshots(kit._log, kit.job)][2] == before[2]


def commits_of(kit: Kit, number: int) -> list[Commit]:
    """Return the commits of a task, oldest first."""
    wiring = all_wirings(kit.job)[number]
    start, end = kit._log.bounds(wiring.changelog)
    found = (commit_in(wiring.changelog, row) for row in rows(kit._log, wiring.changelog, start, end))
    return [commit for commit in found if commit is not None]
