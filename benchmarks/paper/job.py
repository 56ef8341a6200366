"""The job of the experiment: documents → postings → the index as state, each change of it told at once.

The first stage and all topics are those of ``benchmarks.latency.job``. Its second stage only counts documents by word;
here it keeps every posting, as ``tasks.inverted_index`` does: each with a key of its own, so no value grows. For each
word it also keeps two numbers by increments, from which a lost or repeated posting never vanishes.
"""

import os

from benchmarks.latency.job import MODE, PARTITIONS, RUN, Change, Posting, Split, changes, postings
from benchmarks.paper.batches import IndexBatches, SplitBatches
from benchmarks.paper.techniques import MICRO_BATCHES
from grete import Input, Job, Output, Record, Store, Task, json, utf8
from tasks.inverted_index import END, NOTHING, Count


class Index(Task):
    """Postings → the index: ``postings`` by word and document, ``words`` by word."""

    found = Input(postings)
    postings = Store("postings", key=utf8, value=json(list[int]))  # word + END + document → positions
    words = Store("words", key=utf8, value=json(Count))
    out = Output(changes)

    def process(self, record: Record[str, Posting]) -> None:
        """Add a posting, and tell."""
        word, posting = record.key, record.value
        before = self.words.get(word, NOTHING)
        count = Count(before.documents + 1, before.occurrences + len(posting.positions))
        self.postings.put(f"{word}{END}{posting.document}", posting.positions)
        self.words.put(word, count)
        self.out.send(word, Change(posting.document, posting.positions, count.documents))


IN_BATCHES = os.environ.get("BENCH_MODE") == MICRO_BATCHES
stages: list[type[Task]] = [SplitBatches, IndexBatches] if IN_BATCHES else [Split, Index]
job = Job(f"paper-{RUN}", stages=stages, partitions=PARTITIONS, mode=MODE)
