"""Micro-batches, as Spark Streaming has them: a stage begins when the one before has ended the batch.

The first stage keeps the documents of an interval. When the interval is over it sends all of their postings, then an
end to each task of the next stage, and asks for a checkpoint. The second stage keeps postings until each task of the
first has ended the batch, then indexes them all. So the checkpoint has the whole batch in both stages, or nothing of
it. What is kept is state: a checkpoint may close within a batch, and a task may be late with its part.
"""

import os
from collections.abc import Sequence

import msgspec

from benchmarks.latency.job import PARTITIONS, Change, changes, documents
from grete import Input, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8
from tasks.inverted_index import END, NOTHING, Count, positions_by_word

BATCH_MS = int(os.environ.get("BENCH_INTERVAL_MS", "1000"))


class Part(msgspec.Struct, array_like=True, gc=False):
    """A posting of a batch, or a task's end of it: then there are no positions, and ``number`` is the task's."""

    batch: int  # the time in ms at which it was cut
    number: int  # of the document
    positions: list[int]


parts = Topic("parts", key=utf8, value=json(Part))


def cut_after(now: int) -> int:
    """Return the cut, in ms, of the batch that is open at a time: half an interval off the timer of checkpoints."""
    return (now + BATCH_MS // 2) // BATCH_MS * BATCH_MS + (BATCH_MS + 1) // 2


class SplitBatches(Task):
    """Documents become postings when their batch is cut."""

    name = "split"
    texts = Input(documents)
    cuts = Timers(clock="wall")
    waiting = Store("waiting", key=utf8, value=utf8)  # number → text, of the open batch
    out = Output(parts)

    def init(self) -> None:
        """Begin without a timer: one that was set is state."""
        self._is_set = False

    def process(self, record: Record[str, str]) -> None:
        """Keep a document."""
        self.waiting.put(record.key, record.value)
        if not self._is_set:
            self.cuts.schedule(cut_after(self.ctx.now()), str(record.partition))
            self._is_set = True

    def on_timer(self, timer: Timer[str]) -> None:
        """Cut the batch: send what it has, and its end; have it committed."""
        for document, text in list(self.waiting.all()):
            for word, positions in positions_by_word(text).items():
                self.out.send(word, Part(timer.at, int(document), positions))
            self.waiting.delete(document)
        for partition in range(PARTITIONS):
            self.out.send(None, Part(timer.at, int(timer.key), []), partition=partition)
        self.ctx.commit()
        self.cuts.schedule(max(timer.at + BATCH_MS, cut_after(self.ctx.now())), timer.key)


class IndexBatches(Task):
    """Postings become the index when every task of the first stage has ended their batch."""

    name = "index"
    taken = Input(parts)
    waiting = Store("waiting", key=int64, value=json(list[tuple[str, Part]]))  # a number → postings
    ended = Store("ended", key=int64, value=int64)  # task of the first stage → its last batch that is here
    postings = Store("postings", key=utf8, value=json(list[int]))  # word + END + document → positions
    words = Store("words", key=utf8, value=json(Count))
    out = Output(changes)

    def init(self) -> None:
        """Go on numbering what waits."""
        self._next = max((number for number, _ in self.waiting.all()), default=0) + 1

    def process_batch(self, records: Sequence[Record[str, Part]]) -> None:
        """Keep postings; index them when their batch is whole."""
        self._keep([(record.key, record.value) for record in records if record.value.positions])
        ends = {record.value.number: record.value.batch for record in records if not record.value.positions}
        self.ended.put_many(ends.items())
        if ends and len(ended := dict(self.ended.all())) == PARTITIONS:
            self._index(min(ended.values()))

    def _keep(self, found: list[tuple[str, Part]]) -> None:
        if found:
            self.waiting.put(self._next, found)
            self._next += 1

    def _index(self, batch: int) -> None:
        """Take all postings up to a batch; the count of a word is read and written once."""
        counts: dict[str, Count] = {}
        later = []
        for number, found in list(self.waiting.all()):
            self.waiting.delete(number)
            for word, part in found:
                if part.batch > batch:
                    later.append((word, part))
                    continue
                before = counts[word] if word in counts else self.words.get(word, NOTHING)
                count = counts[word] = Count(before.documents + 1, before.occurrences + len(part.positions))
                self.postings.put(f"{word}{END}{part.number}", part.positions)
                self.out.send(word, Change(part.number, part.positions, count.documents))
        self.words.put_many(counts.items())
        self._next = 1
        self._keep(later)
