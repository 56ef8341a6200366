"""Inputs with priorities, in the kit, with crashes: what is urgent comes first, and nothing is lost or late by it."""

from typing import Any

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.testing import Kit

HOUR_MS = 3_600_000
RECORDS = 400  # of each input: more than are read before a look whether something urgent has come
alerts = Topic("alerts", key=utf8, value=int64)
readings = Topic("readings", key=utf8, value=int64)
archive = Topic("archive", key=utf8, value=int64)
handled = Topic("handled", key=utf8, value=utf8)


class Handle(Task):
    """Says what it has handled, as the so-manieth record."""

    readings = Input(readings)
    archive = Input(archive, priority=-1)
    alerts = Input(alerts, priority=1)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(handled)

    def process(self, record: Record[str, int]) -> None:
        self.seen.put("all", count := self.seen.get("all", 0) + 1)
        self.out.send("all", f"{count} {record.topic} {record.value}")


def fed(kit: Kit, first: int = 0) -> Kit:
    """Feed records of all three; by time, the archive would come first and the alerts last."""
    for number in range(first, first + RECORDS):
        kit.feed(alerts, "a", number, timestamp=kit.now_ms)
        kit.feed(readings, "r", number, timestamp=kit.now_ms - HOUR_MS)
        kit.feed(archive, "o", number, timestamp=kit.now_ms - 2 * HOUR_MS)
    return kit


def told(first: int = 0) -> list[str]:
    """Return the lines of the task for all that ``fed`` has fed."""
    inputs = [
        (topic, number) for topic in ("alerts", "readings", "archive") for number in range(first, first + RECORDS)
    ]
    return [f"{3 * first + at} {topic} {number}" for at, (topic, number) in enumerate(inputs, 1)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_the_highest_priority_is_read_first_through_crashes(mode: Mode, seed: int) -> None:
    """A task that dies in the middle goes on in the same order, and says each record once."""
    kit = fed(Kit(Job("handling", [Handle], mode=mode), settings=Settings(batch_bytes_max=2_000)))
    kit.run(crashes=12, seed=seed)
    assert [value for _, value in kit.pairs(handled)] == told()
    fed(kit, RECORDS).run(crashes=3, seed=seed)
    assert [value for _, value in kit.pairs(handled)] == told() + told(RECORDS)


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_the_order_does_not_depend_on_the_guarantee(guarantee: Any) -> None:
    """Priorities order what is read, whenever a commit has it."""
    kit = fed(Kit(Job("handling", [Handle]), processing_guarantee=guarantee))
    kit.run()
    assert [value for _, value in kit.pairs(handled)] == told()


def test_a_replay_takes_the_records_in_the_order_that_was_decided() -> None:
    """A replay follows the input decisions, as the rows then at hand are not known any more (D2)."""
    kit = Kit(Job("handling", [Handle], mode="deterministic"), settings=Settings(checkpoint_interval_ms=50))
    for number in range(5):
        kit.feed(readings, "r", number)
        kit.advance(20)
        kit.feed(alerts, "a", number)
        kit.advance(20)
    kit.run(crashes=3, seed=1)
    found = replay(kit.job, kit._log, Settings())
    assert (found.records, found.difference, found.halted) == (10, None, None)
    assert next(value for _, value in kit.pairs(handled)) == "1 readings 0"  # it came when nothing else was there


class Hourly(Task):
    """Counts the records of an hour."""

    readings = Input(readings)
    alerts = Input(alerts, priority=1)
    hours = TumblingWindow("hours", size_ms=HOUR_MS, key=utf8, value=int64)
    out = Output(handled)

    def process(self, record: Record[str, int]) -> None:
        assert self.hours.update("all", record.timestamp, lambda count: (count or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send("all", f"{window.start // HOUR_MS} {window.value}")


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_event_time_waits_for_the_inputs_that_wait(mode: Mode) -> None:
    """Urgent records of later hours close no window of those that are read after them (E1, E4)."""
    kit = Kit(Job("hours", [Hourly], mode=mode))
    start = kit.now_ms // HOUR_MS * HOUR_MS
    for number in range(300):
        kit.feed(alerts, "a", number, timestamp=start + HOUR_MS + number)
        kit.feed(readings, "r", number, timestamp=start - 2 * HOUR_MS + number * 20_000)
    kit.run(crashes=5, seed=2)
    for topic in (alerts, readings):
        kit.feed(topic, "z", 0, timestamp=start + 3 * HOUR_MS)
    kit.run()
    hour = start // HOUR_MS
    assert [value for _, value in kit.pairs(handled)] == [f"{hour - 2} 180", f"{hour - 1} 120", f"{hour + 1} 300"]


def test_a_stream_between_stages_has_no_priority() -> None:
    """A checkpoint needs all streams, so none of them may wait."""
    after = type("After", (Handle,), {"alerts": Input(handled, priority=3), "out": Output(Topic("o", utf8, utf8))})
    with pytest.raises(
        GraphError, match=r"reads topic 'handled' with priority=, and stage 'handle' of this job writes"
    ):
        Job("j", [Handle, after])


@pytest.mark.parametrize("priority", ["high", 1.5, True, None])
def test_a_priority_is_a_number(priority: Any) -> None:
    """The declaration of a priority that is no int is refused."""
    wrong = type("Wrong", (Handle,), {"alerts": Input(alerts, priority=priority)})
    with pytest.raises(GraphError, match=r"input 'alerts': priority=.*: need an int; the highest is read first"):
        Job("j", [wrong])
