"""Deterministic tasks that are killed between two steps, in memory: bounds hold, no stall, nothing comes twice."""

from typing import Literal

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.errors import Halted
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import replay
from grete.replay.recorded import made_outside
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)


class Split(Task):
    lines = Input(LINES)
    timers = Timers()
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.value)
        self.timers.schedule(self.ctx.now() + 7, "later")

    def on_timer(self, timer: Timer) -> None:
        self.out.send(timer.key, f"{timer.at}")


class Count(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(record.key, f"{count} {record.value}")


class CountLines(Task):
    """A source that is a sink."""

    lines = Input(LINES)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(record.value, f"{count} {self.ctx.uuid()}")


@pytest.mark.parametrize("output_delivery", ["transactional", "sequenced"])
@pytest.mark.parametrize("stages", [[Split, Count], [CountLines]])
@pytest.mark.parametrize("seed", range(3))
def test_killed_tasks_with_little_room_go_on(
    stages: list[type[Task]], seed: int, output_delivery: Literal["transactional", "sequenced"]
) -> None:
    """D1, D5: with room for a record or two, killed again and again, a job gets through, each output once."""
    job = Job("j", stages, partitions=2, mode="deterministic")
    little = Settings(
        checkpoint_interval_ms=50,
        batch_bytes_max=200,
        early_memory_bytes_max=300,
        sink_buffer_bytes_max=100,
        output_delivery=output_delivery,
    )
    kit = Kit(job, settings=little)
    for number in range(8):
        kit.feed(LINES, None, f"to be {number}")
        kit.advance(3)
        kit.crash(job.stages[-1].name, number % 2, other_host=number % 3 == 0)
    kit.run(crashes=6, seed=seed)
    found = made_outside(kit._log, OUT.name)
    for made in found.values():
        assert sorted(made) == list(range(1, len(made) + 1))
    assert sum(map(len, found.values())) == len(kit.outputs(OUT)), "a plain reader sees an output twice"
    again = replay(job, kit._log, Settings())
    assert (again.records, again.difference, again.halted) == (8, None, None)


def test_a_source_whose_rows_are_gone_says_so() -> None:
    """D2: what was decided must be read again; an input that is kept too short halts the source, naming the rows."""
    job = Job("j", [Split, Count], mode="deterministic")
    kit = Kit(job, settings=Settings(checkpoint_interval_ms=60_000))
    kit.advance(20)
    kit.feed(LINES, None, "to be")
    kit.advance(20)
    kit.crash("split")
    rows: list[LogRow] = kit._data.partition(TopicPartition("lines", 0)).rows
    kit._data.partition(TopicPartition("lines", 0)).start = len(rows)
    rows.clear()
    with pytest.raises(Halted, match=r"retention is too short|log starts at"):
        kit.advance(20)
