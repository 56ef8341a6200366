"""A burst of timers that are due at once: commits, stops and kills come between its slices (E10)."""

import signal
from pathlib import Path

import pytest

from grete import Job
from grete.errors import ExitCode
from grete.execution.task_code import firing
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.testing import Kit
from tests.event_time import gated_burst as gated
from tests.event_time.bursting_job import BURST, FIRST_MS, IN, OUT, STEP_MS, bursting
from tests.event_time.test_drain import IN as NUMBERS
from tests.event_time.test_drain import MINUTES, SECOND, START, PerMinute, PerSecond
from tests.support.reports import positions
from tests.support.waiting import until
from tests.worker.workers import WorkerUnderTest, word_log

SHOWN = TopicPartition(OUT.name, 0)
EXPECTED = [
    *(0, 0),  # of the first record, and of the one that moves time: before its timers
    *(FIRST_MS + STEP_MS * n for n in range(1, BURST + 1)),
    -BURST,  # of the next one: behind all of them
]


def shown(log: EmbeddedLog, partition: TopicPartition = SHOWN) -> list[int]:
    """Return the rows that a reader outside sees."""
    rows, at = list[int](), 0
    while batch := log.read(partition, at, 1 << 20):
        rows += [int.from_bytes(row.value or b"", "big", signed=True) for row in batch]
        at = batch[-1].offset + 1
    return rows


@pytest.mark.timeout(900)
def test_a_stop_a_kill_and_commits_come_between_a_hundred_thousand_timers(tmp_path: Path) -> None:
    """Each fires once, in order, before the next record; the stop ends well within its bound, with a part done."""
    job = bursting()
    log = word_log(tmp_path / "job", job)
    times = FIRST_MS, FIRST_MS + STEP_MS * BURST, FIRST_MS + STEP_MS * BURST + 1
    log.produce(0, 1, [ExternalRecord(TopicPartition(IN.name, 0), b"k", b"", at) for at in times])
    log.poll()

    def worker() -> WorkerUnderTest:
        return WorkerUnderTest(tmp_path / "job", reference="tests.event_time.bursting_job", task="report-0")

    def is_committed(more_than: int) -> bool:
        return log.bounds(SHOWN)[1] > more_than

    with worker() as first:
        first.until(lambda _: is_committed(2))  # more than the records: timers are in a commit
        first.signal(signal.SIGTERM)
        assert first.ends() == ExitCode.DONE
    stopped = log.bounds(SHOWN)[1]
    assert stopped < BURST
    with worker() as second:
        second.until(lambda _: is_committed(stopped))
        second.signal(signal.SIGKILL)
        second.ends()
    assert log.bounds(SHOWN)[1] < BURST
    with worker() as third:
        third.until(lambda status: positions(status).get(f"{IN.name}[0]") == len(times))
        third.signal(signal.SIGTERM)
        assert third.ends() == ExitCode.DONE
    assert shown(log) == EXPECTED


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["at-most-once", "deterministic"])
def test_a_stop_and_a_kill_come_between_timers_that_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The stop ends behind the slice that is under way; the next start goes on there, and nothing is lost.

    The stop of a deterministic worker ends a decision: its last row is taken in behind the timers, at a later time.
    """
    decides = mode == "deterministic"
    module = "decided_gate" if decides else "gated_burst"
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv(gated.FOLDER, str(tmp_path))
    log = word_log(tmp_path / "job", gated.job)
    times = (
        gated.FIRST_MS,
        gated.FIRST_MS + gated.STEP_MS * gated.BURST,
        gated.FIRST_MS + gated.STEP_MS * gated.BURST + 1,
    )
    beats, reports = TopicPartition(gated.IN.name, 0), TopicPartition(gated.OUT.name, 0)
    options = "--set=shutdown_timeout_ms=20000", *(() if decides else (f"--set=processing_guarantee={mode}",))

    def feed(*rows: int) -> None:
        log.produce(0, 1, [ExternalRecord(beats, b"k", b"", at) for at in rows])
        log.poll()

    def worker() -> WorkerUnderTest:
        return WorkerUnderTest(tmp_path / "job", *options, reference=f"tests.event_time.{module}", task="report-0")

    feed(*(times if decides else times[:2]))
    with worker() as first:
        until((tmp_path / f"at-{gated.STOPPED}").exists)
        first.signal(signal.SIGTERM)
        (tmp_path / f"gate-{gated.STOPPED}").touch()
        assert first.ends() == ExitCode.DONE
    assert len(shown(log, reports)) > gated.STOPPED
    with worker() as second:
        until((tmp_path / f"at-{gated.KILLED}").exists)
        second.signal(signal.SIGKILL)
        second.ends()
    assert len(shown(log, reports)) < gated.KILLED + 2
    (tmp_path / f"gate-{gated.KILLED}").touch()
    if not decides:
        feed(times[2])
    with worker() as third:
        third.until(lambda status: positions(status).get("beats[0]") == len(times))
        third.signal(signal.SIGTERM)
        assert third.ends() == ExitCode.DONE
    fired = [gated.FIRST_MS + gated.STEP_MS * n for n in range(1, gated.BURST + 1)]
    assert shown(log, reports) == [-times[0], -times[1], *fired, -times[2]]


def test_a_worker_refuses_a_timestamp_in_microseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer a minute would fire 27 thousand million times: the worker fails, and says where time is."""
    monkeypatch.setenv(gated.FOLDER, str(tmp_path))
    for number in (gated.STOPPED, gated.KILLED):
        (tmp_path / f"gate-{number}").touch()
    log, beats = word_log(tmp_path / "job", gated.job), TopicPartition(gated.IN.name, 0)
    far = 1_000 * gated.FIRST_MS
    log.produce(0, 1, [ExternalRecord(beats, b"k", b"", at) for at in (gated.FIRST_MS, far)])
    log.poll()
    with WorkerUnderTest(tmp_path / "job", reference="tests.event_time.gated_burst", task="report-0") as worker:
        assert worker.ends() == ExitCode.FAILED
        said = worker.log_path.read_text()
    assert "60,000.0 ms apart, and about 26,639,989,999 more would follow" in said
    assert f"event time is at {far}" in said


def test_windows_of_two_stages_go_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One window at a time, tasks killed between any two steps: nothing is late behind them, and each is sent once."""
    monkeypatch.setattr(firing, "SLICE_TIMERS", 1)
    kit = Kit(Job("bursts", stages=[PerSecond, PerMinute], partitions=2))
    for value, seconds in ((1, 0), (2, 61), (4, 300)):
        for key in "abcdef":
            kit.feed(NUMBERS, key, value, timestamp=START + seconds * SECOND)
    kit.run(crashes=20, seed=5)
    kit.drain(crashes=10, seed=6)
    assert sum(record.value for record in kit.outputs(MINUTES)) == 6 * 7
