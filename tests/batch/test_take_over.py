"""Batch over a prefix, then live over the rest: the same as live over all."""

from itertools import accumulate
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from grete import (
    DeadLetter,
    Files,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)
from grete.api.jobs.graph import RESERVED_STORES
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit
from tasks import inverted_index
from tests.batch.taking_over import live, taken_over
from tests.support.local_batch import run_job

events = Topic("events", key=utf8, value=utf8)
numbers = Topic("numbers", key=utf8, value=int64)
letters = Topic("letters", key=utf8, value=utf8)
told = Topic("told", key=utf8, value=int64)


class Spread(Task):
    """Counts and forwards; what is no number fails, and one timer of two; every third record goes on without a key."""

    source = Input(events, errors=DeadLetter(letters))
    seen = Store("seen", key=utf8, value=int64)
    patience = Timers(errors=DeadLetter(letters))
    out = Output(numbers)

    def process(self, record: Record[str, str]) -> None:
        n = self.seen.get(record.key, 0) + 1
        self.seen.put(record.key, n)
        if n % 4 == 0:
            self.seen.delete(record.key)
        self.patience.schedule(record.timestamp + 7, record.key)
        self.out.send(record.key if n % 3 else None, int(record.value))

    def on_timer(self, timer: Timer) -> None:
        self.out.send(timer.key, -1)
        if timer.at % 2:
            raise ValueError("an odd one")


class Tell(Task):
    """Adds up by window, and tells; a result of 3 is dropped."""

    source = Input(numbers)
    sums = TumblingWindow("sums", 10, key=utf8, value=int64, grace_ms=0, errors="drop")
    out = Output(told)

    def process(self, record: Record[str, int]) -> None:
        self.sums.update(record.key or "-", record.timestamp, lambda sum_: (sum_ or 0) + record.value)
        self.out.send(None, record.value)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)
        if window.value == 3:
            raise ValueError("three")


job = Job("chain", stages=[Spread, Tell])
records = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", "x"]), st.integers(0, 20)), min_size=1, max_size=40
)


@settings(max_examples=40, deadline=None)
@given(records, st.data())
def test_batch_then_live_is_live_over_all(history: list[tuple[str, str, int]], data: st.DataObject) -> None:
    """State and outputs are the same, wherever the history is cut: timers, windows, turns, letters.

    Nothing is late: whether a record is depends, live, on the moment at which another task's watermark comes (E5).
    """
    times = accumulate(row[2] for row in history)
    history = [(key, value, timestamp) for (key, value, _), timestamp in zip(history, times, strict=True)]
    cut = data.draw(st.integers(0, len(history)))
    both = [Kit(job), Kit(job)]
    for kit in both:
        for key, value, timestamp in history:
            kit.feed(events, key, value, timestamp=timestamp)
    expected = live(both[0])
    sizes = Settings(batch_bytes_max=data.draw(st.sampled_from([60, 300, 1 << 16])))
    assert taken_over(both[1], {TopicPartition("events", 0): cut}, sizes) == expected


def test_a_state_that_outgrows_memory_is_the_same() -> None:
    """Beyond its bound the state goes through RocksDB, deletions and all."""
    small, large = Kit(job), Kit(job)
    for kit in (small, large):
        for number in range(900):
            kit.feed(events, f"key-{number % 170}", "1", timestamp=number)
    cut = {TopicPartition("events", 0): 800}
    assert taken_over(small, cut, Settings(uncommitted_state_bytes_max=8_000, batch_bytes_max=200)) == live(large)


def test_stages_of_several_partitions_hand_over() -> None:
    """Two stages of four partitions: each task reads all tasks of the stage before, in batch and live."""
    texts = [(f"{n % 11}.txt", f"the words of text {n}, and {n % 3}" if n % 7 else None) for n in range(60)]
    one, other = Kit(inverted_index.job), Kit(inverted_index.job)
    for kit in (one, other):
        for name, text in texts:
            kit.feed(inverted_index.documents, name, text, timestamp=1)
    ends = {p: len(one._data.partition(p).rows) for p in (TopicPartition("documents", n) for n in range(4))}
    cut = {partition: end // 2 for partition, end in ends.items()}
    assert taken_over(other, cut) == live(one)


def test_what_waits_for_files_is_handed_over(tmp_path: Path) -> None:
    """Lines that the history makes wait in the outbox; the live task brings them to their files, before its own."""
    keeping = keep_in(tmp_path)
    kit = Kit(keeping)
    for number in range(30):
        kit.feed(events, "k", str(number), timestamp=number)
    taken_over(kit, {TopicPartition("events", 0): 20})
    lines = [line for path in sorted(tmp_path.glob("*.jsonl")) for line in path.read_text().split()]
    assert lines == [str(number) for number in range(30)]


def test_without_outputs_nothing_waits_for_files(tmp_path: Path) -> None:
    """A history whose outputs were written long ago leaves the outbox out, and nothing else."""
    rows = [LogRow(n, 0, n, b"k", b"v", None) for n in range(5)]
    with_, without = (
        run_job(keep_in(tmp_path), lambda _: iter(rows), outbox=outbox)[0, 0].state for outbox in (True, False)
    )
    outbox = RESERVED_STORES["_outbox"]
    assert [row for row in with_ if row[0] != outbox] == without
    assert len(with_) > len(without)


def keep_in(directory: Path) -> Job:
    """Return a job that counts, and writes a line for each record."""

    class Keep(Task):
        source = Input(events)
        counts = Store("counts", key=utf8, value=int64)
        lines = Output(Files(str(directory), utf8))

        def process(self, record: Record[str, str]) -> None:
            self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
            self.lines.send(None, record.value)

    return Job("keep", stages=[Keep])
