"""Jobs of both modes in the test kit: crashes, rollbacks, the end, snapshots, verification."""

import uuid
from typing import ClassVar

import pytest

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings, external_ends, last_commit
from grete.state.read.checkpoints.snapshots import snapshots
from grete.testing import Kit
from grete.worker.supervisor.completion import passed, reached
from tests.support.committed import all_committed

LINES = Topic("lines", key=utf8, value=utf8)
SIDE = Topic("side", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
EXTRAS = Topic("extras", key=utf8, value=utf8)
PAIRS = Topic("pairs", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)


class Split(Task):
    """Deterministic, with timers: each fires behind its record."""

    mode: ClassVar[Mode] = "deterministic"
    lines = Input(LINES)
    timers = Timers()
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, f"{word} of {record.value}")
        self.timers.schedule(record.timestamp, record.value)

    def on_timer(self, timer: Timer) -> None:
        self.out.send("timer", f"timer of {timer.key}")


class Extra(Task):
    """Aligned, a source of its own."""

    lines = Input(SIDE)
    out = Output(EXTRAS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, f"extra {record.value}")


class Join(Task):
    """Aligned; it reads of both."""

    words = Input(WORDS)
    extras = Input(EXTRAS)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(PAIRS)

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        self.out.send(record.key, f"{n} {uuid.uuid4()} {record.value}")


class Last(Task):
    """Aligned, a sink."""

    pairs = Input(PAIRS)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        n = self.seen.get(record.key, 0) + 1
        self.seen.put(record.key, n)
        self.out.send(record.key, f"{n} {record.value}")


class Both(Task):
    """Aligned; it reads of a deterministic stage and of a topic from outside."""

    words = Input(WORDS)
    side = Input(SIDE)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, f"{uuid.uuid4()} {record.value}")


JOB = Job("j", [Split, Extra, Join, Last], partitions=2)
LINES_FED = ("to be or", "not to be", "that is", "the question")

SETTINGS = Settings(checkpoint_interval_ms=50)
EACH_CHECKPOINT = Settings(checkpoint_interval_ms=50, idle_checkpoint_interval_ms=50)  # also those without news


def fed(job: Job, crashes: int = 0, seed: int = 0, settings: Settings = SETTINGS) -> Kit:
    """Return a kit that has run some lines, each 20 ms apart, with crashes."""
    kit = Kit(job, settings=settings)
    for number, line in enumerate(LINES_FED):
        kit.feed(LINES, None, line, partition=number % 2)
        kit.feed(SIDE, None, f"side{number}", partition=number % 2)
        kit.run(crashes=crashes, seed=seed + number)
    kit.advance(200)
    return kit


def values(kit: Kit, skip: int) -> list[str]:
    """Return the values outside, without the first words of each, in some order."""
    return sorted(record.value.split(" ", skip)[-1] for record in kit.outputs(OUT))


WORDS_MADE = sorted(
    [f"{word} of {line}" for line in LINES_FED for word in line.split()] + [f"timer of {line}" for line in LINES_FED]
)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(2, 8))])
def test_crashes_change_nothing(seed: int) -> None:
    """A2b: each record of the deterministic stage, and of the aligned one beside it, is in the output once."""
    kit = fed(JOB, crashes=4, seed=100 * seed)
    assert values(kit, 3) == sorted([*WORDS_MADE, *(f"extra side{number}" for number in range(4))])
    for record in kit.outputs(OUT):
        seen, count, _ = record.value.split(" ", 2)
        assert seen == count  # by the states of two stages
    assert kit.state(Join.counts) == kit.state(Last.seen)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(2, 4))])
def test_a_stage_may_read_a_topic_beside_a_deterministic_stream(seed: int) -> None:
    """1.8 A1: neither is ever taken back, so the stage is a source."""
    kit = fed(Job("j", [Split, Both], partitions=2), crashes=4, seed=100 * seed)
    assert values(kit, 1) == sorted([*WORDS_MADE, *(f"side{number}" for number in range(4))])


def test_an_aligned_stage_rolls_back_and_takes_deterministic_records_again() -> None:
    """R4: only an aligned producer takes something back; what was taken of the others beside it is taken once more."""
    kit = Kit(JOB, settings=Settings(checkpoint_interval_ms=5_000))
    kit.run()
    kit.feed(LINES, None, "to", partition=0)
    kit.feed(SIDE, None, "to", partition=0)
    kit.advance(100)
    partition = next(p for p in range(2) if kit._tasks["join", p].senders())
    kit.rollback("join", partition)
    kit.run()
    assert values(kit, 3) == ["extra to", "timer of to", "to of to"]


def test_the_end_is_passed_by_time_and_then_reached_by_checkpoints() -> None:
    """A2b: frontiers tell that aligned tasks hold all that deterministic ones make; behind them checkpoints do."""
    kit = Kit(JOB, settings=EACH_CHECKPOINT)
    log = kit._log
    kit.feed(LINES, None, "to be")
    kit.process()
    ends = external_ends(log, JOB)
    assert not passed(log, JOB, ends)
    kit.run()
    checkpoint_id = reached(log, JOB, ends)
    assert passed(log, JOB, ends)
    assert checkpoint_id is not None
    assert all_committed(log, JOB, checkpoint_id)
    joins = [last_commit(log, w.changelog) for w in all_wirings(JOB) if w.logical]
    assert checkpoint_id == max(found.commit.checkpoint_id for found in joins if found is not None)
    kit.feed(LINES, None, "or not")
    assert not passed(log, JOB, external_ends(log, JOB))
    assert not all_committed(log, JOB, checkpoint_id + 1_000_000)


def test_a_snapshot_has_one_checkpoint_of_the_aligned_tasks() -> None:
    """Deterministic tasks stand at checkpoints of their own (D4), the others at a common one."""
    kit = fed(JOB, settings=EACH_CHECKPOINT)
    found = {snapshot.task: snapshot.commit.checkpoint_id for snapshot in snapshots(kit._log, JOB)}
    inner = {found[f"{stage}-{p}"] for stage in ("join", "last") for p in range(2)}
    assert len(inner) == 1
    assert all(found[f"extra-{p}"] >= min(inner) for p in range(2))
    again = {s.task: s.commit.checkpoint_id for s in snapshots(kit._log, JOB, min(inner))}
    assert all(again[f"split-{p}"] <= min(inner) for p in range(2))


def test_the_deterministic_stages_are_verified() -> None:
    """D3: what they have sent to aligned stages is compared, what those make of it is not."""
    kit = Kit(JOB, settings=Settings(checkpoint_interval_ms=60_000))
    kit.run()
    for line in LINES_FED:
        kit.feed(LINES, None, line)
        kit.feed(SIDE, None, line)
        kit.advance(20)
    kit.advance(100)  # nothing is committed, so nothing is trimmed
    found = replay(JOB, kit._log, Settings())
    assert (found.records, found.difference, found.halted) == (len(LINES_FED), None, None)
    assert found.compared >= len(WORDS_MADE) - len(LINES_FED)
