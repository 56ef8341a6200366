"""Outputs of a deterministic job leave at once, however long it does not commit (B1, D5), on virtual time."""

from typing import Literal

import pytest

from framework.settings import Settings
from framework.testing import Kit
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

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


def test_much_input_is_committed_before_its_interval() -> None:
    """What a task has read of streams since its commit is bounded, in bytes: then it commits, and they are trimmed."""
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
