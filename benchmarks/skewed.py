"""A job whose sources do not keep step: each line of partition 1 costs its source a millisecond of computing."""

import time

from benchmarks.jobs import Count, lines, words
from grete import Input, Job, Output, Record, Task


class Split(Task):
    """A line becomes its words; slowly in partition 1, so that its checkpoints close late."""

    lines = Input(lines)
    words = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Send each word; burn a millisecond first where this is the slow source."""
        if record.partition == 1:
            ready = time.perf_counter() + 0.001
            while time.perf_counter() < ready:
                pass
        for word in record.value.split():
            self.words.send(word, 1)


job = Job("bench-skewed", stages=[Split, Count], partitions=2)
