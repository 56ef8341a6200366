"""Timers and windows: fired in event time, once, as part of the state."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)
from grete.errors import ConfigError, TaskError
from grete.execution.limits import MOVED_TIMERS
from grete.execution.timing import timers as module
from tests.execution.harness import Rig

LINES = Topic("lines", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=int64)
LETTERS = Topic("letters", key=utf8, value=utf8)


class Alarms(Task):
    """A line is a command: "set AT KEY", "cancel AT KEY", "fail", or nothing."""

    lines = Input(LINES, errors=DeadLetter(LETTERS))
    timers = Timers()
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        command, *arguments = record.value.split() or [""]
        if command == "set":
            self.timers.schedule(int(arguments[0]), *arguments[1:2])
        elif command == "cancel":
            self.timers.cancel(int(arguments[0]), *arguments[1:2])
        if "fail" in arguments or command == "fail":
            raise ValueError

    def on_timer(self, timer: Timer) -> None:
        if timer.key == "again" and timer.at < 100:
            self.timers.schedule(timer.at + 30, "again")
        if timer.key == "bad":
            raise ValueError("told to")
        self.out.send(timer.key, timer.at)


JOB = Job("j", stages=[Alarms])


def run(rig: Rig, *lines: tuple[str, int]) -> list[tuple[str, int]]:
    """Process lines, each (command, timestamp), and return the timers that fired as (key, at)."""
    rig.rows("lines", [(None, line.encode(), timestamp) for line, timestamp in lines])
    records = [record for record in rig.external() if record[0] == "out"]
    assert [timestamp for *_, timestamp in records] == [int64.decode(value or b"") for _, _, value, _ in records]
    return [((key or b"").decode(), timestamp) for _, key, _, timestamp in records]


def test_timers_fire_in_order_once_stream_time_reaches_them() -> None:
    """Not before, at the very ms, in the order of (at, key), whatever the order in which they were set."""
    rig = Rig(JOB)
    assert run(rig, ("set 30 b", 1), ("set 20 z", 2), ("set 30 a", 3), ("set -5 x", 3), ("", 19)) == [("x", -5)]
    assert run(rig, ("", 20)) == [("z", 20)]
    assert run(rig, ("", 20), ("", 500)) == [("a", 30), ("b", 30)]
    assert run(rig, ("", 1000)) == []


def test_stream_time_does_not_go_back() -> None:
    """A late record does not move time; a timer for the past fires after the record that set it."""
    rig = Rig(JOB)
    assert run(rig, ("", 100), ("set 50 past", 10), ("set 101 next", 10), ("", 99)) == [("past", 50)]
    assert run(rig, ("", 101)) == [("next", 101)]


def test_the_same_timer_twice_is_one() -> None:
    """(at, key) names a timer: set twice it fires once, cancelled it does not, set again it does."""
    rig = Rig(JOB)
    assert run(rig, ("set 10 a", 1), ("set 10 a", 1), ("set 11 a", 1), ("", 50)) == [("a", 10), ("a", 11)]
    assert run(rig, ("set 60 a", 50), ("cancel 60 a", 50), ("cancel 60 b", 50), ("", 70)) == []
    assert run(rig, ("set 80 a", 70), ("cancel 80 a", 70), ("set 80 a", 70), ("", 90)) == [("a", 80)]


def test_timers_may_set_timers() -> None:
    """A timer set by on_timer for a time already reached fires at once."""
    assert run(Rig(JOB), ("set 10 again", 1), ("", 75)) == [("again", 10), ("again", 40), ("again", 70)]


def test_timers_are_durable() -> None:
    """Timers and stream time that were committed fire after a restart, once: they are state."""
    rig = Rig(JOB)
    run(rig, ("set 200 a", 100), ("set 300 b", 100))
    rig.commit()
    again = Rig(JOB, disk=rig.disk)
    assert run(again, ("set 99 past", 1)) == [("past", 99)]
    assert run(again, ("", 200)) == [("a", 200)]
    again.commit()
    assert run(Rig(JOB, disk=rig.disk), ("", 300)) == [("b", 300)]


def test_timers_rollback() -> None:
    """A rollback takes back what was set, cancelled and fired since the commit, and stream time (R4)."""
    rig = Rig(JOB)
    run(rig, ("set 20 fires", 1), ("set 90 cancelled", 1))
    rig.commit()
    assert run(rig, ("set 30 new", 1), ("cancel 90 cancelled", 1), ("", 40)) == [("fires", 20), ("new", 30)]
    rig.rollback()
    assert run(rig, ("set 30 other", 2), ("", 19)) == []
    assert run(rig, ("", 100)) == [("fires", 20), ("other", 30), ("cancelled", 90)]


def test_a_dead_letter_takes_its_timers_with_it() -> None:
    """Timers that a failed record set or cancelled are undone, and its timestamp does not move stream time."""
    rig = Rig(JOB)
    assert run(rig, ("set 20 kept", 1), ("cancel 20 kept fail", 2), ("set 15 gone fail", 3), ("fail", 99)) == []
    assert run(rig, ("", 50)) == [("kept", 20)]


def test_a_failing_timer_makes_no_dead_letter() -> None:
    """The error names timer and task and stops it: the record that moved the time is not to blame."""
    rig = Rig(JOB)
    with pytest.raises(TaskError, match="stage alarms, partition 0: timer 'bad' at 10: ValueError: told to"):
        run(rig, ("set 10 bad", 1), ("", 50))
    assert [record[0] for record in rig.external()] == []


@pytest.mark.parametrize("later_ms", [0, 1])
def test_a_timer_that_is_set_again_and_again_is_kept_once(later_ms: int) -> None:
    """One timer, cancelled and set 5,000 times, to the same time or ever later: the heap does not grow with it."""
    rig = Rig(JOB)
    queue, at = rig.processor.site.timers, 1_000_000
    for _ in range(5):
        for _ in range(1_000):
            queue.cancel("", at)
            at += later_ms
            queue.schedule("", at)
        rig.commit()
    assert len(queue._in_heap) <= 2_000
    assert run(rig, ("", at)) == [("", at)]


def test_what_failed_records_set_does_not_stay_in_memory() -> None:
    """Timers of records that went to the dead-letter topic leave the heap; one that was cancelled there stays set."""
    rig = Rig(JOB)
    queue = rig.processor.site.timers
    run(rig, ("set 5000000 kept", 1))
    for first in range(1_000_000, 1_005_000, 1_000):
        run(rig, *((f"set {at} gone fail", 1) for at in range(first, first + 1_000)), ("cancel 5000000 kept fail", 1))
        rig.commit()
    assert len(queue._in_heap) <= 2_000
    assert run(rig, ("", 5_000_000)) == [("kept", 5_000_000)]


def test_a_large_heap_loses_what_was_cancelled_in_slices() -> None:
    """No freeze goes through all timers (A8): a few leave the heap with each, and those that are set fire in order."""
    rig = Rig(JOB)
    queue, count = rig.processor.site.timers, 30_000
    for at in range(count):
        queue.schedule("", at, "kept" if at % 10 == 0 else "gone")
    rig.commit()
    left, steps = [len(queue._in_heap)], range(0, count, 500)
    for first in steps:
        for at in range(first, first + 500):
            if at % 10:
                queue.cancel("", at, "gone")
        rig.commit()
        left.append(len(queue._in_heap))
    for _ in range(count // MOVED_TIMERS):
        rig.commit()
        left.append(len(queue._in_heap))
    assert max(before - after for before, after in pairwise(left)) <= MOVED_TIMERS + 2 * 500
    assert left[-1] <= 2 * (count // 10)
    kept = range(0, count, 10)
    assert run(rig, ("set 15 late", 1), ("", count)) == [("kept", 0), ("kept", 10), ("late", 15)] + [
        ("kept", at) for at in kept[2:]
    ]


class Looks:
    """The store of the timers, which notes the keys that are looked for."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.keys: list[bytes] = []

    def get(self, key: bytes) -> Any:
        self.keys.append(key)
        return self._store.get(key)


def test_a_freeze_looks_at_no_timer() -> None:
    """They were looked at behind their batches: a checkpoint with many timers does not stall the worker (A8)."""
    rig = Rig(JOB)
    queue = rig.processor.site.timers
    run(rig, *((f"set {at}", 1) for at in range(1_000_000, 1_001_000)), ("cancel 1000000", 1))
    looks = Looks(queue._store)
    queue._store = looks  # type: ignore[assignment]  # it is asked for keys only
    rig.processor.take_frames()
    assert len(looks.keys) == 1_000
    looks.keys.clear()
    rig.processor.before_freeze(1)
    assert (looks.keys, len(queue._gone)) == ([], 1)


@pytest.mark.parametrize("arguments", [(1.5,), ("1",), (1 << 63,), (True,), (1, 5)])
def test_bad_timers_are_refused(arguments: tuple[Any, ...]) -> None:
    """A time that is no int, or a key that is no str, is refused at the call."""
    with pytest.raises(TaskError, match=r"timer (at|key)"):
        Rig(JOB).task.timers.schedule(*arguments)


COMMANDS = st.lists(
    st.tuples(st.sampled_from(["set", "cancel"]), st.integers(0, 60), st.sampled_from("ab")), max_size=30
)


@pytest.fixture(scope="module")
def few() -> Iterator[None]:
    """Let a heap be left for the next one whenever half of it is gone, and timers move one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GONE_TIMERS_MIN", 0)
        patch.setattr(module, "MOVED_TIMERS", 1)
        yield


@given(COMMANDS, st.sets(st.integers(0, 30)))
@pytest.mark.usefixtures("few")
def test_timers_agree_with_a_model(commands: list[tuple[str, int, str]], restarts: set[int]) -> None:
    """The timers that fire equal those of a sorted set, through any sets, cancels and restarts."""
    rig, model, now = Rig(JOB), set[tuple[int, str]](), 0
    for step, (command, at, key) in enumerate(commands):
        now += at // 10
        (model.add if command == "set" else model.discard)((at, key))
        due = sorted(timer for timer in model if timer[0] <= now)
        model.difference_update(due)
        assert run(rig, (f"{command} {at} {key}", now)) == [(key, at) for at, key in due]
        rig.processor.take_frames()
        if step in restarts:
            rig.commit()
            rig = Rig(JOB, disk=rig.disk)


# --- Windows ---


class PerMinute(Task):
    lines = Input(LINES)
    window = TumblingWindow("minute", 60, key=utf8, value=int64, grace_ms=10)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        self.window.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.closed.append(window)
        self.out.send(window.key, window.value)

    def init(self) -> None:
        self.closed: list[Window[str, int]] = []


WINDOWS = Job("j", stages=[PerMinute])


def feed(rig: Rig, *rows: tuple[str, int]) -> list[tuple[str, int, int]]:
    """Process rows, each (key, timestamp), and return what was sent, as (key, value, timestamp)."""
    rig.rows("lines", [(key.encode(), b"", timestamp) for key, timestamp in rows])
    return [
        ((key or b"").decode(), int64.decode(value or b""), timestamp) for _, key, value, timestamp in rig.external()
    ]


def test_a_window_closes_after_its_end_and_grace() -> None:
    """One value per key, in key order, when stream time reaches end + grace; its outputs carry the window's last ms."""
    rig = Rig(WINDOWS)
    assert feed(rig, ("b", 0), ("a", 59), ("b", 30), ("a", 60), ("b", 69)) == []
    assert feed(rig, ("c", 70)) == [("a", 1, 59), ("b", 2, 59)]
    assert rig.task.closed[0] == Window("minute", 0, 60, "a", 1)
    assert feed(rig, ("d", 500)) == [("a", 1, 119), ("b", 1, 119), ("c", 1, 119)]
    rig.freeze()
    panes = [key for store, key, value in rig.overlay.frozen_items() if store >= 10 and value is not None]
    assert len(panes) == 1, "what is closed is deleted"


def test_records_within_the_grace_count_and_late_ones_are_dropped_and_counted() -> None:
    """A record out of order counts until its window closes; then it is dropped and counted."""
    rig = Rig(WINDOWS)
    assert feed(rig, ("a", 10), ("x", 69), ("a", 20), ("x", 70)) == [("a", 2, 59)]
    assert feed(rig, ("a", 30), ("a", 59), ("a", 60)) == []
    assert rig.processor.dropped["late"] == 2
    assert feed(rig, ("x", 130)) == [("a", 1, 119), ("x", 2, 119)]


def test_windows_before_1970_are_aligned_too() -> None:
    """A window is [k × size, (k + 1) × size), also for negative timestamps."""
    rig = Rig(WINDOWS)
    assert feed(rig, ("a", -61), ("a", -60), ("a", -1), ("x", 60)) == [("a", 1, -61), ("a", 2, -1)]
    assert rig.processor.dropped["late"] == 0
    assert [(window.start, window.end) for window in rig.task.closed] == [(-120, -60), (-60, 0)]


def test_open_windows_are_state() -> None:
    """Values and closing times survive a restart, and roll back with the rest."""
    rig = Rig(WINDOWS)
    feed(rig, ("a", 1))
    rig.commit()
    feed(rig, ("a", 2), ("a", 3))
    rig.rollback()
    feed(rig, ("a", 2))
    rig.commit()
    assert feed(Rig(WINDOWS, disk=rig.disk), ("x", 70)) == [("a", 2, 59)]


def test_a_window_that_is_no_longer_declared_says_so() -> None:
    """State with timers of an unknown window stops the task instead of losing what the window held."""

    class Renamed(Alarms):
        name = "per-minute"

    rig = Rig(WINDOWS)
    feed(rig, ("a", 1))
    rig.commit()
    rig.disk.names.clear()
    with pytest.raises(ConfigError, match="the state has timers of a window or join 'minute'"):
        run(Rig(Job("j", stages=[Renamed]), disk=rig.disk), ("", 500))


@pytest.mark.parametrize(("size_ms", "grace_ms"), [(0, 0), (-1, 0), (1, -1)])
def test_bad_windows_are_refused(size_ms: int, grace_ms: int) -> None:
    """Sizes below 1 ms and negative grace are refused where they are declared."""
    with pytest.raises(ConfigError, match="need size_ms >= 1, grace_ms >= 0"):
        TumblingWindow("w", size_ms, key=utf8, value=utf8, grace_ms=grace_ms)
