"""The job of words.py with its outputs in files and in two tables, beside the topic."""

import os

import msgspec

from grete import Files, Input, Job, Output, Record, Store, Table, Task, int64, json, utf8
from tests.execution.deterministic.words import RUN, Split, counted, words


class Word(msgspec.Struct):
    """A row, or a line of a file."""

    word: str
    value: str


class Count(Task):
    source = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(counted)
    files = Output(Files(os.environ["WORDS_FILES"], json(Word)))
    sqlite = Output(Table("env:WORDS_SQLITE", "counted", json(Word)))
    server = Output(Table("env:WORDS_SERVER", "counted", json(Word)))

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        row = Word(record.key, f"{count} {record.value} {self.ctx.now_us()}")
        self.out.send(row.word, row.value)
        for output in (self.files, self.sqlite, self.server):
            output.send(None, row)


job = Job(f"words{RUN}", [Split, Count], partitions=2, mode="deterministic")
