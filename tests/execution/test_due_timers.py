"""A burst of timers goes by slices: the result is that of one call, whatever comes between two of them (E10)."""

from collections.abc import Callable
from operator import add
from typing import Any

import pytest

from grete import (
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
    Record,
    SessionWindow,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    Window,
    int64,
    utf8,
)
from grete.execution.task_code import firing
from grete.execution.timing.event_time import OUTSIDE, EventTime
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from tests.execution.harness import Rig

LINES = Topic("lines", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=int64)
ROWS = [(b"k", b"set", 10), (b"k", b"", 20), (b"k", b"", 95), (b"k", b"set", 96), (b"k", b"", 400), (b"k", b"", 401)]


class Chain(Task):
    """A timer each 10 ms, which counts; a record says how far the count was before it."""

    lines = Input(LINES)
    timers = Timers()
    count = Store("count", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        if record.value:
            self.timers.schedule(record.timestamp + 10, "")
        self.out.send("record", self.count.get("", 0))

    def on_timer(self, timer: Timer) -> None:
        self.count.put("", self.count.get("", 0) + 1)
        self.timers.schedule(timer.at + 10, "")
        self.out.send("timer", timer.at)


JOB = Job("j", stages=[Chain])


def work(rig: Rig, rows: list[tuple[bytes, bytes, int]], between: Callable[[Rig], Rig]) -> tuple[Rig, list[Any]]:
    """Process rows as a driver does, and something between any two slices; return all that was sent, in order."""
    sent: list[Any] = []

    def next_one(rig: Rig) -> Rig:
        sent.extend(rig.external())
        return between(rig)

    while rows:
        taken = rig.some_rows("lines", rows)
        rows = rows[taken:]
        rig = next_one(rig)
        while rig.processor.due is not None and rig.processor.due.left:
            rig.processor.due.fire_slice()
            rig = next_one(rig)
    return rig, sent


def sliced(disk: MemoryDisk | None = None) -> Rig:
    """Return a task whose timers go by slices."""
    rig = Rig(JOB, disk=disk)
    assert rig.processor.due is not None
    rig.processor.due.by_slices()
    return rig


def committed(rig: Rig) -> Rig:
    """Commit."""
    rig.commit()
    return rig


def reopened(rig: Rig) -> Rig:
    """Commit, and go on as another process."""
    rig.commit()
    return sliced(rig.disk)


def rolled_back(rig: Rig) -> Rig:
    """Commit, do one slice more, and take it back."""
    rig.commit()
    if rig.processor.due is not None and rig.processor.due.left:
        rig.processor.due.fire_slice()
    rig.rollback()
    return rig


@pytest.mark.parametrize("slice_", [1, 2, 3, 1_000])
@pytest.mark.parametrize("between", [committed, reopened, rolled_back])
def test_slices_give_what_one_call_gives(
    monkeypatch: pytest.MonkeyPatch, slice_: int, between: Callable[[Rig], Rig]
) -> None:
    """Commits, crashes and rollbacks between any two: the same outputs in the same order, each record in its place."""
    _, whole = work(Rig(JOB), ROWS, lambda rig: rig)
    assert sum(key == b"timer" for _, key, _, _ in whole) == 69
    monkeypatch.setattr(firing, "SLICE_TIMERS", slice_)
    _, parts = work(sliced(), ROWS, between)
    assert parts == whole


def test_a_batch_stops_behind_the_record_that_moves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records behind it are left to the driver, which has not told the log of them; nothing is told of time."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 2)
    rig = sliced()
    assert rig.some_rows("lines", ROWS[:2]) == 2
    assert rig.some_rows("lines", ROWS[2:]) == 1
    assert rig.processor.watermark is None
    assert rig.processor.due is not None
    while rig.processor.due.left:
        rig.processor.due.fire_slice()
    assert rig.processor.watermark == (95, False)


def test_a_row_is_counted_over_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst that ends with a slice ends the row of timers, too: a later one for the past begins its own."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1)
    rig = sliced()
    assert rig.some_rows("lines", [(b"k", b"set", 10), (b"k", b"", 25)]) == 2
    assert rig.processor.site.timers._fired_to is None


class Ended(Chain):
    """Also has what a drain fires beyond the last timer: a session, and a join whose left records may stay alone."""

    name = "chain"
    visits = SessionWindow("visits", 30, key=utf8, value=int64, merge=add)
    near = IntervalJoin("near", before_ms=5, after_ms=15, key=utf8, left=utf8, right=utf8, how="left")

    def process(self, record: Record[str, str]) -> None:
        super().process(record)
        self.visits.update(record.key, record.timestamp, lambda n: (n or 0) + 1)
        self.near.put_left(record.key, record.timestamp, record.value)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send("session", window.end)

    def on_join(self, pair: Pair[str, str, str]) -> None:
        self.out.send("alone", pair.timestamp)


@pytest.mark.parametrize("slice_", [1, 2, 5])
def test_a_drain_goes_by_slices(monkeypatch: pytest.MonkeyPatch, slice_: int) -> None:
    """A commit and a crash between any two: it is known in the state how far it is to go (E7)."""
    job = Job("j", stages=[Ended])
    lines = TopicPartition("lines", 0)

    def drained(rig: Rig, *, by_slices: bool) -> list[Any]:
        rig.rows("lines", ROWS[:3])
        rig.processor.input_is_idle(lines, ended=True)
        sent = rig.external()
        while by_slices and rig.processor.due is not None and rig.processor.due.left:
            rig.commit()
            rig = Rig(job, disk=rig.disk)
            assert rig.processor.due is not None
            rig.processor.due.by_slices()
            rig.processor.due.fire_slice()
            sent += rig.external()
        return sent

    whole = drained(Rig(job), by_slices=False)
    assert {key for _, key, _, _ in whole} == {b"record", b"timer", b"session", b"alone"}
    rig = Rig(job)
    assert rig.processor.due is not None
    rig.processor.due.by_slices()
    monkeypatch.setattr(firing, "SLICE_TIMERS", slice_)
    assert drained(rig, by_slices=True) == whole


class Cancels(Task):
    """The first timer to fire cancels the other."""

    lines = Input(LINES)
    timers = Timers()

    def process(self, record: Record[str, str]) -> None:
        if record.value:
            self.timers.schedule(record.timestamp + 10, "a")
            self.timers.schedule(record.timestamp + 10, "b")

    def on_timer(self, timer: Timer) -> None:
        self.timers.cancel(timer.at, "b")


def test_what_is_cancelled_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place in the queue of the process is no timer: another process, after a crash, has none there."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1)
    rig = Rig(Job("j", stages=[Cancels]))
    assert rig.processor.due is not None
    rig.processor.due.by_slices()
    rig.rows("lines", ROWS[:1])
    assert rig.some_rows("lines", ROWS[1:2]) == 1
    assert not rig.processor.due.left


def test_a_commit_amid_a_batch_has_how_far_its_records_have_come() -> None:
    """The others of the batch are in flight: a successor reads them as a batch of their own, in the same time."""
    one, two = (OUTSIDE, TopicPartition("lines", 0)), (OUTSIDE, TopicPartition("lines", 1))
    time = EventTime((), (one, two))
    time.begin(two)
    time.highest = 50
    time.end(two)
    time.begin(one)
    time.highest = 20
    saved = dict(time.save())
    time.end(one)
    assert saved == dict(time.save())
