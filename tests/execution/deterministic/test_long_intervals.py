"""Outputs of a deterministic job leave at once, however long it does not commit (B1, D5)."""

import os
import time
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.execution.inputs.backpressure import Backpressure
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.execution.deterministic.reference import sent
from tests.execution.deterministic.test_kills import all_running, poll_until
from tests.support.intervals import just_begun_ms

WORDS_JOB = str(Path(__file__).with_name("words.py"))
LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)


class Split(Task):
    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.value)


class Count(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(record.key, f"{count} {record.value}")


def latencies(kit: Kit, lines: int, every_ms: int) -> list[int]:
    """Feed a line now and then; return how long each took to come out, in ms."""
    found = []
    for number in range(lines):
        kit.feed(LINES, None, f"w{number}", partition=0)
        fed, before = kit.now_ms, len(kit.pairs(OUT))
        while len(kit.pairs(OUT)) == before and kit.now_ms < fed + every_ms:
            kit.advance(1)
        found.append(kit.now_ms - fed)
        kit.advance(fed + every_ms - kit.now_ms)
    return found


@pytest.mark.parametrize("output_delivery", ["transactional", "sequenced"])
@pytest.mark.parametrize("interval_ms", [100, 10_000, 600_000, 1_800_000])
def test_latency_does_not_depend_on_the_interval(
    interval_ms: int, output_delivery: Literal["transactional", "sequenced"]
) -> None:
    """An almost idle job: its progress messages are read, though none is trimmed for long, and hold no source up."""
    settings = Settings(
        checkpoint_interval_ms=interval_ms, output_delivery=output_delivery, downstream_lag_messages_max=400
    )
    kit = Kit(Job("idle", [Split, Count], 2, "deterministic"), settings=settings)
    found = latencies(kit, 6, 3_000)
    assert max(found) <= 30, found


def test_an_aligned_source_does_not_wait_for_an_interval() -> None:
    """Far more frames than its consumers may be behind, in one checkpoint: they are processed, not held up."""
    settings = Settings(checkpoint_interval_ms=600_000, downstream_lag_messages_max=60, batch_bytes_max=1)
    kit = Kit(Job("busy", [Split, Count], 2), settings=settings)
    kit.advance(1)
    for number in range(500):
        kit.feed(LINES, None, f"w{number}", partition=number % 2)
    kit.advance(1_000)
    assert (kit.counters["external records"], kit.counters["records"]) == (500, 500)
    assert kit.pairs(OUT) == []


def test_a_source_waits_while_another_holds_its_records_back() -> None:
    """A consumer has read far ahead of a dead source, and processed nothing of it: the living source pauses (B1)."""
    settings = Settings(checkpoint_interval_ms=100, downstream_lag_messages_max=60, batch_bytes_max=1)
    kit = Kit(Job("held", [Split, Count], 2), settings=settings)
    kit.advance(100)
    away = kit._tasks.pop(("split", 1))
    kit.advance(500)  # the living source is checkpoints ahead of the alignment
    for number in range(500):
        kit.feed(LINES, None, f"w{number}", partition=0)
        kit.advance(20 * (number % 20 == 0))
    assert kit.counters["external records"] < 200
    kit._tasks["split", 1] = away
    kit.run()
    assert len(kit.pairs(OUT)) == 500


class Ring(Task):
    fired: ClassVar[int] = 0
    lines = Input(LINES)
    timers = Timers()
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for number in range(int(record.value)):
            self.timers.schedule(record.timestamp + 1 + number, str(number))

    def on_timer(self, timer: Timer) -> None:
        Ring.fired += 1
        self.out.send(timer.key, "rang")


def test_timers_of_a_burst_do_not_wait_for_consumers_that_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source sends the time behind the last slice only: consumers that wait for it would be behind for ever (D1)."""
    Ring.fired = 0
    monkeypatch.setattr(Backpressure, "behind", lambda _self, _now_ms: Ring.fired > 0)
    kit = Kit(Job("rings", [Ring, Count], 2, "deterministic"), settings=Settings(checkpoint_interval_ms=100))
    kit.feed(LINES, None, "2500", partition=0, timestamp=kit.now_ms)
    kit.advance(500)
    kit.feed(LINES, None, "0", partition=0, timestamp=kit.now_ms + 3_600_000)
    kit.advance(1_000)
    assert len(kit.pairs(OUT)) == Ring.fired == 2_500
    kit.feed(LINES, None, "0", partition=0)
    kit.advance(1_000)
    assert kit.counters["external records"] == 2  # records wait


def test_much_input_is_committed_before_its_interval() -> None:
    """A task that has read a bounded number of bytes since its commit commits, and its streams are trimmed."""
    settings = Settings(checkpoint_interval_ms=600_000, untrimmed_bytes_max=5_000)
    kit = Kit(Job("much", [Split, Count], 1, "deterministic"), settings=settings)
    kit.advance(1_000)
    before = kit.counters["commits"]
    for number in range(300):
        kit.feed(LINES, None, f"w{number}" + "x" * 100)
        kit.advance(20)
    assert 5 <= kit.counters["checkpoints closed by untrimmed input"] <= 30
    assert kit.counters["commits"] - before >= 5
    [stream] = [at for at in kit._data.partitions if at.topic not in ("lines", "out") and "changelog" not in at.topic]
    assert sum(len(row.value or b"") for row in kit._data.partition(stream).rows) < 3 * 5_000


def stays_early(job_directory: JobDirectory) -> None:
    """Run almost idle workers that never commit, for many progress messages; each line comes out.

    A worker is killed in between: its successor reads again what was never trimmed.
    """
    job = load_job(WORDS_JOB)
    (topic,), (output,) = job.topology().externals_of(0), job.external_sinks()
    streams = [TopicPartition(stream.topic, p) for stream in job.topology().streams for p in (0, 1)]
    settings = Settings(checkpoint_interval_ms=just_begun_ms(), restart_backoff_ms=20, downstream_lag_messages_max=50)
    with LocalJob(job, WORDS_JOB, job_directory, settings, inputs=OutsideInputs([topic])) as run:
        log = job_directory.open_log()
        poll_until(run, lambda: all_running(run))
        for number in range(3):
            poll_until(run, lambda: min(log.bounds(stream)[1] for stream in streams) > 200 * (number + 1))  # noqa: B023  # ends in this turn
            now = int(time.time() * 1_000)
            log.produce(0, 0, [ExternalRecord(TopicPartition(topic, 0), None, b"one two three", now)])
            log.poll()
            poll_until(run, lambda: sum(map(len, sent(log, output, 2).values())) == 3 * (number + 1))  # noqa: B023  # likewise
            if number == 1:
                run.supervisor.kill(1)
        assert all(end - start > 400 for start, end in map(log.bounds, streams))
        log.close()


@pytest.mark.chaos
def test_workers_that_seldom_commit_stay_early(tmp_path: Path) -> None:
    """Positions reach a source in another process, through the embedded log."""
    stays_early(JobDirectory(tmp_path / "job", address=IN_DIRECTORY))


@pytest.mark.chaos
@pytest.mark.kafka
def test_workers_that_seldom_commit_stay_early_on_kafka(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same through the offsets of the consumer group."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    stays_early(JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}")))
