"""Records behind a watermark that says idle or ended take that back for consumers, until it is told again (E2, E7)."""

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, TumblingWindow, Window, int64, utf8
from grete.api.tasks.mode import Mode
from grete.core.deterministic.logical_watermarks import NEVER, STEP_US
from grete.core.deterministic.merge_channel import ALL
from grete.core.events import Advance
from grete.execution.timing.event_time import AFTER_ALL
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from grete.testing import Kit
from tests.execution.deterministic.test_processor import Given, LogicalRig

SECOND = 1_000
START = 1_600_000_000_000
IN = Topic("in", key=utf8, value=int64)
MIDDLE = Topic("middle", key=utf8, value=int64)
OUT = Topic("out", key=utf8, value=int64)
LINES, WORDS = Topic("lines", key=utf8, value=utf8), Topic("words", key=utf8, value=utf8)
MODES = pytest.mark.parametrize("modes", [("aligned",) * 2, ("deterministic",) * 2, ("deterministic", "aligned")])


class PassOn(Task):
    """Sends each record on, and by the clock how many there were."""

    name = "pass-on"
    numbers = Input(IN)
    counts = Store("counts", key=utf8, value=int64)
    alarms = Timers(clock="wall")
    out = Output(MIDDLE)

    def process(self, record: Record[str, int]) -> None:
        """Send it on, and set a timer if it asks for one."""
        self.counts.put("all", self.counts.get("all", 0) + 1)
        self.out.send(record.key, record.value)
        if record.key == "alarm":
            self.alarms.schedule(record.value)

    def on_timer(self, timer: Timer) -> None:
        """Send a record that is later than all others."""
        self.out.send("by the clock", self.counts.get("all", 0), timestamp=timer.at)


class PerSecond(Task):
    """Sums of a second."""

    name = "per-second"
    numbers = Input(MIDDLE)
    sums = TumblingWindow("sums", SECOND, key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, int]) -> None:
        """Add it: none is late."""
        assert self.sums.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        """Send it."""
        self.out.send(window.key, window.value)


def sums(modes: tuple[Mode, Mode]) -> Job:
    """Return a job whose second stage closes windows."""
    first, second = modes
    stages = [type("PassOn", (PassOn,), {"mode": first}), type("PerSecond", (PerSecond,), {"mode": second})]
    return Job("again", stages=stages, partitions=1)


@MODES
def test_a_record_and_the_next_end_in_one_step(modes: tuple[Mode, Mode]) -> None:
    """The producer has ended before and behind the record: it tells so again, or the window stays open for ever."""
    kit = Kit(sums(modes))
    for number in range(4):
        kit.feed(IN, "a", number, timestamp=START + number * 60 * SECOND)
        kit.process()
        kit._host.drain()
        assert kit.pairs(OUT) == [("a", before) for before in range(number + 1)]


@MODES
def test_a_timer_by_the_clock_behind_a_drain_reaches_the_windows(modes: tuple[Mode, Mode]) -> None:
    """A record sent behind the end of all inputs opens a window, which closes at once, as those before the end."""
    kit = Kit(sums(modes))
    at = kit.now_ms + 3600 * SECOND
    kit.feed(IN, "alarm", at, timestamp=START)
    kit.drain()
    assert kit.pairs(OUT) == [("alarm", at)]
    kit.advance(3600 * SECOND)
    assert kit.pairs(OUT) == [("alarm", at), ("by the clock", 1)]
    kit.feed(IN, "b", 7, timestamp=at + 60 * SECOND)
    kit.drain()
    assert kit.pairs(OUT) == [("alarm", at), ("by the clock", 1), ("b", 7)]


def test_a_source_that_was_idle_tells_it_again() -> None:
    """E2: a record behind it takes it back for consumers, though the source is idle again in the same step."""
    disk = MemoryDisk()
    lines, rig = TopicPartition("lines", 0), LogicalRig(0, disk)

    def take(first_t: int, *stamps: int) -> None:
        rows = [LogRow(at, 0, at, None, b"be", None) for at in stamps]
        rig.processor.process_decided(lines, rows, first_t)

    def told() -> list[Advance]:
        rig.run([], rig.processor.next_timer)
        found, rig.advances = rig.advances, []
        return found

    take(900, 40)
    rig.processor.process_idle(lines, 901)
    assert told() == [Advance(STEP_US, 40, idle=True)]
    take(STEP_US + 1, 40)
    rig.processor.process_idle(lines, STEP_US + 2)
    rig.commit()
    rig = LogicalRig(0, disk)
    assert told() == [Advance(2 * STEP_US, 40, idle=True)]
    take(3 * STEP_US, 40, 40)  # in two steps
    rig.processor.process_idle(lines, 3 * STEP_US + 2)
    assert told() == [Advance(3 * STEP_US, 40, idle=False), Advance(4 * STEP_US, 40, idle=True)]
    assert rig.processor.next_timer == NEVER


class Passes(Task):
    """Sends each line on."""

    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str | None, str]) -> None:
        """Send it."""
        self.out.send(record.key, record.value)


class Counts(Task):
    """Counts lines by the millisecond."""

    lines = Input(WORDS)
    counts = TumblingWindow("counts", 1, key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str | None, str]) -> None:
        """Count it."""
        assert self.counts.update("lines", record.timestamp, lambda count: (count or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        """Send the count."""
        self.out.send(window.key, window.value)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_record_behind_the_end_fires_with_the_next_end(restarts: bool) -> None:
    """E7: no watermark has said that its producer goes on, and a commit may stand between the two."""
    job, disk = Job("counts", [Passes, Counts], mode="deterministic"), MemoryDisk()
    rig = LogicalRig(1, disk, job=job)
    counts = []
    for step in range(1, 4):
        rig.run([Given(step * STEP_US - 1, 0, "be")], step * STEP_US - 1)
        if restarts:
            rig.commit()
            rig = LogicalRig(1, disk, rig.released, job=job)
        rig.run([Given(step * STEP_US, ALL, "", (AFTER_ALL, True))], step * STEP_US)
        counts += [int.from_bytes(record.value or b"") for record in rig.external]
        rig.external.clear()
        assert counts == [1] * step
    rig.run([Given(5 * STEP_US, ALL, "", (AFTER_ALL, True))], 5 * STEP_US)  # nothing has come
    assert rig.external == []
