"""Jobs for the tests of the kit: words are counted rightly, and in each way in which a task forgets to be careful."""

import itertools

from grete import Input, Job, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, json, utf8

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=int64)


class Split(Task):
    """Sends each word on, keyed by itself."""

    lines = Input(lines)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, 1)


class Count(Task):
    """Counts words in a store."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        n = self.counts.get(record.key, 0) + record.value
        self.counts.put(record.key, n)
        self.out.send(record.key, n)


class Forgetful(Task):
    """Counts in an attribute, which no crash survives."""

    lines = Input(lines)
    out = Output(totals)

    def init(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, record: Record[str, str]) -> None:
        self.counts[record.value] = n = self.counts.get(record.value, 0) + 1
        self.out.send(record.value, n)


class Numbering(Task):
    """Numbers its records for as long as the process lives, whatever task they are of."""

    lines = Input(lines)
    out = Output(totals)
    number = itertools.count()

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, next(self.number))


class Unordered(Task):
    """Sends the words of a line in the order of a set, which depends on the hashes of this process."""

    lines = Input(lines)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        for number, word in enumerate(set(record.value.split())):
            self.out.send(word, number)


views = Topic("views", key=utf8, value=utf8)
per_minute = Topic("per-minute", key=utf8, value=json)


class Minutes(Task):
    """Counts the views of each minute, keyed by page."""

    views = Input(views)
    counts = TumblingWindow("counts", size_ms=60_000, grace_ms=20_000, key=utf8, value=int64)
    out = Output(per_minute)

    def process(self, record: Record[str, str]) -> None:
        self.counts.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, [window.start, window.value])


aligned = Job("counting", stages=[Split, Count])
deterministic = Job("counting", stages=[Split, Count], mode="deterministic")
forgetful = Job("forgetful", stages=[Forgetful], mode="deterministic")
unordered = Job("unordered", stages=[Unordered], mode="deterministic")
minutes = Job("minutes", stages=[Minutes])
