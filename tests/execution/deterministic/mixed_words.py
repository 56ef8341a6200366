"""A job of both modes: two deterministic stages, as in words.py; behind them two aligned ones that draw at random."""

import os
import uuid
from typing import ClassVar

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode

RUN = os.environ.get("WORDS_RUN", "")
lines = Topic(f"lines{RUN}", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
counted = Topic("counted", key=utf8, value=utf8)
marked = Topic("marked", key=utf8, value=utf8)
gathered = Topic(f"gathered{RUN}", key=utf8, value=utf8)


class Split(Task):
    mode: ClassVar[Mode] = "deterministic"
    source = Input(lines)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, f"{record.value}/{word}")


class Count(Task):
    mode: ClassVar[Mode] = "deterministic"
    source = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(counted)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1  # of all words, so that each output depends on the whole order
        self.counts.put("all", count)
        self.out.send(record.key, f"{count} {record.value} {self.ctx.now_us()}")


class Mark(Task):
    source = Input(counted)
    marks = Store("marks", key=utf8, value=utf8)
    out = Output(marked)

    def process(self, record: Record[str, str]) -> None:
        before, mark = self.marks.get(record.key, ""), str(uuid.uuid4())  # each attempt another
        self.marks.put(record.key, mark)
        self.out.send(record.key, f"{before}|{mark}|{record.value}")


class Gather(Task):
    source = Input(marked)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(gathered)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, count)
        self.out.send(record.key, f"{count}|{record.value}")


job = Job(f"mixed{RUN}", [Split, Count, Mark, Gather], partitions=2)
