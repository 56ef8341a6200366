"""A burst of due timers in a job with ``async def process`` goes by slices: the result is that of one call (E10)."""

from typing import Any

import pytest

from grete import (
    Call,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    int64,
    utf8,
)
from grete.execution.task_code import firing
from grete.execution.task_code.processor import Processor
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
DONE = Topic("done", key=utf8, value=int64)
OUT = Topic("out", key=utf8, value=int64)
INTERVAL_MS = 5  # as long as a call may take: a checkpoint is due at almost each step
ROWS = [
    (2, "set", 10),
    (0, "", 20),
    (1, "", 95),
    (0, "set", 96),
    (2, "", 400),
    (1, "", 401),
    (0, "set", 402),
    (1, "", 900),
]


async def look(what: str) -> str:
    """Return the argument."""
    return what


class Chain(Task):
    """A timer each 30 ms, which counts; a record says how far the count was before it."""

    lines = Input(LINES)
    look = Call(look)
    timers = Timers()
    count = Store("count", key=utf8, value=int64)
    out = Output(DONE)

    async def process(self, record: Record[str, str]) -> None:
        """Look, and begin a chain if the line says so."""
        before = self.count.get("", 0)
        if await self.look(record.value):
            self.timers.schedule(record.timestamp + 30, record.key)
        self.out.send(record.key, -before)

    def on_timer(self, timer: Timer) -> None:
        """Count, and again in 30 ms."""
        self.count.put("", self.count.get("", 0) + 1)
        self.timers.schedule(timer.at + 30, timer.key)
        self.out.send(timer.key, timer.at)


class Behind(Task):
    """Counts what comes, in sessions, of which many end at once, and by a call for each."""

    done = Input(DONE)
    look = Call(look)
    timers = Timers()
    count = Store("count", key=utf8, value=int64)
    out = Output(OUT)

    async def process(self, record: Record[str, int]) -> None:
        """Look, count, and have it said at the end of the second."""
        await self.look(record.key)
        self.count.put(record.key, self.count.get(record.key, 0) + 1)
        self.timers.schedule(record.timestamp // 100 * 100 + 100 + record.value % 7, record.key)

    def on_timer(self, timer: Timer) -> None:
        """Say it."""
        self.out.send(timer.key, timer.at)


class Watched:
    """The checkpoints that were frozen with timers left, and those of them with records in flight behind these."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.left = self.in_flight = 0
        before_freeze = Processor.before_freeze

        def watched(processor: Processor, checkpoint_id: int) -> None:
            if processor.due is not None and processor.due.left:
                self.left += 1
                self.in_flight += processor.in_flight is not None and processor.in_flight.count > 0
            before_freeze(processor, checkpoint_id)

        patched.setattr(Processor, "before_freeze", watched)


def kit_of(stages: list[type[Task]], guarantee: Any = "exactly-once") -> Kit:
    """Return a kit of a job whose checkpoints are due often."""
    settings = Settings(checkpoint_interval_ms=INTERVAL_MS, idle_checkpoint_interval_ms=INTERVAL_MS)
    kit = Kit(Job("bursts", stages=stages), settings=settings, processing_guarantee=guarantee)
    kit.feed(LINES, "a", "", timestamp=0)
    kit.run()
    for number, value, timestamp in ROWS:
        kit.feed(LINES, "abc"[number], value, timestamp=timestamp)
    return kit


def results(kit: Kit) -> tuple[Any, ...]:
    """Return all that a job has made. How the records of a stream fall between timers is not given."""
    if len(kit.job.stages) == 1:
        return kit.pairs(DONE), kit.state(Chain.count)
    return sorted(kit.pairs(OUT)), kit.state(Chain.count), kit.state(Behind.count)


@pytest.mark.parametrize(("slice_", "stages"), [(1, [Chain]), (7, [Chain, Behind])], ids=["source", "behind"])
def test_calls_between_slices_give_what_one_call_gives(
    monkeypatch: pytest.MonkeyPatch, slice_: int, stages: list[type[Task]]
) -> None:
    """Commits, crashes and rollbacks between any two: the same outputs and the same state."""
    kit = kit_of(stages)
    kit.run()
    whole = results(kit)
    watched = Watched(monkeypatch)
    monkeypatch.setattr(firing, "SLICE_TIMERS", slice_)
    kit = kit_of(stages)
    kit.run(crashes=20, seed=1)
    assert results(kit) == whole
    assert watched.in_flight > 0


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_stop_between_slices_skips_nothing(monkeypatch: pytest.MonkeyPatch, guarantee: str) -> None:
    """Nor does it let anything come twice in a first stage, where the guarantee would allow that."""
    kit = kit_of([Chain])
    kit.run()
    whole = results(kit)
    watched = Watched(monkeypatch)
    monkeypatch.setattr(firing, "SLICE_TIMERS", 7)
    kit = kit_of([Chain], guarantee)
    while not watched.left:
        kit.advance(INTERVAL_MS)
    kit.stop()
    kit.run()
    assert results(kit) == whole
