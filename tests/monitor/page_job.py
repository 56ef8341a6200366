"""A job for the tests of the page: two stages, a sink, dead letters, and keys that would like to be markup."""

import os

from grete import DeadLetter, Files, Input, Job, Output, Record, Store, Task, Topic, int64, utf8

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)
refused = Topic("refused", key=utf8, value=utf8)


class Split(Task):
    """Cuts lines into words."""

    lines = Input(lines, errors=DeadLetter(refused))
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        """Send each word."""
        if record.value.startswith("refuse"):
            raise ValueError(f"cannot split {record.value!r}")
        for word in record.value.split(" "):
            self.out.send(word, word)


class Count(Task):
    """Counts words."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)
    archive = Output(Files(os.environ.get("PAGE_JOB_ARCHIVE", "archive"), utf8))

    def process(self, record: Record[str, str]) -> None:
        """Add one."""
        if record.value == "poison":
            raise ValueError("this word cannot be counted: poison")
        n = (self.counts.get(record.value) or 0) + 1
        self.counts.put(record.value, n)
        self.out.send(record.value, n)
        self.archive.send(None, record.value)


job = Job("word-count", stages=[Split, Count], partitions=2)
