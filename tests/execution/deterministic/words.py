"""A deterministic job of two stages whose outputs tell of the order and the time in which it saw its input."""

import os

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

RUN = os.environ.get("WORDS_RUN", "")
PARTITIONS = int(os.environ.get("WORDS_PARTITIONS", "2"))
lines = Topic(f"lines{RUN}", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
counted = Topic(f"counted{RUN}", key=utf8, value=utf8)


class Split(Task):
    source = Input(lines)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, f"{record.value}/{word}")


class Count(Task):
    source = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(counted)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1  # of all words, so that each output depends on the whole order
        self.counts.put("all", count)
        self.out.send(record.key, f"{count} {record.value} {self.ctx.now_us()}")


job = Job(f"words{RUN}", [Split, Count], partitions=PARTITIONS, mode="deterministic")
