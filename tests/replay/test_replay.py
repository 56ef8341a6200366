"""grete check-determinism's engine, and how a task that is not deterministic is caught (D3)."""

from collections.abc import Iterator
from itertools import count
from typing import ClassVar

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.errors import ConfigError, Halted
from grete.protocol.partitioner import partition_of
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)


class Split(Task):
    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.value)


class LooseSplit(Split):
    name = "split"
    drawn: ClassVar[Iterator[int]] = count()  # outlives a restart: what is made again differs

    def process(self, record: Record[str, str]) -> None:
        if record.value == "loose":
            self.out.send("word", f"{next(self.drawn)}")
        else:
            super().process(record)


class Index(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)
    timers = Timers()
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        self.timers.schedule(self.ctx.now() + 3, record.key)
        self.out.send(record.key, f"{n} {record.value} {self.ctx.uuid()}")

    def on_timer(self, timer: Timer) -> None:
        self.out.send(timer.key, f"timer {timer.at} {self.ctx.random().random()}")


JOB = Job("j", [Split, Index], partitions=2, mode="deterministic")
LOOSE = Job("j", [LooseSplit, Index], partitions=2, mode="deterministic")


def fed(job: Job, *lines: str) -> Kit:
    """Return a kit that has run these lines."""
    kit = Kit(job, settings=Settings(checkpoint_interval_ms=50))
    for line in lines:
        kit.feed(LINES, None, line)
        kit.advance(20)
    kit.run()
    kit.advance(100)
    return kit


def test_a_deterministic_job_is_made_again_as_it_was() -> None:
    """D3: from the genesis and from a later commit, with timers, numbers by chance, crashes and a lost disk."""
    kit = fed(JOB, "to be or", "not to be", "that is", "the question")
    middle = kit.now_ms - 50
    for line in ("whether", "it is", "nobler", "in the mind"):
        kit.feed(LINES, None, line)
    kit.run(crashes=5, seed=3)
    outputs = len(kit.outputs(OUT))
    whole = replay(JOB, kit._log, Settings())
    assert (whole.records, whole.difference, whole.halted) == (8, None, None)
    assert whole.compared >= outputs - 10  # but for timers after the last record
    later = replay(JOB, kit._log, Settings(), since=middle)
    assert (later.difference, later.halted) == (None, None)
    assert later.records < whole.records
    assert later.compared < whole.compared


def test_stages_with_numbers_of_their_own_are_made_again() -> None:
    """D3: one task feeds three, through crashes; a stage that differs is named with the task that it has."""
    wide = type("Index", (Index,), {"partitions": 3})
    kit = fed(Job("own", [Split, wide], mode="deterministic"), "to be or", "not to be")
    kit.feed(LINES, None, "that is the question")
    kit.run(crashes=5, seed=4)
    found = replay(kit.job, kit._log, Settings())
    assert (found.records, found.difference, found.halted) == (3, None, None)
    assert found.compared >= 10
    assert all(kit.state("counts", partition, stage="index") for partition in range(3))
    loose = fed(Job("own", [LooseSplit, wide], mode="deterministic"), "loose", "to be or not to be")
    difference = replay(loose.job, loose._log, Settings()).difference
    assert difference is not None
    assert difference.producer == f"index-{partition_of(b'word', 3)}"


def test_the_first_record_that_differs_is_named_with_both_checkpoints() -> None:
    """D3: the difference of the least logical time, in the stage that made it."""
    kit = fed(LOOSE, "to be or", "loose", "not to be", "loose")
    found = replay(LOOSE, kit._log, Settings())
    assert found.difference is not None
    assert found.difference.producer.startswith("index-")  # the stream is trimmed: here it shows first
    assert found.difference.now is not None
    assert found.difference.before.key == found.difference.now.key == b"word"
    assert found.difference.before.value != found.difference.now.value


class Numbered(Task):
    lines = Input(LINES)
    out = Output(OUT)
    seen: ClassVar[list[str]] = []  # state in no store

    def process(self, record: Record[str, str]) -> None:
        self.seen.append(record.value)
        self.out.send(record.value, str(len(self.seen)))


NUMBERED = Job("n", [Numbered], mode="deterministic")


def test_state_in_no_store_shows_from_a_later_checkpoint() -> None:
    """D3: a list fills again as it did if all is replayed; a replay from a later commit finds it empty, and differs."""
    Numbered.seen.clear()
    kit = fed(NUMBERED, "to be or", "not to be", "that is", "the question")
    Numbered.seen.clear()
    whole = replay(NUMBERED, kit._log, Settings())
    assert (whole.records, whole.compared, whole.difference, whole.halted) == (4, 4, None, None)
    assert whole.restarts
    for restart in whole.restarts:
        Numbered.seen.clear()
        later = replay(NUMBERED, kit._log, Settings(), since=restart)
        assert 0 < later.records < 4
        assert later.difference is not None


def test_a_replay_may_begin_where_records_follow() -> None:
    """Each later checkpoint that is named has records behind it, and a deterministic job makes the same from there."""
    kit = fed(JOB, "to be or", "not to be", "that is", "the question")
    whole = replay(JOB, kit._log, Settings())
    assert whole.restarts
    for restart in whole.restarts:
        later = replay(JOB, kit._log, Settings(), since=restart)
        assert (later.difference, later.halted) == (None, None)
        assert 0 < later.records < whole.records


def test_a_regenerated_record_that_differs_halts_its_consumer() -> None:
    """D3: a consumer that gets a record again, and otherwise, stops and says which."""
    kit = Kit(LOOSE, settings=Settings(checkpoint_interval_ms=60_000))
    kit.run()
    for line in ("to be or", "loose", "not to be"):
        kit.feed(LINES, None, line, partition=0)
        kit.advance(20)
    kit.crash("split")
    kit.feed(LINES, None, "loose", partition=0)
    with pytest.raises(Halted, match=r"was not deterministic|are not what was received before"):
        kit.advance(100)


def test_what_cannot_be_verified_is_said() -> None:
    """A job without deterministic stages; a checkpoint beyond the last commit."""
    kit = fed(JOB, "to be")
    with pytest.raises(ConfigError, match="no deterministic stage"):
        replay(Job("j", [Split, Index], partitions=2), kit._log, Settings())
    with pytest.raises(ConfigError, match="holds no commit to begin with"):
        replay(JOB, kit._log, Settings(), since=1 << 60)
