"""A task that holds much of an open checkpoint has it closed, long before the interval is over (A9)."""

from collections import Counter
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8
from grete.execution.engine import checkpoint_asks
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded.log import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.process.worker import OpenedLog, Worker
from tests.support.intervals import just_begun_ms

LINES, WORDS, COPIES, TOTALS = (Topic(name, key=utf8, value=utf8) for name in ("lines", "words", "copies", "totals"))
WORDS_SENT, KEPT_BYTES = 40_000, 2_000
BOUND = 1 << 24


class Split(Task):
    """The source: it holds nothing itself."""

    lines = Input(LINES)
    words = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.words.send(word, word)


class Copy(Task):
    """A stage in between: it passes on what those behind it ask for."""

    words = Input(WORDS)
    copies = Output(COPIES)

    def process(self, record: Record[str, str]) -> None:
        self.copies.send(record.key, record.value)


class Show(Task):
    """Holds an output for each word until the marker comes."""

    copies = Input(COPIES)
    out = Output(TOTALS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value)


class Keep(Task):
    """Holds changes of state instead."""

    copies = Input(COPIES)
    kept = Store("kept", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        self.kept.put(record.value, record.value * (KEPT_BYTES // len(record.value)))


@pytest.mark.parametrize("last", [Show, Keep])
def test_with_an_interval_of_ten_minutes_no_task_reaches_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: type[Task]
) -> None:
    """The last of three stages gets many times its bound between checkpoints; the job continues without loss.

    Its outputs are what the source has sent; its changes of state are ten times that, so it must ask.
    """
    monkeypatch.setattr(checkpoint_asks, "SLOW_LOOK_MS", 0)
    job, at, place = Job("asks", [Split, Copy, last], partitions=1), JobDirectory(tmp_path), TopicPartition("lines", 0)
    log = EmbeddedLog(at.directory / "log.db")
    create_topics(job, log)
    lines = [" ".join(f"w{number}" for number in range(first, first + 50)) for first in range(0, WORDS_SENT, 50)]
    log.produce(0, 0, [ExternalRecord(place, None, line.encode(), 1) for line in lines])
    log.poll()
    settings = Settings(
        checkpoint_interval_ms=just_begun_ms(),
        uncommitted_state_bytes_max=BOUND,
        batch_bytes_max=256,
        downstream_lag_messages_max=25,
    )
    worker = Worker(job, [0], OpenedLog(log), at, settings)
    source = worker.drivers[0]

    def stop_at_the_end(_: object) -> None:
        if source.running and source.core.external.position[place] >= len(lines):
            worker.stop()

    worker.reports.send = stop_at_the_end
    worker.run()
    assert min(driver.parts.counters["commits"] for driver in worker.drivers) > 3
    assert source.core.seen["checkpoints closed for the tasks behind"] > 1
    if last is Show:
        shown = Counter(row.value for row in log.read(TopicPartition("totals", 0), 0, 1 << 30))
        assert shown == Counter(f"w{number}".encode() for number in range(WORDS_SENT))
    log.close()
