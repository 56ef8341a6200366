"""A job that is drained: at the end of its inputs what waits for event time fires, each once, through crashes (E7)."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from grete import Input, Job, Output, Record, Task, Timer, Timers, Topic, TumblingWindow, Window, int64, utf8
from grete.api.tasks.mode import Mode
from grete.testing import Kit
from tests.event_time import two_ends

ROOT = Path(__file__).parents[2]
SECOND = 1_000
START = 1_600_000_000_000
IN = Topic("in", key=utf8, value=int64)
SECONDS = Topic("seconds", key=utf8, value=int64)
MINUTES = Topic("minutes", key=utf8, value=int64)
MODES = pytest.mark.parametrize("mode", ["aligned", "deterministic"])


class PerSecond(Task):
    """Sums of a second, to be summed again."""

    numbers = Input(IN)
    sums = TumblingWindow("sums", SECOND, key=utf8, value=int64, grace_ms=3 * SECOND)
    out = Output(SECONDS)

    def process(self, record: Record[str, int]) -> None:
        """Add it."""
        assert self.sums.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        """Send it under a key that all have."""
        self.out.send(window.key[0], window.value)


class PerMinute(Task):
    """Sums of a minute, of what windows have sent."""

    seconds = Input(SECONDS)
    sums = TumblingWindow("sums", 60 * SECOND, key=utf8, value=int64)
    out = Output(MINUTES)

    def process(self, record: Record[str, int]) -> None:
        """Add it: none is late."""
        assert self.sums.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        """Send it."""
        self.out.send(window.key, window.value)


class PassOn(Task):
    """A stage between, without a time of its own."""

    name = "pass-on"
    seconds = Input(MINUTES)
    out = Output(Topic("out", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        """Send it on."""
        self.out.send(record.key, record.value)


def sums_of(mode: Mode) -> Job:
    """Return a job with windows in two stages of three."""
    return Job("sums", stages=[PerSecond, PerMinute, PassOn], partitions=2, mode=mode)


OUT = Topic("out", key=utf8, value=int64)


def feed(kit: Kit, minutes: int, start: int = START) -> dict[str, int]:
    """Feed some minutes; return the sums by the first letter of the key."""
    sums: dict[str, int] = {}
    for tick in range(minutes * 6):
        key = f"{'ab'[tick % 2]}{tick % 5}"
        kit.feed(IN, key, tick, timestamp=start + tick * 10 * SECOND)
        sums[key[0]] = sums.get(key[0], 0) + tick
    return sums


def totals(kit: Kit) -> dict[str, int]:
    """Return the sums of all that came out."""
    found: dict[str, int] = {}
    for key, value in kit.pairs(OUT):
        found[key] = found.get(key, 0) + value
    return found


@MODES
@pytest.mark.parametrize("seed", range(2))
def test_draining_closes_all_windows_of_all_stages_once(mode: Mode, seed: int) -> None:
    """The end goes from stage to stage, behind what the windows send: crashes in between change nothing."""
    kit = Kit(sums_of(mode))
    expected = feed(kit, 5)
    kit.run()
    assert totals(kit) != expected  # the last windows are open
    kit.drain(crashes=12, seed=seed)
    assert totals(kit) == expected
    windows = [record.timestamp // 60_000 for record in kit.outputs(OUT) if record.key == "a"]
    assert len(windows) == len(set(windows)) == 6
    assert kit.state(PerSecond.sums.panes, stage=PerSecond) == kit.state(PerMinute.sums.panes, stage=PerMinute) == {}
    kit.drain()  # nothing is left
    assert totals(kit) == expected


@MODES
def test_a_drained_job_goes_on_with_later_records(mode: Mode) -> None:
    """Event time is where the last window closed: what is older is late, what is later is as ever."""
    kit = Kit(sums_of(mode))
    before = feed(kit, 2)
    kit.drain(crashes=5, seed=3)
    after = feed(kit, 3, START + 10 * 60 * SECOND)
    kit.drain(crashes=5, seed=4)
    assert totals(kit) == {key: before[key] + after[key] for key in before}
    kit.feed(IN, "a0", 1, timestamp=START + 60 * SECOND)
    with pytest.raises(Exception, match="AssertionError"):  # late
        kit.run()


class Ticks(Task):
    """A timer that sets itself again, one that sets a chain, and a window that follows another one."""

    numbers = Input(IN)
    timers = Timers()
    short = TumblingWindow("short", 10 * SECOND, key=utf8, value=int64)
    long = TumblingWindow("long", 30 * SECOND, key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, int]) -> None:
        """Set a timer that goes on for ever, and count."""
        self.timers.schedule(record.timestamp + 4 * SECOND, "tick")
        self.short.update(record.key, record.timestamp, lambda so_far: (so_far or 0) + 1)

    def on_timer(self, timer: Timer) -> None:
        """Set the next one."""
        self.out.send("tick", timer.at - START)
        self.timers.schedule(timer.at + 4 * SECOND, "tick")

    def on_window(self, window: Window[str, int]) -> None:
        """Let the long window count what the short ones had."""
        if window.name == "short":
            assert self.long.update(window.key, window.end - 1, lambda so_far: (so_far or 0) + window.value)
        else:
            self.out.send(f"long {self.ctx.event_time() == window.end}", window.value)


@MODES
def test_draining_ends_though_a_timer_sets_itself_again(mode: Mode) -> None:
    """Time goes on to the last timer that was set, step by step, then to windows that come of it; the rest waits."""
    kit = Kit(Job("ticks", stages=[Ticks], mode=mode))
    kit.feed(IN, "k", 1, timestamp=START)
    kit.drain(crashes=3, seed=1)
    start = START % (30 * SECOND)
    assert start == 10 * SECOND  # the short window ends 10 s later, the long one 20 s
    assert kit.pairs(OUT) == [*(("tick", at * SECOND) for at in (4, 8, 12, 16, 20)), ("long True", 1)]
    again = kit.pairs(OUT)
    kit.drain(crashes=3, seed=2)
    assert kit.pairs(OUT) == again  # the end is state: a second one is none


@MODES
def test_a_partition_without_records_ends_too(mode: Mode) -> None:
    """Three partitions, one record: no idle time is waited for."""

    class One(PerSecond):
        name = "one"
        out = Output(OUT)

    kit = Kit(Job("one", stages=[One], partitions=3, mode=mode))
    kit.feed(IN, "k", 7, timestamp=START)
    kit.drain()
    assert kit.pairs(OUT) == [("k", 7)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_other_guarantees_drain(guarantee: Literal["at-least-once", "at-most-once"]) -> None:
    """At least once has no markers, so the job is drained when all is used up; at most once no input is held then."""
    kit = Kit(sums_of("aligned"), processing_guarantee=guarantee)
    expected = feed(kit, 3)
    kit.drain()
    assert totals(kit) == expected


def test_the_kit_drains_as_the_command_does(tmp_path: Path) -> None:
    """Neither waits until inputs are idle: what the shorter partition lets through behind its end is counted."""
    rows = {1040: ("k3", "k4"), 1200: ("k0", "k1")}  # each time is in one partition, and both inputs have both
    command = [sys.executable, "-m", "grete.cli", "run", "tests.event_time.two_ends", "--drain", "--keys"]
    for number, topic in enumerate((two_ends.orders, two_ends.paid)):
        file = tmp_path / topic.name
        file.write_text("".join(f"{keys[number]}\t{at}\n" for at, keys in rows.items()))
        command += ["--input", f"{topic.name}={file}"]
    directory = ["--directory", str(tmp_path / "job")]
    subprocess.run([*command, *directory], cwd=ROOT, capture_output=True, check=True)
    command = [sys.executable, "-m", "grete.cli", "topic", "read", "tests.event_time.two_ends", "unpaid"]
    done = subprocess.run([*command, *directory], cwd=ROOT, capture_output=True, text=True, check=True)
    told = [(key, int(value)) for *_, key, value in (line.split("\t") for line in done.stdout.splitlines())]
    for mode in MODES.args[1]:
        kit = Kit(Job("two-ends", [two_ends.Match, two_ends.Count], partitions=2, mode=mode))
        for number, topic in enumerate((two_ends.orders, two_ends.paid)):
            for at, keys in rows.items():
                kit.feed(topic, keys[number], at)
        kit.drain()
        assert kit.pairs(two_ends.unpaid) == told == [("all", 1), ("all", 1)]
